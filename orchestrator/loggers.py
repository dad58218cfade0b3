"""The loggers of the library: one for each package, all below `orchestrator`, and quiet.

A program that wants to read them adds a handler, as with any library.
"""

import logging
from typing import Final

TOP: Final = "orchestrator"


def logger_of(package: str) -> logging.Logger:
    """Return the logger of a package, such as `orchestrator.server`."""
    top = logging.getLogger(TOP)
    if not top.handlers:
        # Without it, Python would print warnings to stderr.
        top.addHandler(logging.NullHandler())
    return logging.getLogger(f"{TOP}.{package}")
