"""Regular expressions that are compiled when they are first used.

Compiling takes up to a millisecond each, and most programs use few of them.
"""

import re
from typing import Any, Final, cast

_METHODS: Final = ("finditer", "fullmatch", "match", "search", "sub")


class _LazyPattern:
    __slots__ = ("_flags", "_text", *_METHODS)

    def __init__(self, text: str, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        # Called once: from then on the methods are in their slots.
        pattern = re.compile(self._text, self._flags)
        for method in _METHODS:
            setattr(self, method, getattr(pattern, method))
        return getattr(pattern, name)


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern with the methods that search, match and replace."""
    return cast("re.Pattern[str]", _LazyPattern(text, flags))
