"""A person who opens a task in the console sees that its call has waited for a provider before."""

from contextlib import ExitStack

import trio

from orchestrator import Machine, MemoryJournal, open_orchestrator
from orchestrator.agents import Agent
from orchestrator.models import Limiter, with_rate_limit
from orchestrator.products.server.console.topics import TaskTopic
from orchestrator.products.server.server import open_server_state
from orchestrator.products.server.state import Settings
from tests.server.kit import TOKEN
from tests.server.test_key_shares import SlowModel


async def test_a_task_that_is_opened_while_it_waits_has_a_notice() -> None:
    agent = Agent("worker", model=with_rate_limit(SlowModel(), Limiter(in_flight=1)))
    async with (
        open_orchestrator(MemoryJournal(), machine=Machine(environ={})) as orchestrator,
        open_server_state(orchestrator, {agent.name: agent}, Settings(token=TOKEN)) as state,
        trio.open_nursery() as nursery,
    ):
        for goal in ("one", "two"):
            nursery.start_soon(orchestrator.run, agent, goal)
        await trio.sleep(0.5)
        (task,) = orchestrator.read.awaited_providers()
        session = orchestrator.read.records.tasks[task].session
        journal = state.journals.first_or_none
        assert journal is not None
        with ExitStack() as stack:
            topic = TaskTopic(journal, lambda: None, session, task)
            await topic.open(stack)
            message = topic.take()

    assert message is not None
    assert message["notice"] == {"kind": "queued", "text": "waiting for slow: 1st of 1"}
