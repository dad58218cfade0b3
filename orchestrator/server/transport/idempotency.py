"""Idempotency keys: a request that is sent again finds what the first one made."""

from collections.abc import Iterable
from typing import Final

from agents import MessageId, new_message_id
from delegation import SessionId, SessionRecord
from orchestrator.server.operation import ApiCall
from orchestrator.server.transport.errors import HttpError

FINGERPRINT: Final = "request"
"""The label with the fingerprint of the request that opened a session."""


def session_exists(call: ApiCall, id_: SessionId | None) -> bool:
    """Return whether the session of a key exists already."""
    return id_ is not None and id_ in call.journal.read.session_ids


async def session_for_key(call: ApiCall, id_: SessionId | None) -> SessionRecord:
    """Return the session that a request with the same key has opened."""
    session = await call.journal.door.find(str(id_))
    if session.labels.get(FINGERPRINT) != call.fingerprint:
        raise key_reused()
    return session


def message_id(call: ApiCall, earlier: Iterable[MessageId]) -> MessageId:
    """Return the id of a request's message: the same for the same key and body.

    Args:
        call: the request.
        earlier: the ids of earlier messages.
    """
    key = call.id_from_key("m_")
    if key is None:
        return new_message_id()
    id_ = MessageId(f"{key}_{call.fingerprint[:8]}")
    if any(it.startswith(key) and it != id_ for it in earlier):
        raise key_reused()
    return id_


def key_reused() -> HttpError:
    return HttpError(
        422,
        "this Idempotency-Key was sent before with another body; send another key",
        code="idempotency_key_reused",
    )
