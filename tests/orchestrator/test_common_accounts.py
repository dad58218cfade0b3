"""A budget with a name is one account of all journals at an address."""

from pathlib import Path

import pytest
import trio

from orchestrator import MemoryJournal, Orchestrator, SharedBudgetError, budget, open_orchestrator
from orchestrator.agents import Agent, Queued, ScriptedModel, ToolCall, allow, tool
from orchestrator.backends import journals_at
from orchestrator.cli.app import run_command
from orchestrator.delegation import Ending, Outcome
from orchestrator.delegation.amounts import NOTHING
from orchestrator.kernel.journal.accounts import Part
from orchestrator.testing import CrashingJournal, GatedModel
from tests.orchestrator.budget_trees import ignoring_crash
from tests.orchestrator.budgets_kit import Meter, lead

pytestmark = [pytest.mark.realtime, pytest.mark.memory_only]

TEAM = "b_common:team"


def talker(model: ScriptedModel | GatedModel | None = None) -> Agent:
    return Agent("talker", model=model or ScriptedModel.always("yes"))


async def ask(orchestrator: Orchestrator, agent: Agent | None = None) -> Outcome:
    return (await orchestrator.run(agent or talker(), "go")).outcome


async def parts_of(folder: Path, account: str = TEAM) -> dict[str, Part]:
    """Return the parts of an account, as the writer of one more journal sees them."""
    async with journals_at(f"{folder}/").store("reader.db").open_writer() as journal:
        assert journal.account_store is not None
        return {Path(it.journal).name: it for it in await journal.account_store.read(account)}


async def test_two_journals_of_a_folder_share_an_account(tmp_path: Path) -> None:
    folder = f"{tmp_path}/"
    async with open_orchestrator(folder) as one, open_orchestrator(folder) as two:
        with budget(calls=3, shared="team"):
            outcomes = [await ask(it) for it in (one, two, one, two, one)]
        account = two.read.records.accounts[TEAM]
        assert (account.used.calls, two.read.used_amounts(account).calls) == (1, 3)

    assert [it.ending for it in outcomes] == [Ending.SUCCEEDED] * 3 + [Ending.OVER_BUDGET] * 2
    assert (outcomes[3].kind, outcomes[4].kind) == ("calls", "calls")
    assert "'team' (calls=3)" in outcomes[3].error
    assert "used here 1 model call, in journal.db 2 model calls" in outcomes[3].error


async def test_the_next_process_of_an_address_goes_on_with_the_account(tmp_path: Path) -> None:
    for expected in (Ending.SUCCEEDED, Ending.SUCCEEDED, Ending.OVER_BUDGET):
        async with open_orchestrator(f"{tmp_path}/") as orchestrator:
            with budget(calls=2, shared="team"):
                assert (await ask(orchestrator)).ending is expected


async def test_concurrent_trees_of_several_journals_never_exceed_the_account(
    tmp_path: Path,
) -> None:
    meter = Meter()
    folder = f"{tmp_path}/"
    async with (
        open_orchestrator(folder) as one,
        open_orchestrator(folder) as two,
        open_orchestrator(folder) as three,
        trio.open_nursery() as nursery,
    ):
        with budget(calls=13, shared="team"):
            for orchestrator in (one, two, three):
                top = lead(meter, 8, meter.worker(seconds=0))
                nursery.start_soon(orchestrator.run, top, "go")

    assert meter.calls == 13
    parts = await parts_of(tmp_path)
    assert sum(it.used.calls for it in parts.values()) == 13


async def test_a_call_waits_for_a_reservation_in_another_journal(tmp_path: Path) -> None:
    first, second = GatedModel("short"), GatedModel("also short")
    second.release()
    is_waiting = trio.Event()

    def receive(event: object) -> None:
        if event == Queued(True):
            is_waiting.set()

    folder = f"{tmp_path}/"
    async with open_orchestrator(folder) as one, open_orchestrator(folder) as two:
        with two.read.subscribe_model_events(lambda _, event: receive(event)):
            async with trio.open_nursery() as nursery:
                with budget(tokens=20_000, shared="team"):
                    nursery.start_soon(ask, one, talker(first))
                    await first.wait_called()
                    # The whole answer of the first call is reserved: the second one fits after it.
                    nursery.start_soon(ask, two, talker(second))
                    await is_waiting.wait()
                    assert second.calls == 0
                    first.release()
        assert second.calls == 1


