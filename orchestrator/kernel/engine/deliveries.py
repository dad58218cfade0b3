"""The delivery of replies to the doors of sessions, with retries.

Replies are delivered in the order of their turns. A reply that a door fails to take stays in the
journal, for the next door.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from orchestrator.agents.current_span import CURRENT_SPAN
from orchestrator.delegation import Reply, SessionId, SessionRecord
from orchestrator.delegation.events import DeliveryFailed, ReplyDelivered
from orchestrator.kernel.doors.door import Door
from orchestrator.kernel.errors import error_text
from orchestrator.kernel.journal.bookkeeper import Bookkeeper

if TYPE_CHECKING:
    from orchestrator.kernel.step_spans import StepSpans

MAX_ATTEMPTS: Final = 8
MAX_PAUSE_SECONDS: Final = 60
"""The longest pause between two attempts."""


class Deliveries:
    """The doors of all sessions, and the replies that they have not taken."""

    def __init__(self, book: Bookkeeper, spans: "StepSpans | None" = None) -> None:
        self._book = book
        self._spans = spans
        self._doors: dict[SessionId, Door] = {}
        self._last_turn: dict[SessionId, int] = {}
        """The last turn whose reply the door of a session has got."""
        self._pauses: dict[SessionId, trio.CancelScope] = {}
        """The pauses before another attempt."""
        self._delivering: set[SessionId] = set()

    def attach(self, session: SessionId, door: Door) -> None:
        """Deliver the replies of a session to this door from now on."""
        self._doors[session] = door
        self._last_turn[session] = 0
        self._end_pause(session)

    def detach(self, session: SessionId) -> None:
        del self._doors[session]
        del self._last_turn[session]
        self._end_pause(session)

    def _end_pause(self, session: SessionId) -> None:
        if session in self._pauses:
            self._pauses[session].cancel(reason="the door has changed")

    def disconnect_all(self) -> None:
        """Release all callers that wait at a door: no reply will come."""
        for door in self._doors.values():
            door.disconnect()

    def disconnect(self, session: SessionId) -> None:
        """Release all callers that wait at the door of one session."""
        if session in self._doors:
            self._doors[session].disconnect()

    async def deliver(self, session: SessionRecord) -> None:
        """Deliver the replies of a session that its door has not got."""
        await trio.lowlevel.checkpoint()
        if session.id in self._delivering:
            return  # that delivery takes the newest reply, too
        self._delivering.add(session.id)
        try:
            while (reply := self._next_reply(session.id)) is not None:
                if self._spans is not None:
                    CURRENT_SPAN.set(partial(self._spans.reply_span, reply))
                await self._deliver_reply(reply)
                self._book.wakeups.wake_session(session.id)
        finally:
            self._delivering.remove(session.id)
            if self._spans is not None:
                CURRENT_SPAN.set(None)

    def _next_reply(self, session: SessionId) -> Reply | None:
        if session not in self._doors or self._book.closed or self._book.is_broken:
            return None
        # Looked up each time: between two doors the session may have been evicted and read back.
        undelivered = self._book.ledger.sessions[session].undelivered
        # Not by a search: a client may leave any number of replies untaken.
        first = max(self._last_turn[session] + 1, next(iter(undelivered), 0))
        turns = range(first, next(reversed(undelivered), 0) + 1)
        return next((undelivered[it] for it in turns if it in undelivered), None)

    async def _deliver_reply(self, reply: Reply) -> None:
        session = reply.session
        # A reply that a crash could still undo is not delivered.
        await self._book.wait_durable()
        if (door := self._doors.get(session)) is None:
            return
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                await door.deliver(reply)
                break
            except Exception as exc:  # noqa: BLE001 (a door is code of others)
                if self._book.closed or self._book.is_broken:
                    return
                if self._doors.get(session) is not door:
                    return
                error = f"{type(exc).__name__}: {error_text(exc)}"
                if self._is_undelivered(reply):
                    failed = DeliveryFailed(session, reply.turn, attempt, error)
                    self._book.post(failed)
            if attempt < MAX_ATTEMPTS:
                await self._pause(session, min(MAX_PAUSE_SECONDS, 2 ** (attempt - 1)))
            if self._doors.get(session) is not door:
                return
        if self._doors.get(session) is door:
            self._last_turn[session] = reply.turn

    async def _pause(self, session: SessionId, seconds: float) -> None:
        """Wait before the next attempt, or until the session has another door."""
        try:
            with trio.move_on_after(seconds) as self._pauses[session]:
                await trio.sleep_forever()
        finally:
            del self._pauses[session]

    def has_delivered_all(self, session: SessionRecord) -> bool:
        """Return whether the door of a session has got every reply."""
        # They are in the order of their turns.
        newest = next(reversed(session.undelivered), 0)
        return newest <= self._last_turn[session.id]

    def mark_delivered(self, reply: Reply) -> bool:
        """Post that a client has received a reply, and return whether it is the first one."""
        is_first = self._is_undelivered(reply)
        if is_first:
            self._book.post(ReplyDelivered(reply.session, reply.turn))
        return is_first

    def _is_undelivered(self, reply: Reply) -> bool:
        # Without a door the session may be evicted; then the next door gets the reply again.
        session = self._book.ledger.sessions.get(reply.session)
        return session is not None and reply.turn in session.undelivered
