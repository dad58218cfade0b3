"""A session's turns: begun or resumed, seen through, and their replies handed to the door."""

from typing import Final

import trio

from delegation import (
    Cause,
    DeliveryCapability,
    Ending,
    Origin,
    Outcome,
    Reply,
    SessionId,
    SessionRecord,
    readable_characters,
)
from delegation.events import (
    DeliveryFailed,
    ReplyDelivered,
    TurnResumed,
    TurnStarted,
)
from orchestrator.doors.door import Door
from orchestrator.engine.delegator import OrchestratorDelegator
from orchestrator.engine.task_runner import TaskRunner
from orchestrator.errors import error_text
from orchestrator.execution.agent_registry import AgentRegistry
from orchestrator.execution.outcomes import LOST
from orchestrator.journal.bookkeeper import Bookkeeper

ATTEMPTS: Final = 8
"""How often a door is asked to hand over one reply."""
LONGEST_WAIT: Final = 60
"""How many seconds pass between two attempts at most."""


class Turns:
    """Takes the turns of all sessions, one at a time for each."""

    def __init__(
        self,
        book: Bookkeeper,
        registry: AgentRegistry,
        runner: TaskRunner,
        delegator: OrchestratorDelegator,
    ) -> None:
        self._book = book
        self._registry = registry
        self._runner = runner
        self._delegator = delegator
        self._doors: dict[SessionId, Door] = {}
        self._last_handed_turn: dict[SessionId, int] = {}
        """The last turn whose reply the door of a session has got."""
        self._pauses: dict[SessionId, trio.CancelScope] = {}
        """Who waits before a door is asked again."""
        self._delivering: set[SessionId] = set()
        """The sessions whose replies somebody is handing over now."""

    def attach(self, session: SessionId, door: Door) -> None:
        """Have the replies of a session handed to this door from now on."""
        self._doors[session] = door
        self._last_handed_turn[session] = 0
        self._end_pause(session)

    def detach(self, session: SessionId) -> None:
        del self._doors[session]
        del self._last_handed_turn[session]
        self._end_pause(session)

    def _end_pause(self, session: SessionId) -> None:
        if session in self._pauses:
            self._pauses[session].cancel(reason="the door is another one")

    def disconnect_all(self) -> None:
        """Let go of everybody who waits at a door: nothing will be said any more."""
        for door in self._doors.values():
            door.disconnect()

    def disconnect(self, session: SessionId) -> None:
        """Let go of everybody who waits at the door of one session."""
        if session in self._doors:
            self._doors[session].disconnect()

    def begin(self, session: SessionRecord, capability: DeliveryCapability) -> bool:
        """Post that a session takes a turn: the one that was interrupted, or a new one.

        A new turn reads all the mail there is, with the very fact that starts it. Returns
        whether there is a turn to take: one that was interrupted may be lost.
        """
        if session.turn is not None:
            return self._resume(session, session.turn.number, capability)
        agent = self._registry.agent_of(session.root)
        self._book.post(
            TurnStarted(
                session.id,
                session.turns + 1,
                capability,
                tuple(session.mail),
                readable_characters(agent, session.root.transcript),
            )
        )
        return True

    def _resume(
        self, session: SessionRecord, turn: int, capability: DeliveryCapability
    ) -> bool:
        on_restart = self._registry.on_restart(session.root)
        settlement = self._runner.settlement
        if on_restart == "lose":
            lost = Outcome(Ending.LOST, error=LOST, cause=Cause.PROCESS_DIED)
            settlement.settle(session.root, lost)
            return False
        if on_restart == "restart":
            settlement.settle_descendants(session.root, Ending.LOST)
        afresh = on_restart == "restart"
        self._book.post(TurnResumed(session.id, turn, capability, afresh))
        return True

    async def take(self, session: SessionRecord) -> Outcome:
        """Take the turn that has begun."""
        turn = session.turn
        assert turn is not None, "a turn is posted before it is taken"
        origin = Origin(
            session=session.id, turn=turn.number, capability=turn.capability
        )
        outcome = await self._runner.run(session.root, origin, self._delegator)
        # Nobody is told what a crash could still make untrue.
        await self._book.wait_durable()
        return outcome

    async def take_and_reply(self, session: SessionRecord) -> None:
        await self.take(session)
        await self.deliver(session)

    async def deliver(self, session: SessionRecord) -> None:
        """Hand the door what the session has said and the door has not got."""
        await trio.lowlevel.checkpoint()
        if session.id in self._delivering:
            return  # whoever is at it takes the newest, too
        self._delivering.add(session.id)
        try:
            while (reply := self._next_reply(session)) is not None:
                await self._deliver_reply(session, reply)
                self._book.wakeups.wake_all()
        finally:
            self._delivering.remove(session.id)

    def _next_reply(self, session: SessionRecord) -> Reply | None:
        for reply in session.undelivered.values():
            if (
                session.id in self._doors
                and reply.turn > self._last_handed_turn[session.id]
            ):
                return reply
        return None

    async def _deliver_reply(self, session: SessionRecord, reply: Reply) -> None:
        """Hand one reply to the door, again and again if it fails.

        What it cannot deliver stays in the journal, and is for the next door.
        """
        door = self._doors[session.id]
        await trio.lowlevel.checkpoint()
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await door.deliver(reply)
                break
            except Exception as exc:  # noqa: BLE001 (a door is foreign ground)
                if self._book.closed or self._book.is_broken:
                    return  # it stays where it is, and is for the next time
                if self._doors.get(session.id) is not door:
                    return
                error = f"{type(exc).__name__}: {error_text(exc)}"
                if reply.turn in session.undelivered:
                    failed = DeliveryFailed(session.id, reply.turn, attempt, error)
                    self._book.post(failed)
            if attempt < ATTEMPTS:
                await self._pause(session.id, min(LONGEST_WAIT, 2 ** (attempt - 1)))
            if self._doors.get(session.id) is not door:
                return
        if self._doors.get(session.id) is door:
            self._last_handed_turn[session.id] = reply.turn

    async def _pause(self, session: SessionId, seconds: float) -> None:
        """Wait before the next attempt, unless another door is there before that."""
        try:
            with trio.move_on_after(seconds) as self._pauses[session]:
                await trio.sleep_forever()
        finally:
            del self._pauses[session]

    def has_delivered_all(self, session: SessionRecord) -> bool:
        """Tell whether the door has got everything that the session has said."""
        return all(
            turn <= self._last_handed_turn[session.id] for turn in session.undelivered
        )

    def mark_delivered(self, reply: Reply) -> bool:
        """Post that somebody has really got a reply, and tell whether they are the first."""
        is_first = reply.turn in self._book.ledger.sessions[reply.session].undelivered
        if is_first:
            self._book.post(ReplyDelivered(reply.session, reply.turn))
        return is_first
