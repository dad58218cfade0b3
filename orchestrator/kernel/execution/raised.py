"""An error that ended a task: its own frames, and its traceback as the recorded text.

The frames of the orchestrator above the program's frames are removed: they say nothing about the
error, and a kept error would hold parts of the orchestrator in memory.
"""

import traceback
from types import TracebackType
from typing import Final, TypeVar

from orchestrator.agents import well_formed

OWN_PACKAGES: Final = frozenset({"contextlib", "orchestrator", "outcome", "trio"})
"""The packages whose frames come before the frames of a tool or a function."""
HEAD_CHARACTERS: Final = 2_000
TAIL_CHARACTERS: Final = 6_000

ErrorT = TypeVar("ErrorT", bound=BaseException)


def with_own_frames(exc: ErrorT) -> ErrorT:
    """Return an error with the frames from the first one of the program on."""
    return exc.with_traceback(_own_frames(exc.__traceback__))


def traceback_text(exc: BaseException) -> str:
    """Return the traceback of an error, shortened in the middle."""
    text = well_formed("".join(traceback.format_exception(exc)).rstrip())
    if len(text) <= HEAD_CHARACTERS + TAIL_CHARACTERS:
        return text
    head, tail = text[:HEAD_CHARACTERS], text[-TAIL_CHARACTERS:]
    return f"{head}\n  … {len(text) - len(head) - len(tail):,} characters …\n{tail}"


def _own_frames(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None:
        module: str = frames.tb_frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in OWN_PACKAGES:
            return frames
        frames = frames.tb_next
    return None
