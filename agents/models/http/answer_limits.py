"""Limits of one answer of a provider: a longer answer is malformed, and is not read to its end."""

import re
from typing import Final

import attrs

from orchestrator.agents.models.http.answer_errors import AnswerTooLongError

LINES_PER_EVENT: Final = 4
"""An event has two lines or three; comments have one each."""
CHUNKS_PER_EVENT: Final = 2
"""Most servers send an event in one chunk, and a chunk of one byte costs as much."""
VALUES_PER_DOCUMENT: Final = 50_000
"""How many values one JSON document may hold: a small text can stand for a million objects."""
SMALL_DOCUMENT: Final = 64 * 2**10

# Never fails and never backtracks, so it is linear, also in a string that does not end.
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


@attrs.frozen(kw_only=True)
class AnswerLimits:
    """How much a provider may send for one answer.

    The longest answers of today's models have about 130,000 tokens: less than a megabyte of
    text, in as many events, with some forty megabytes of JSON around them.
    """

    bytes: int = 64 * 2**20
    """Of a stream, as sent. Nothing is ever decompressed."""
    document_bytes: int = 4 * 2**20
    """Of one event, or of an answer that is not streamed: each is parsed in one step."""
    events: int = 200_000
    characters: int = 2 * 2**20
    """Of text, reasoning and arguments together."""
    calls: int = 1_000
    seconds: float = 3_600.0
    """From the request to the end of the answer."""


def require_few_values(document: bytes) -> None:
    """Refuse a JSON document that would become too many objects."""
    if len(document) <= SMALL_DOCUMENT:
        return
    # Counted in strings too at first, which is much faster and almost always enough.
    if _separators(document) <= VALUES_PER_DOCUMENT:
        return
    if _separators(_STRING.sub(b"", document)) > VALUES_PER_DOCUMENT:
        raise AnswerTooLongError(f"{VALUES_PER_DOCUMENT} values in one JSON document")


def _separators(document: bytes) -> int:
    return document.count(b",") + document.count(b"[") + document.count(b"{")
