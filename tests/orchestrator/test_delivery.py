"""A reply is delivered until a door has taken it, or the session is closed for good."""

import pytest
import trio

from orchestrator import (
    ClosedError,
    MemoryJournal,
    Orchestrator,
    Session,
    UnknownIdError,
    open_orchestrator,
)
from orchestrator.agents import Agent, ScriptedModel
from orchestrator.delegation import DeliveryCapability, Reply
from orchestrator.delegation.events import (
    DeliveryFailed,
    ReplyDelivered,
    SessionClosed,
    TurnStarted,
)
from tests.kit import facts, hand_on, worker


class BadLine:
    """A door that fails for a while: a webhook whose server is down."""

    capability = DeliveryCapability.PUSH

    def __init__(self, orchestrator: Orchestrator, failures: float) -> None:
        self._deliveries = orchestrator.sessions.deliveries
        self._failures = failures
        self.attempts: list[float] = []
        self.got: list[Reply] = []

    async def deliver(self, reply: Reply) -> None:
        await trio.lowlevel.checkpoint()
        self.attempts.append(trio.current_time())
        if len(self.attempts) <= self._failures:
            raise OSError("the line is dead")
        self.got.append(reply)
        self._deliveries.mark_delivered(reply)

    def disconnect(self) -> None:
        """It is attached to no session."""


def behind(door: BadLine, session: Session, orchestrator: Orchestrator) -> None:
    deliveries = orchestrator.sessions.deliveries
    deliveries.detach(session.id)
    deliveries.attach(session.id, door)


def reporter(*replies: str, seconds: float = 10) -> Agent:
    model = ScriptedModel([hand_on("a", background=True), *replies])
    return Agent("lead", model=model, delegates=[worker(seconds=seconds)])


async def test_a_door_that_fails_is_asked_again_later_and_later() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(reporter("on its way", "done")) as session:
            await session.ask("go")
            door = BadLine(orchestrator, failures=3)
            behind(door, session, orchestrator)
            await session.wait_idle()

    assert [reply.text for reply in door.got] == ["done"]
    assert door.attempts == pytest.approx([10, 11, 13, 17])
    failed = facts(journal.entries, DeliveryFailed)
    assert [(it.turn, it.attempt) for it in failed] == [(2, 1), (2, 2), (2, 3)]
    assert failed[0].error == "OSError: the line is dead"
    assert len(facts(journal.entries, ReplyDelivered)) == 2


async def test_an_undelivered_reply_is_kept_for_the_next_door() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(reporter("on its way", "done")) as session:
            await session.ask("go")
            door = BadLine(orchestrator, failures=float("inf"))
            behind(door, session, orchestrator)
            await session.wait_idle()

    assert len(door.attempts) == 8
    async with open_orchestrator(MemoryJournal(journal.entries)) as orchestrator:
        agent = reporter()
        async with orchestrator.open_session(agent, session=session.id) as again:
            assert (await again.replies.receive()).text == "done"


async def test_a_new_door_does_not_wait_for_the_next_attempt_at_the_old_one() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(reporter("on its way", "done")) as session:
            await session.ask("go")
            bad = BadLine(orchestrator, failures=float("inf"))
            behind(bad, session, orchestrator)
            await trio.sleep(10 + 1 + 2 + 4 + 8 + 1)
            good = BadLine(orchestrator, failures=0)
            behind(good, session, orchestrator)
            await session.wait_idle()

            assert [reply.text for reply in good.got] == ["done"]
            assert trio.current_time() == pytest.approx(26)


async def test_replies_come_in_order_also_from_a_door_that_fails() -> None:
    model = ScriptedModel(
        [hand_on("a", background=True), hand_on("b", background=True), "ok", "1", "2"]
    )
    lead = Agent("lead", model=model, delegates=[worker(seconds=5)])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            door = BadLine(orchestrator, failures=4)
            behind(door, session, orchestrator)
            await session.wait_idle()

    assert [reply.turn for reply in door.got] == sorted(reply.turn for reply in door.got)


async def test_a_session_closed_for_good_drops_its_mail_with_a_fact() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(reporter("on its way", "never")) as session:
            await session.ask("go")
            await orchestrator.close_session(session.id)

            (child,) = session.tree.children(session.tree.root)
            assert session.tree[child].status == "cancelled"
            with pytest.raises(ClosedError, match="is closed"):
                await session.ask("are you there?")
        with pytest.raises(ClosedError, match="was closed for good"):
            async with orchestrator.open_session(reporter(), session=session.id):
                pass
        await orchestrator.close_session(session.id)  # once more changes nothing

    assert len(facts(journal.entries, SessionClosed)) == 1
    assert len(facts(journal.entries, TurnStarted)) == 1


async def test_closing_a_session_releases_its_waiting_callers() -> None:
    slow = Agent("slow", model=ScriptedModel.always("late", 100))
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(slow) as session:
            async with trio.open_nursery() as nursery:

                @nursery.start_soon
                async def ask() -> None:
                    with pytest.raises(ClosedError):
                        await session.ask("go")

                await trio.sleep(5)
                await orchestrator.close_session(session.id)
            assert trio.current_time() == pytest.approx(5)


async def test_a_session_at_rest_can_be_closed_and_an_unknown_one_cannot() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(reporter("ok", "done")) as session:
            await session.ask("go")
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.close_session(session.id)
        with pytest.raises(UnknownIdError, match="there is no session 'r_none'"):
            await orchestrator.close_session("r_none")

    assert facts(journal.entries, SessionClosed)[0].session == session.id


class SlowLine(BadLine):
    """A door that takes a reply after five seconds."""

    async def deliver(self, reply: Reply) -> None:
        self.attempts.append(trio.current_time())
        await trio.sleep(5)
        self._deliveries.mark_delivered(reply)


async def test_a_reply_that_was_under_way_at_an_abandon_is_not_sent_again() -> None:
    """No fact can say any more that it was delivered: it is for the next process."""
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(reporter("on its way", "done")) as session:
            await session.ask("go")
            door = SlowLine(orchestrator, failures=0)
            behind(door, session, orchestrator)
            await trio.sleep(12)
            await orchestrator.abandon()
            await trio.sleep(60)

    assert door.attempts == pytest.approx([10])
    assert len(facts(journal.entries, ReplyDelivered)) == 1
