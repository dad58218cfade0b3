"""Colours, glyphs and number formats of the terminal; a colour never has a meaning alone."""

from collections.abc import Mapping
from typing import IO, Final, Literal, TypeAlias, assert_never

from rich.console import Console

from orchestrator.agents import Usage
from orchestrator.delegation import Ending, Status, usd

Progress: TypeAlias = Literal["auto", "live", "plain", "json", "none"]


def _colour_of(status: Status | Ending) -> str:
    match status:
        case Status.QUEUED:
            return "dim"
        case Status.RUNNING:
            return "cyan"
        case Status.WAITING:
            return "bold yellow"
        case Status.QUIET | Status.INTERRUPTED | Ending.CANCELLED | Ending.REFUSED:
            return "yellow"
        case Ending.SUCCEEDED:
            return "green"
        case Ending.FAILED | Ending.TIMED_OUT | Ending.OVER_BUDGET | Ending.LOST:
            return "red"
        case _:
            assert_never(status)


STATUS_COLOURS: Final[dict[str, str]] = {
    status: _colour_of(status) for status in (*Status, *Ending)
}
SPINNER: Final = "◐◓◑◒"
ASCII_FALLBACK: Final[dict[int, int | str]] = {
    **str.maketrans("◐◓◑◒◔·◌✓✗⊘├└│─×↓↑▸▾█", "*****.-+x-|`|-xv^>v_"),
    ord("…"): "...",
    ord("≥"): ">=",
    ord("⏎"): "\\n",
}
"""Replaces our glyphs where the terminal has only ASCII."""
MANY: Final = 1_000_000_000
"""A number of tokens that a damaged journal may exceed by any factor."""
DUMB_TERMINALS: Final = frozenset({"", "dumb", "unknown"})


def is_ascii(console: Console) -> bool:
    """Return whether the terminal may lack our glyphs: its encoding is not UTF-8."""
    return not console.encoding.lower().replace("-", "").startswith("utf")


def choose_progress(progress: Progress, stream: IO[str], environ: Mapping[str, str]) -> Progress:
    """Return the kind of progress, if the user asked for `auto`."""
    if progress != "auto":
        return progress
    # Not `console.is_terminal`: colours forced on a pipe do not make it a live terminal.
    is_live = stream.isatty() and environ.get("TERM", "") not in DUMB_TERMINALS
    return "live" if is_live and not environ.get("CI") else "plain"


def format_tokens(usage: Usage) -> str:
    """Format a number of tokens in at most seven characters; an estimate is marked."""
    tokens, about = usage.tokens, "~" if usage.estimated else ""
    if tokens < 10_000:
        return f"{about}{tokens:,}"
    if tokens < 1_000_000:
        return f"{about}{tokens / 1_000:.1f}k"
    if tokens < MANY:
        return f"{about}{tokens / 1_000_000:.2f}M"
    return ">1000M"


def format_money(usage: Usage) -> str:
    """Format a cost in at most ten characters; `$?` is unknown."""
    return "$?" if usage.unpriced and not usage.micro_usd else usd(usage)


def format_seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{max(0.0, seconds):.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
