"""What an Idempotency-Key has made before: the same again is done once."""

from collections.abc import Iterable
from typing import Final

from agents import MessageId, new_message_id
from delegation import SessionId, SessionRecord
from orchestrator.server.operation import ApiCall
from orchestrator.server.transport.errors import HttpError

FINGERPRINT: Final = "request"
"""The label of a session that tells what was sent to make it."""


def session_exists(call: ApiCall, id_: SessionId | None) -> bool:
    """Tell whether a session of this id was made before."""
    known = call.server.book.ledger.all_sessions
    return id_ is not None and id_ in known


async def session_for_key(call: ApiCall, id_: SessionId | None) -> SessionRecord:
    """Return the session that a request with the same key has made."""
    session = await call.server.door.find(str(id_))
    if session.labels.get(FINGERPRINT) != call.fingerprint:
        raise key_reused()
    return session


def message_id(call: ApiCall, earlier: Iterable[MessageId]) -> MessageId:
    """Return the id of what is said with a request: the same for the same key and body.

    Args:
        call: the request.
        said: what was said before, by its ids.
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
