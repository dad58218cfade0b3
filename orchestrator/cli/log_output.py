"""The log of a command on stderr: sentences, or lines of JSON."""

import logging
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from orchestrator.loggers import TOP

VARIABLE: Final = "ORCHESTRATOR_LOG"
"""With the value `json`, each record is a line of JSON, and the facts of runs are logged."""


@contextmanager
def show_log() -> Generator[None]:
    """Write warnings to stderr as long as the block lasts."""
    top, handler = logging.getLogger(TOP), logging.StreamHandler(sys.stderr)
    level = top.level
    if os.environ.get(VARIABLE) == "json":
        from orchestrator.telemetry import JsonLines

        handler.setFormatter(JsonLines())
        top.setLevel(logging.INFO)
    else:
        handler.setFormatter(_Sentence())
    top.addHandler(handler)
    try:
        yield
    finally:
        top.removeHandler(handler)
        top.setLevel(level)


class _Sentence(logging.Formatter):
    """A warning is a message of the program; a line about a request has a form of its own."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if record.levelno < logging.WARNING else f"{TOP}: {text}"
