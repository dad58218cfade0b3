"""Spans as values, with ids that are hashes of the ids in the facts.

The same facts always give the same spans, so a backend that receives a span twice stores it once.
"""

from hashlib import blake2b
from typing import Literal, TypeAlias

import msgspec

from orchestrator.delegation import SessionId, TaskId

Value: TypeAlias = str | int | float | bool | tuple[str, ...]
Attributes: TypeAlias = dict[str, Value]
SpanKind: TypeAlias = Literal["internal", "client"]


class SpanIds(msgspec.Struct, frozen=True, gc=False):
    """The ids of a span and of its trace."""

    trace: int
    span: int


class SpanEvent(msgspec.Struct, frozen=True):
    """A moment within a span."""

    at: float
    name: str
    attributes: Attributes


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A span that has ended."""

    ids: SpanIds
    parent: int
    """The id of the span around it; 0 if it is the root of its trace."""
    name: str
    kind: SpanKind
    session: SessionId
    seq: int
    """The number of the fact that ended it; 0 if none has."""
    start: float
    """Seconds since the epoch."""
    end: float
    attributes: Attributes
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanIds, ...] = ()
    failed: bool = False
    error: str = ""
    """A sentence for people, if it has failed."""


def task_span(task: TaskId) -> int:
    """Return the id of the span of a task."""
    return hashed_id("task", task)


def task_trace(task: TaskId) -> SpanIds:
    """Return the ids of the span of a detached task."""
    return SpanIds(hashed_id("trace", task, size=16), task_span(task))


def turn_trace(session: SessionId, turn: int) -> SpanIds:
    """Return the ids of the span of a turn."""
    key = f"{session}/{turn}"
    return SpanIds(hashed_id("trace", key, size=16), hashed_id("task", key))


def hashed_id(*parts: str, size: int = 8) -> int:
    """Return an id of some bytes, made from texts."""
    # A number that is zero would mean that there is none.
    return int.from_bytes(blake2b("\0".join(parts).encode(), digest_size=size).digest()) or 1
