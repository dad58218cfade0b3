"""A session that is not in memory is folded once for all that ask for it at the same time."""

import trio
import trio.testing

from orchestrator import Orchestrator, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel
from orchestrator.delegation import Ledger, Rules, SessionId
from orchestrator.kernel.journal.memory import MemoryJournal
from orchestrator.kernel.read_api import FoundSession


class SlowJournal(MemoryJournal):
    """A journal that folds when it is told to, and counts how often."""

    def __init__(self) -> None:
        super().__init__()
        self.folds = 0
        self.go_on = trio.Event()

    async def read_ledger(self, session: SessionId, rules: Rules) -> Ledger:
        self.folds += 1
        await self.go_on.wait()
        return await super().read_ledger(session, rules)


async def evicted_run(orchestrator: Orchestrator) -> SessionId:
    run = await orchestrator.run(Agent("a", model=ScriptedModel.always("x")), "go")
    orchestrator._engine.book.cache.evict_resting()
    return run.id


async def test_eight_that_ask_at_once_cost_one_fold() -> None:
    journal = SlowJournal()
    found: list[FoundSession] = []
    async with open_orchestrator(journal) as orchestrator:
        run = await evicted_run(orchestrator)

        async def ask() -> None:
            found.append(await orchestrator.read.session(run))

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            journal.go_on.set()

    assert journal.folds == 1
    assert {it.session.id for it in found} == {run}
    assert len(found) == 8


async def test_a_cancelled_first_reader_does_not_cancel_the_others() -> None:
    journal = SlowJournal()
    async with open_orchestrator(journal) as orchestrator:
        run = await evicted_run(orchestrator)
        first = trio.CancelScope()
        found: list[FoundSession] = []

        async def ask(scope: trio.CancelScope) -> None:
            with scope:
                found.append(await orchestrator.read.session(run))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, first)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(ask, trio.CancelScope())
            await trio.testing.wait_all_tasks_blocked()
            first.cancel()
            await trio.testing.wait_all_tasks_blocked()
            journal.go_on.set()

    assert len(found) == 1
    assert journal.folds == 2
