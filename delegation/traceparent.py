"""The header `traceparent` of W3C Trace Context: the trace and the span of a caller."""

import re
from typing import Final

_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED: Final = 1


def read_traceparent(text: str) -> tuple[int, int] | None:
    """Return the ids of a trace and a span; None if a text is malformed.

    A span that its backend does not record gives None, too: it cannot be the parent of another.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    version, trace, span, flags, rest = found.groups()
    # Later versions may add fields. Version ff is none.
    if version == "ff" or (version == "00" and rest is not None):
        return None
    ids = int(trace, 16), int(span, 16)
    return ids if all(ids) and int(flags, 16) & _SAMPLED else None


def write_traceparent(trace: int, span: int) -> str:
    """Return the header that names a span."""
    return f"00-{trace:032x}-{span:016x}-01"


def checked_traceparent(text: object) -> str:
    """Return the header of a request from outside; "" if it is malformed."""
    ids = read_traceparent(text) if isinstance(text, str) else None
    return "" if ids is None else write_traceparent(*ids)
