"""For how long an orchestrator keeps the agent of a session: `doors/lifecycle.py`."""

import gc
import weakref
from typing import Any

import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, ToolMessage, Transcript
from orchestrator.delegation import DeliveryCapability, Ending, Reply
from orchestrator.delegation.events import DoorClosed, DoorOpened, SessionOpened, TaskSettled
from orchestrator.kernel.doors.inbound import InboundRequest, goal_message, post_message
from orchestrator.kernel.doors.lifecycle import (
    close_session,
    connect_door,
    disconnect_door,
    open_new_session,
    reopen_session,
)
from orchestrator.kernel.sessions import Sessions
from tests.kit import facts, hand_on, worker


def delegating(name: str, seconds: float, tasks: int = 1) -> Agent:
    """Return an agent that detaches tasks for each message, and repeats their notices."""

    def answer(transcript: Transcript) -> Any:
        last = transcript[-1]
        if isinstance(last, ToolMessage):
            return "detached"
        if last.text.startswith("A task that you delegated"):
            return "settled"
        return [hand_on(f"task {n}", background=True) for n in range(tasks)]

    return Agent(
        name, model=ScriptedModel.always(answer), delegates=[worker(seconds=seconds, says="found")]
    )


def alive(agents: list[weakref.ref[Agent]]) -> int:
    gc.collect()
    return sum(agent() is not None for agent in agents)


async def test_the_agent_of_a_closed_session_is_released() -> None:
    agents: list[weakref.ref[Agent]] = []
    async with open_orchestrator(":memory:") as orchestrator:
        for number in range(100):
            agent = Agent(f"agent{number}", model=ScriptedModel(["hello"]))
            agents.append(weakref.ref(agent))
            async with orchestrator.open_session(agent) as session:
                await session.ask("hi")
            del agent
        assert alive(agents) == 0


async def test_the_agent_of_an_ended_run_is_released() -> None:
    agents: list[weakref.ref[Agent]] = []
    async with open_orchestrator(":memory:") as orchestrator:
        for number in range(10):
            agent = Agent(f"agent{number}", model=ScriptedModel(["hello"]))
            agents.append(weakref.ref(agent))
            await orchestrator.run(agent, "hi")
            del agent
        assert alive(agents) == 0


async def test_an_agent_is_kept_until_the_tasks_that_outlive_the_door_have_settled() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        agent = delegating("lead", seconds=60, tasks=2)
        kept = [weakref.ref(agent)]
        async with orchestrator.open_session(agent) as session:
            await session.ask("look it up")
        del agent
        assert alive(kept) == 1
        await trio.sleep(61)
        assert alive(kept) == 0

    settled = facts(journal.entries, TaskSettled)
    assert [fact.outcome.ending for fact in settled] == [Ending.SUCCEEDED] * 2


async def test_a_session_that_is_opened_again_meanwhile_keeps_its_agent() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        agent = delegating("lead", seconds=60)
        async with orchestrator.open_session(agent) as session:
            await session.ask("look it up")
        async with orchestrator.open_session(agent, session=session.id) as again:
            assert (await again.replies.receive()).text == "settled"
            assert (await again.ask("once more")).text == "detached"


class ListDoor:
    """A door as a stranger would write it."""

    capability = DeliveryCapability.PUSH

    def __init__(self, sessions: Sessions) -> None:
        self._deliveries = sessions.deliveries
        self.replies, self._received = trio.open_memory_channel[Reply](10)

    async def deliver(self, reply: Reply) -> None:
        await self.replies.send(reply)
        self._deliveries.mark_delivered(reply)

    def disconnect(self) -> None:
        self.replies.close()

    async def receive(self) -> str:
        return (await self._received.receive()).text


async def test_a_new_door_needs_only_the_lifecycle_functions() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        sessions = orchestrator.sessions
        agent = delegating("lead", seconds=60)
        request = InboundRequest(agent=agent, message=goal_message(agent, "look it up"))

        door = ListDoor(sessions)
        session = open_new_session(sessions, agent)
        connect_door(sessions, session, agent, door)
        post_message(sessions, request, session.id)
        assert await door.receive() == "detached"
        disconnect_door(sessions, session, door)

        await trio.sleep(61)
        door = ListDoor(sessions)
        session = await reopen_session(sessions, agent, session.id)
        connect_door(sessions, session, agent, door)
        await sessions.deliveries.deliver(session)
        assert await door.receive() == "settled"
        disconnect_door(sessions, session, door)
        await close_session(sessions, session)

    kinds = [type(entry.event) for entry in journal.entries]
    assert [kind for kind in kinds if kind in {SessionOpened, DoorOpened, DoorClosed}] == [
        SessionOpened,
        *[DoorOpened, DoorClosed] * 2,
    ]
