"""Ending a session for good."""

from delegation import SessionRecord
from delegation.events import SessionClosed
from orchestrator.services import House


async def close_for_good(
    house: House, session: SessionRecord, *, deleted: bool = False
) -> None:
    """Cancel all that a session does, drop what it was not told, and let the journal say so.

    Args:
        house: where it is.
        session: which.
        deleted: it is shown to nobody any more.
    """
    if not session.closed or (deleted and not session.deleted):
        house.book.post(SessionClosed(session.id, tuple(session.mail), deleted=deleted))
    house.turns.hang_up_on(session.id)
    await house.delegator.cancel([session.root.id, *session.outstanding])
    await house.background.end_of(session.root.id, "its session was closed")
