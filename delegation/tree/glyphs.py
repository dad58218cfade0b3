"""The glyph of each status: the one table for text, charts and terminals."""

from typing import Final

from delegation.task import Ending, Mode, Status

STATUS_GLYPHS: Final[dict[str, str]] = {
    Status.QUEUED: "·",
    Status.RUNNING: "◐",
    Status.QUIET: "◔",
    Status.WAITING: "!",
    Status.INTERRUPTED: "◌",
    Ending.SUCCEEDED: "✓",
    Ending.FAILED: "✗",
    Ending.CANCELLED: "⊘",
    Ending.TIMED_OUT: "✗",
    Ending.OVER_BUDGET: "✗",
    Ending.REFUSED: "⊘",
    Ending.LOST: "✗",
}


def glyph(status: str, mode: str) -> str:
    """Return the glyph of a status. A session that waits for mail is idle, and needs no answer."""
    is_idle = status == Status.WAITING and mode == Mode.ROOT
    return "◌" if is_idle else STATUS_GLYPHS[status]
