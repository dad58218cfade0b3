"""The glyph of each status, and the shown mode: the same in text, charts and terminals."""

from typing import Final, assert_never

from orchestrator.delegation.task import Ending, Mode, Reason, Status


def _glyph_of(status: Status | Ending) -> str:  # noqa: PLR0911 (one for each)
    match status:
        case Status.QUEUED:
            return "·"
        case Status.RUNNING:
            return "◐"
        case Status.QUIET:
            return "◔"
        case Status.WAITING:
            return "!"
        case Status.INTERRUPTED:
            return "◌"
        case Ending.SUCCEEDED:
            return "✓"
        case Ending.CANCELLED | Ending.REFUSED:
            return "⊘"
        case Ending.FAILED | Ending.TIMED_OUT | Ending.OVER_BUDGET | Ending.LOST:
            return "✗"
        case _:
            assert_never(status)


STATUS_GLYPHS: Final[dict[str, str]] = {status: _glyph_of(status) for status in (*Status, *Ending)}


def shown_mode(mode: Mode, reason: str) -> Mode:
    """Return the mode that people see: a task beside its function is detached for them."""
    return Mode.DETACHED if reason == Reason.RUNS_BESIDE else mode


def glyph(status: str, mode: str) -> str:
    """Return the glyph of a status. A session that waits for mail is idle, and needs no answer."""
    is_idle = status == Status.WAITING and mode == Mode.ROOT
    return "◌" if is_idle else STATUS_GLYPHS[status]
