"""A budget that several runs share is kept in one journal, and refused in any other."""

from pathlib import Path

import pytest

from orchestrator import MemoryJournal, SharedBudgetError, budget, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, ToolCall, tool
from orchestrator.delegation import Ending
from orchestrator.delegation.events import SessionOpened
from tests.kit import facts

pytestmark = pytest.mark.realtime


def talker() -> Agent:
    return Agent("talker", model=ScriptedModel.always("yes"))


@pytest.mark.memory_only
async def test_a_second_journal_would_be_a_second_budget(tmp_path: Path) -> None:
    """Each journal would grant the whole budget, so the second run does not begin."""
    file, other = tmp_path / "journal.db", MemoryJournal()
    async with open_orchestrator(file) as first, open_orchestrator(other) as second:
        with budget(calls=2, name="of the day"):
            await first.run(talker(), "go")

            with pytest.raises(
                SharedBudgetError, match=r"of the day.*journal\.db.*a journal in memory"
            ):
                await second.run(talker(), "go")
            with pytest.raises(SharedBudgetError):
                async with second.open_session(talker()):
                    pass
            await first.run(talker(), "go")
            over = await first.run(talker(), "go")
        assert facts(other.entries, SessionOpened) == []
        await second.run(talker(), "go")

    assert over.outcome.ending is Ending.OVER_BUDGET


async def test_the_next_process_of_the_same_journal_goes_on_with_the_budget(tmp_path: Path) -> None:
    file = tmp_path / "journal.db"
    with budget(calls=1):
        async with open_orchestrator(file) as first:
            await first.run(talker(), "go")
        async with open_orchestrator(file) as second:
            over = await second.run(talker(), "go")

    assert over.outcome.ending is Ending.OVER_BUDGET


async def test_a_tool_cannot_escape_a_budget_in_a_journal_of_its_own() -> None:
    inner = MemoryJournal()

    @tool
    async def escape() -> str:
        """Run an agent elsewhere."""
        async with open_orchestrator(inner) as another:
            return (await another.run(talker(), "go")).output

    agent = Agent("outer", model=ScriptedModel([ToolCall("escape", {}), "done"]), tools=[escape])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        with budget(calls=9):
            run = await orchestrator.run(agent, "go")

    assert run.outcome.ending is Ending.FAILED
    assert facts(inner.entries, SessionOpened) == []
