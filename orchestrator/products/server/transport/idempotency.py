"""Idempotency keys: a repeated request finds the session that the first one opened.

A request that failed through no fault of its own is made again: its client had hung up, the server
stopped, or the provider asked to come back later.
"""

from collections.abc import Callable, Iterable
from itertools import count
from typing import Final

from orchestrator.agents import Failure, MessageId, new_message_id
from orchestrator.delegation import Cause, SessionId, SessionRecord
from orchestrator.ports.sessions import is_over
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.request_state import RequestState
from orchestrator.products.server.session_status import last_outcome_of
from orchestrator.products.server.transport.errors import HttpError

_LEFT: Final = frozenset({Cause.CALLER_GONE, Cause.SHUTDOWN, Cause.PROCESS_DIED})
_LATER: Final = frozenset(
    kind.value for kind in Failure if kind.is_transient or kind is Failure.QUOTA
)


def session_exists(call: ApiCall, id_: SessionId | None) -> bool:
    """Return whether the session of an idempotency key exists."""
    return id_ is not None and id_ in call.journal.read.session_ids


async def session_for_key(call: ApiCall, id_: SessionId | None) -> SessionRecord:
    """Return the session that an earlier request with the same key opened."""
    session = await call.journal.door.find(str(id_))
    if session.state(RequestState).fingerprint != call.ids.fingerprint:
        raise key_reused()
    return session


def no_others(session: SessionRecord) -> Iterable[SessionId]:
    del session
    return ()


async def find_attempt(
    call: ApiCall, others: Callable[[SessionRecord], Iterable[SessionId]] = no_others
) -> tuple[SessionRecord | None, SessionId | None]:
    """Return the session of the request's key; or None and the id to open, without a checkpoint."""
    for attempt in count():
        id_ = call.ids.new_session(call.journal.name, attempt)
        if not session_exists(call, id_):
            return None, id_  # noqa: ASYNC910 (it does not wait)
        first = await session_for_key(call, id_)
        door = call.journal.door
        sessions = [first, *[await door.find(it) for it in others(first)]]
        for session in sessions:
            await door.wait_unless_shared(session)
        if not any(map(_came_to_nothing, sessions)):
            return first, id_
    raise AssertionError("there are always more attempts")


def _came_to_nothing(session: SessionRecord) -> bool:
    if not is_over(session):
        return False
    outcome = last_outcome_of(session)
    if outcome is None or outcome.succeeded:
        return False
    return outcome.cause in _LEFT or outcome.kind in _LATER


def message_id(call: ApiCall, earlier: Iterable[MessageId]) -> MessageId:
    """Return the id of a request's message; refuse another body with the key of `earlier` ones."""
    key = call.ids.from_key("m_")
    if key is None:
        return new_message_id()
    id_ = MessageId(f"{key}_{call.ids.fingerprint[:8]}")
    if any(it.startswith(key) and it != id_ for it in earlier):
        raise key_reused()
    return id_


def key_reused() -> HttpError:
    return HttpError(
        422,
        "this Idempotency-Key was sent before with another body; send another key",
        code="idempotency_key_reused",
    )
