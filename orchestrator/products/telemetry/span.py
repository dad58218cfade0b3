"""Spans as values, with ids that are hashes of the ids in the facts.

The same facts always give the same spans, so a backend that receives a span twice stores it once.
"""

from hashlib import blake2b
from typing import Literal, TypeAlias

import msgspec

from orchestrator.agents import CallId
from orchestrator.delegation import SessionId, TaskId
from orchestrator.delegation.traceparent import read_traceparent

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


def turn_ids(session: SessionId, turn: int, caller: str | msgspec.UnsetType) -> tuple[SpanIds, int]:
    """Return the ids of the span of a turn, and its parent: the span of the caller, or 0."""
    key = turn_key(session, turn)
    span = hashed_id("task", key)
    ids = None if caller is msgspec.UNSET else read_traceparent(caller)
    if ids is None:
        return SpanIds(hashed_id("trace", key, size=16), span), 0
    trace, parent = ids
    return SpanIds(trace, span), parent


def turn_key(session: SessionId, turn: int) -> str:
    """Return the text that the ids of a turn's steps are hashed from; of a task it is its id."""
    return f"{session}/{turn}"


def chat_span(key: str, number: int) -> int:
    """Return the id of the span of a model call, by its number among those of its task."""
    return hashed_id("chat", key, str(number))


def call_span(key: str, chats: int, call: CallId) -> int:
    """Return the id of the span of a tool call, by the number of the answer that made it.

    A turn that begins afresh may give a later call the same id.
    """
    return hashed_id("call", key, str(chats), call)


def hashed_id(*parts: str, size: int = 8) -> int:
    """Return an id of some bytes, made from texts."""
    # A number that is zero would mean that there is none.
    return int.from_bytes(blake2b("\0".join(parts).encode(), digest_size=size).digest()) or 1
