"""The keys of `orchestrator watch`: the line at the bottom that names them, and their help."""

from collections.abc import Sequence
from typing import Final

from rich.text import Text

TREE_KEYS: Final = (
    ("Enter", "read"),
    ("x", "cancel"),
    ("m", "tell"),
    ("a/d", "answer"),
    ("f", "failed"),
    ("w", "waiting"),
    ("p", "pause"),
    ("/", "search"),
    ("←→", "fold"),
    ("↑↓", "move"),
)
"""Most important first: the last ones are left out where there is no room."""
TRANSCRIPT_KEYS: Final = (
    ("↑↓", "scroll"),
    ("Esc", "back"),
    ("x", "cancel"),
    ("m", "tell"),
    ("a/d", "answer"),
)
LAST_KEYS: Final = (("?", "help"), ("q", "leave"))
"""The keys that are named at any width."""
HELP: Final = (
    ("↑ ↓  PgUp PgDn  Home End", "move"),
    ("→ ←", "expand and collapse; on … n more, show more of them"),
    ("Enter", "show the transcript of the task; Esc goes back"),
    ("x", "cancel the task and its descendants, after a yes"),
    ("p", "start no new tasks below it, or start them again, after a yes"),
    ("m", "tell it something: it reads that before its next model call"),
    ("a  d", "approve or deny what the task asks, or else the oldest"),
    ("f  w", "go to the next failed, waiting task"),
    ("/  n", "search names, goals and errors; next match"),
    ("q", "leave; the run goes on"),
    ("", ""),
    ("· ◐ ◔", "queued, running, quiet for a while"),
    ("! ◌", "waits for an approval; idle or interrupted"),
    ("✓ ✗ ⊘", "succeeded; failed; cancelled or refused"),
    ("&  ≥  ~", "detached; a price is unknown; tokens are estimated"),
    ("20↓ ◐3 ✗2", "twenty tasks are hidden below: three run, two failed"),
)


def keys_line(keys: Sequence[tuple[str, str]], width: int) -> Text:
    """Return the keys with their actions, as many as fit a width, and always `LAST_KEYS`."""
    count = len(keys)
    while (line := _line((*keys[:count], *LAST_KEYS))).cell_len > width and count:
        count -= 1
    return line


def _line(keys: Sequence[tuple[str, str]]) -> Text:
    line = Text()
    for key, word in keys:
        line.append(f"{key} ", style="bold")
        line.append(f"{word}  ", style="dim")
    line.rstrip()
    return line


def help_lines() -> list[Text]:
    """Return the help: the action of each key, and the meaning of each sign."""
    width = max(len(keys) for keys, _ in HELP)
    return [
        Text.assemble((f"{keys:<{width}}  ", "bold"), (meaning, "not bold"))
        for keys, meaning in HELP
    ]
