"""What the server complains of on stderr: its own faults, and nothing that a client does."""

import logging
import sys

from agents.redaction.redactor import Redactor


def redacted_logger(redactor: Redactor) -> logging.Logger:
    """Return where faults are written, without the secrets that may be in their words."""
    # One of our own: nobody else's settings hold for it, and it is gone with the server.
    logger = logging.Logger("orchestrator.server", logging.WARNING)  # noqa: LOG001
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_RedactingFormatter(redactor))
    logger.addHandler(handler)
    return logger


class _RedactingFormatter(logging.Formatter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__("orchestrator: %(message)s")
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.redact(super().format(record))
