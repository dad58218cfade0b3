"""A session's turns: begun or resumed, seen through, and their replies handed to the door."""

import trio

from delegation import (
    DeliveryCapability,
    Ending,
    Origin,
    Outcome,
    Reply,
    SessionId,
    SessionRecord,
    root_of,
)
from delegation.events import ReplyDelivered, TurnEnded, TurnResumed, TurnStarted
from orchestrator.acting import LOST, Acting
from orchestrator.bookkeeper import Bookkeeper
from orchestrator.delegator import OrchestratorDelegator
from orchestrator.doors.door import Door


class Turns:
    """Takes the turns of all sessions, one at a time for each."""

    def __init__(
        self, book: Bookkeeper, acting: Acting, delegator: OrchestratorDelegator
    ) -> None:
        self._book = book
        self._acting = acting
        self._delegator = delegator
        self._doors: dict[SessionId, Door] = {}
        self._handed: dict[SessionId, int] = {}
        """The last turn whose reply the door of a session has got."""

    def attach(self, session: SessionId, door: Door) -> None:
        """Have the replies of a session handed to this door from now on."""
        self._doors[session] = door
        self._handed[session] = 0

    def detach(self, session: SessionId) -> None:
        del self._doors[session]
        del self._handed[session]

    def hang_up(self) -> None:
        """Let go of everybody who waits at a door: nothing will be said any more."""
        for door in self._doors.values():
            door.hang_up()

    def begin(self, session: SessionRecord, capability: DeliveryCapability) -> bool:
        """Post that a session takes a turn: the one that was interrupted, or a new one.

        A new turn reads all the mail there is, with the very fact that starts it. Returns
        whether there is a turn to take: one that was interrupted may be lost.
        """
        if session.turn is not None:
            return self._resume(session, session.turn.number, capability)
        mail = tuple(session.mail)
        self._book.post(TurnStarted(session.id, session.turns + 1, capability, mail))
        return True

    def _resume(
        self, session: SessionRecord, turn: int, capability: DeliveryCapability
    ) -> bool:
        on_restart = self._acting.on_restart(session.root)
        if on_restart != "resume":
            self._acting.end_below(session.root.id, Ending.LOST)
        if on_restart == "lose":
            outcome = Outcome(Ending.LOST, error=LOST)
            self._book.post(TurnEnded(session.id, turn, outcome))
            return False
        afresh = on_restart == "restart"
        self._book.post(TurnResumed(session.id, turn, capability, afresh))
        return True

    async def take(self, session: SessionRecord) -> Outcome:
        """Take the turn that has begun."""
        turn = session.turn
        assert turn is not None, "a turn is posted before it is taken"
        outcome = await self._acting.see_through(
            root_of(session.id),
            origin=Origin(
                session=session.id, turn=turn.number, capability=turn.capability
            ),
            delegator=self._delegator,
            ended=lambda outcome: TurnEnded(session.id, turn.number, outcome),
        )
        # Nobody is told what a crash could still make untrue.
        await self._book.wait_durable()
        return outcome

    async def take_and_reply(self, session: SessionRecord) -> None:
        await self.take(session)
        await self.deliver(session)

    async def deliver(self, session: SessionRecord) -> None:
        """Hand the door what the session has said and the door has not got."""
        await trio.lowlevel.checkpoint()
        for reply in list(session.undelivered.values()):
            if session.id in self._doors and reply.turn > self._handed[session.id]:
                # Noted before the wait: whoever delivers at the same time leaves this one to us.
                self._handed[session.id] = reply.turn
                await self._doors[session.id].deliver(reply)
                self._book.stir()

    def has_handed_all(self, session: SessionRecord) -> bool:
        """Tell whether the door has got everything that the session has said."""
        return all(turn <= self._handed[session.id] for turn in session.undelivered)

    def delivered(self, reply: Reply) -> bool:
        """Post that somebody has really got a reply, and tell whether they are the first."""
        is_first = reply.turn in self._book.ledger.sessions[reply.session].undelivered
        if is_first:
            self._book.post(ReplyDelivered(reply.session, reply.turn))
        return is_first
