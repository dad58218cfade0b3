"""How things look in this terminal: with or without colour, in signs or in plain ASCII.

Colour never says anything that a sign or a word does not say, too.
"""

from collections.abc import Mapping
from typing import IO, Final, Literal, TypeAlias

from rich.console import Console

from agents import Usage
from delegation import Ending, Status, usd

Progress: TypeAlias = Literal["auto", "live", "plain", "json", "none"]

STATUS_COLOURS: Final[dict[str, str]] = {
    Status.QUEUED: "dim",
    Status.RUNNING: "cyan",
    Status.QUIET: "yellow",
    Status.WAITING: "bold yellow",
    Status.INTERRUPTED: "yellow",
    Ending.SUCCEEDED: "green",
    Ending.FAILED: "red",
    Ending.CANCELLED: "yellow",
    Ending.TIMED_OUT: "red",
    Ending.OVER_BUDGET: "red",
    Ending.REFUSED: "yellow",
    Ending.LOST: "red",
}
SPINNER: Final = "◐◓◑◒"
ASCII_FALLBACK: Final = str.maketrans(
    {
        **dict.fromkeys("◐◓◑◒◔", "*"),
        "·": ".",
        "◌": "-",
        "✓": "+",
        "✗": "x",
        "⊘": "-",
        "├": "|",
        "└": "`",
        "│": "|",
        "─": "-",
        "…": "...",
        "≥": ">=",
        "×": "x",
        "↓": "v",
        "↑": "^",
        "▸": ">",
        "▾": "v",
        "█": "_",
        "⏎": "\\n",
    }
)
"""What stands for our signs where there are only 128 characters."""
DUMB_TERMINALS: Final = frozenset({"", "dumb", "unknown"})


def is_ascii(console: Console) -> bool:
    """Tell whether the terminal may not have our signs: it says that it has no UTF-8."""
    return not console.encoding.lower().replace("-", "").startswith("utf")


def choose_progress(
    progress: Progress, stream: IO[str], environ: Mapping[str, str]
) -> Progress:
    """Return how progress is shown, where it is left to us.

    Args:
        progress: what the user wants.
        stream: where it is shown.
        environ: tells about the terminal.
    """
    if progress != "auto":
        return progress
    # Whoever forces colours on a pipe wants colours there, and no cursor that jumps.
    is_live = stream.isatty() and environ.get("TERM", "") not in DUMB_TERMINALS
    return "live" if is_live and not environ.get("CI") else "plain"


def format_tokens(tokens: int) -> str:
    """Return a number of tokens in at most six characters."""
    if tokens < 10_000:
        return f"{tokens:,}"
    if tokens < 1_000_000:
        return f"{tokens / 1_000:.1f}k"
    return f"{tokens / 1_000_000:.2f}M"


def format_money(usage: Usage) -> str:
    """Return money; `$?` is a price that nobody knows."""
    return "$?" if usage.unpriced and not usage.cost else usd(usage)


def format_seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{max(0.0, seconds):.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
