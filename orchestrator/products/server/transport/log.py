"""The server's log on stderr: its own errors, redacted; by an option, a line for each request."""

import logging
import sys

from orchestrator.agents.redaction.redactor import Redactor


def redacted_logger(redactor: Redactor) -> logging.Logger:
    """Return a logger that redacts secrets."""
    # Not a named logger: no global configuration applies, and it lives as long as the server.
    logger = logging.Logger("orchestrator.server", logging.WARNING)  # noqa: LOG001
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_RedactingFormatter(redactor))
    logger.addHandler(handler)
    return logger


def access_logger(redactor: Redactor) -> logging.Logger:
    """Return a logger of requests that redacts secrets."""
    logger = logging.Logger("orchestrator.products.server.access", logging.INFO)  # noqa: LOG001
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_RedactingFormatter(redactor, "%(message)s"))
    logger.addHandler(handler)
    return logger


class _RedactingFormatter(logging.Formatter):
    def __init__(self, redactor: Redactor, form: str = "orchestrator: %(message)s") -> None:
        super().__init__(form)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.redact(super().format(record))
