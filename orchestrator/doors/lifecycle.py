"""Ending a session for good."""

from delegation import SessionRecord
from delegation.events import SessionClosed
from orchestrator.services import Services


async def close_for_good(
    services: Services, session: SessionRecord, *, deleted: bool = False
) -> None:
    """Cancel all that a session does, drop what it was not told, and let the journal say so.

    Args:
        house: where it is.
        session: which.
        deleted: it is shown to nobody any more.
    """
    if not session.closed or (deleted and not session.deleted):
        services.book.post(
            SessionClosed(session.id, tuple(session.mail), deleted=deleted)
        )
    services.turns.disconnect(session.id)
    await services.delegator.cancel([session.root.id, *session.unsettled_detached])
    await services.background.end_commands_of(session.root.id, "its session was closed")
