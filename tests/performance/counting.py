"""Exact counts of calls: how often a piece of work calls each function, in Python and in C.

The counts are equal on every machine with the same Python and the same libraries, however busy it
is. The resumption of a coroutine counts as a call of it.
"""

import cProfile
import gc
import re
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Final

import attrs
import trio

ROOT: Final = Path(__file__).resolve().parents[2]
_OURS: Final = ("agents/", "delegation/", "orchestrator/", "tests/")
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


@attrs.frozen
class Calls:
    """The calls of one piece of work, by the names of the functions."""

    python: Counter[str]
    c: Counter[str]

    @property
    def sums(self) -> dict[str, float]:
        return {"python": self.python.total(), "c": self.c.total()}

    def each_of(self, times: int, *, beyond: "Calls | None" = None) -> "Calls":
        """Return the calls of one repetition, without the calls of a smaller piece of work."""
        if beyond is None:
            beyond = Calls(Counter(), Counter())
        return Calls(_divided(self.python, beyond.python, times), _divided(self.c, beyond.c, times))


def _divided(larger: Counter[str], smaller: Counter[str], times: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for name in larger.keys() | smaller.keys():
        if count := larger[name] - smaller[name]:
            # `Counter` declares integers, and adds any numbers.
            counts[name] = count / times  # type: ignore[assignment]
    return counts


def fewest(measured: Iterable[Calls]) -> Calls:
    """Return the measurement with the fewest calls: a thread that is late only adds to them."""
    return min(measured, key=lambda it: it.python.total() + it.c.total())


@contextmanager
def counting(into: list[Calls]) -> Generator[None]:
    """Count the calls of this thread, and append them to a list."""
    # Trio reverses the order of tasks at random: the same seed gives the same order each time.
    trio._core._run._r.seed(7)
    gc.disable()
    profile = cProfile.Profile(subcalls=False)
    profile.enable()
    try:
        yield
    finally:
        profile.disable()
        gc.enable()
        into.append(_calls_of(profile))


def _calls_of(profile: cProfile.Profile) -> Calls:
    python: Counter[str] = Counter()
    c: Counter[str] = Counter()
    for entry in profile.getstats():
        code: CodeType | str = entry.code
        if isinstance(code, str):
            c[_ADDRESS.sub("", code)] += entry.callcount
        else:
            python[_name_of(code)] += entry.callcount
    return Calls(python, c)


def _name_of(code: CodeType) -> str:
    file = Path(code.co_filename)
    if file.is_relative_to(ROOT) and str(file.relative_to(ROOT)).startswith(_OURS):
        where = str(file.relative_to(ROOT))
    else:
        where = f"{file.parent.name}/{file.name}"
    return f"{where}:{code.co_qualname}"