async def test_an_account_is_exact_after_a_crash_at_each_fact(tmp_path: Path) -> None:
    """The journal of a dead process pays for its open calls, and its next writer corrects that."""
    for last in range(2, 40):
        meter = Meter()
        folder = tmp_path / str(last)
        store = journals_at(f"{folder}/").store("journal.db")
        agent = lead(meter, 2, meter.worker(seconds=0))
        async with store.open_writer() as opened:
            journal = CrashingJournal(opened, after=last)
            with ignoring_crash(), budget(calls=4, tokens=500_000, shared="team"):
                async with open_orchestrator(journal) as orchestrator:
                    await orchestrator.run(agent, "go")
        left = await parts_of(folder)
        assert meter.calls <= sum(it.used.calls for it in left.values()) <= 4
        assert all(it.held == NOTHING for it in left.values())

        async with open_orchestrator(folder / "journal.db") as again:
            used = again.read.records.accounts.get(TEAM)
        settled = await parts_of(folder)
        if used is not None and left:
            assert settled["journal.db"].used == used.used
            assert used.used.calls >= meter.calls
        if not journal.crashed:
            assert settled["journal.db"].used.calls == meter.calls == 4
            return
    raise AssertionError("the run has more facts than that")


async def test_an_account_refused_by_another_one_is_given_back(tmp_path: Path) -> None:
    folder = f"{tmp_path}/"
    async with open_orchestrator(folder) as one, open_orchestrator(folder) as two:
        with budget(calls=1, shared="day"):
            await ask(one)
        with budget(calls=5, shared="team"), budget(calls=1, shared="day"):
            over = await ask(two)
        with budget(calls=5, shared="team"):
            assert [(await ask(one)).ending for _ in range(5)] == [Ending.SUCCEEDED] * 5

    assert over.ending is Ending.OVER_BUDGET
    assert "'day'" in over.error


async def test_the_newest_limit_of_an_account_counts(tmp_path: Path) -> None:
    async with open_orchestrator(f"{tmp_path}/") as orchestrator:
        with budget(calls=1, shared="team"):
            await ask(orchestrator)
            over = await ask(orchestrator)
        with budget(calls=2, shared="team"):
            assert (await ask(orchestrator)).ending is Ending.SUCCEEDED

    assert over.ending is Ending.OVER_BUDGET


async def test_a_second_address_would_be_a_second_account(tmp_path: Path) -> None:
    with budget(calls=1, shared="team"):
        async with open_orchestrator(tmp_path / "one" / "journal.db") as one:
            await ask(one)
        async with open_orchestrator(MemoryJournal()) as two:
            with pytest.raises(SharedBudgetError, match="one"):
                await ask(two)


async def test_a_tool_may_start_work_under_the_account_in_another_journal(tmp_path: Path) -> None:
    """The journals of a folder share the account, so the work is not a second budget."""
    folder = f"{tmp_path}/"

    @tool
    async def start() -> str:
        """Run an agent elsewhere."""
        async with open_orchestrator(folder) as another:
            return (await ask(another)).ending

    model = ScriptedModel([ToolCall("start", {}), "done"])
    agent = Agent("outer", model=model, tools=[start], approve=[allow("*")])
    async with open_orchestrator(folder) as orchestrator:
        with budget(calls=3, shared="team"):
            run = await orchestrator.run(agent, "go")
            over = await ask(orchestrator)

    assert run.outcome.succeeded
    assert over.ending is Ending.OVER_BUDGET


async def test_a_damaged_account_pays_for_nothing(tmp_path: Path) -> None:
    async with open_orchestrator(f"{tmp_path}/") as orchestrator:
        with budget(calls=3, shared="team"):
            await ask(orchestrator)
            (file,) = (it for it in (tmp_path / "accounts").iterdir() if not it.suffix)
            file.write_text("no account")
            failed = await ask(orchestrator)
        assert (await ask(orchestrator)).succeeded

    assert failed.ending is Ending.FAILED
    assert "the account 'b_common:team' is damaged" in failed.error


def test_commands_on_a_folder_share_a_budget(tmp_path: Path) -> None:
    team = tmp_path / "team.py"
    team.write_text(
        "from orchestrator import Agent, ScriptedModel\n"
        "lead = Agent('lead', model=ScriptedModel.always('yes'))\n"
    )
    limits = ["--budget-calls", "2", "--budget-shared", "team", "--budget-every", "month"]
    command = ["run", f"{team}:lead", "go", "--journal", f"{tmp_path}/runs/", *limits]

    assert [run_command([*command, "--trust"]) for _ in range(3)] == [0, 0, 3]
