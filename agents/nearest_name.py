"""The known name nearest to a mistyped one."""

import difflib
from collections.abc import Iterable


def nearest_name(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name that looks most like this one, if any does; `cutoff` is at most 1."""
    by_case = {it.casefold(): it for it in known}
    near = difflib.get_close_matches(name.casefold(), by_case, n=1, cutoff=cutoff)
    return by_case[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence about the nearest of the known names, or about all of them."""
    names = sorted(known, key=str.casefold)
    near = nearest_name(name, names)
    return f"there are: {', '.join(names)}" if near is None else f"did you mean {near!r}?"
