"""A failure in one place does not stop the orchestrator."""

import pytest
import trio

from orchestrator import ClosedError, MemoryJournal, budget, open_orchestrator
from orchestrator.agents import (
    Agent,
    Failure,
    ModelError,
    Patience,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    tool,
)
from orchestrator.delegation import Ending, Rules
from orchestrator.delegation.events import ModelFailed, SessionClosed, TaskSettled
from orchestrator.kernel.journal import session_cache
from tests.kit import facts, hand_on, worker

UNWRITABLE = "no character: \udcff"


class MuteError(Exception):
    def __str__(self) -> str:
        raise ValueError("it cannot say")


@pytest.mark.parametrize(
    "error",
    [
        ValueError(UNWRITABLE),
        ModelError(UNWRITABLE),
        ModelError("cut", partial=UNWRITABLE),
        MuteError(),
    ],
    ids=["an error", "a model", "what it had said", "an error without words"],
)
async def test_an_error_that_cannot_be_written_down_ends_one_task(error: Exception) -> None:
    child = Agent("child", model=ScriptedModel([error]))
    lead = Agent(
        "lead",
        model=ScriptedModel([hand_on("a", background=True), "ok", "heard"]),
        delegates=[child],
    )
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            assert (await session.replies.receive()).text == "heard"

    (settled,) = facts(journal.entries, TaskSettled)
    assert settled.outcome.ending is Ending.FAILED


async def test_a_closed_session_used_by_a_tool_is_an_error_of_the_tool() -> None:
    async with open_orchestrator(":memory:") as other:
        async with other.open_session(worker()) as closed:
            pass

    @tool
    async def ask_elsewhere() -> str:
        """Ask a session that is closed."""
        return (await closed.ask("are you there?")).text

    child = Agent("child", model=ScriptedModel([ToolCall("ask_elsewhere")]), tools=[ask_elsewhere])
    lead = Agent("lead", model=ScriptedModel([hand_on("a"), "end"]), delegates=[child])
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(lead, "go")

    (task,) = run.tree.children(run.tree.root)
    assert run.outcome.succeeded
    assert "ClosedError" in run.tree[task].error


async def test_a_failed_model_inside_a_tool_is_not_a_call_of_the_task() -> None:
    @tool
    async def think() -> str:
        """Ask another model."""
        await trio.lowlevel.checkpoint()
        raise ModelError("the key is wrong", kind=Failure.AUTH)

    agent = Agent("lead", model=ScriptedModel([ToolCall("think")]), tools=[think])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(agent, "go")

    assert run.outcome.ending is Ending.FAILED
    assert run.outcome.kind == ""
    assert "tool 'think' failed: the key is wrong" in run.outcome.error
    assert facts(journal.entries, ModelFailed) == []


@pytest.mark.parametrize("_", range(10))
async def test_cancelling_a_session_does_not_wait_for_its_next_turn(_: int) -> None:
    """Something else was said meanwhile, and the next turn begins as this one ends."""
    agent = Agent("slow", model=ScriptedModel.always("late", 3_600))
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "one")
                await trio.sleep(1)
                nursery.start_soon(session.ask, "two")
                await trio.sleep(1)
                await orchestrator.cancel(session.id)

                assert trio.current_time() == pytest.approx(2)
                nursery.cancel_scope.cancel()


async def test_a_child_lost_in_a_crash_frees_its_slot() -> None:
    """The delegate was renamed: the call that waited for it fails, and the next one has room."""

    def boss(transcript: Transcript) -> object:
        answered = sum(isinstance(said, ToolMessage) for said in transcript)
        agent = "a" if answered == 0 else "b"
        return hand_on("go", agent=agent, background=False) if answered < 2 else "end"

    def agent(*names: str) -> Agent:
        model = ScriptedModel.always(boss)  # type: ignore[arg-type]
        team = [worker(name, seconds=10) for name in names]
        return Agent("boss", model=model, delegates=team)

    journal = MemoryJournal()
    rules = Rules(live_tasks=1)
    with trio.move_on_after(5):
        async with open_orchestrator(journal, rules=rules) as orchestrator:
            async with orchestrator.open_session(agent("a", "c")) as session:
                await session.ask("go")
    async with open_orchestrator(journal, rules=rules) as orchestrator:
        async with orchestrator.open_session(agent("b", "c"), session=session.id) as again:
            assert (await again.replies.receive()).text == "end"
            endings = {
                again.tree[task].path: again.tree[task].status
                for task in again.tree.children(again.tree.root)
            }

    assert endings == {"/boss/a[1]": "lost", "/boss/b[1]": "succeeded"}


async def test_on_restart_lose_loses_only_started_tasks() -> None:
    child = Agent("child", model=ScriptedModel.always("done", 10), on_restart="lose")
    lead = Agent(
        "lead",
        model=ScriptedModel([hand_on("a", "b", background=True), "ok", *["heard"] * 3]),
        delegates=[child],
    )
    journal = MemoryJournal()
    rules = Rules(detached=1)
    async with open_orchestrator(journal, rules=rules) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            await trio.sleep(1)
    async with open_orchestrator(journal, rules=rules) as orchestrator:
        async with orchestrator.open_session(lead, session=session.id) as again:
            await again.wait_idle()
            endings = [again.tree[task].status for task in again.tree.children(again.tree.root)]

    assert endings == ["lost", "succeeded"]


async def test_a_crash_while_a_session_closes_leaves_every_task_settled() -> None:
    first = {"goal": "a", "label": "a"}
    second = {"goal": "b", "depends_on": ["a"]}
    chain = ToolCall("delegate_task", {"tasks": [first, second], "background": True})
    lead = Agent("lead", model=ScriptedModel([chain, "ok"]), delegates=[worker(seconds=100)])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            await orchestrator.close_session(session.id)
    closed_at = next(
        place
        for place, entry in enumerate(journal.entries, 1)
        if isinstance(entry.event, SessionClosed)
    )
    cut = MemoryJournal(journal.entries[:closed_at])
    async with open_orchestrator(cut) as orchestrator:
        tree = await orchestrator.read_tree(session.id)
        statuses = [tree[task].status for task in tree.children(tree.root)]

    assert statuses == ["cancelled", "refused"]


async def test_a_budget_around_the_orchestrator_does_not_bind_its_callers() -> None:
    lead = Agent(
        "lead",
        model=ScriptedModel([hand_on(*"abcd", background=True), "ok", *["heard"] * 4]),
        delegates=[worker(seconds=1)],
    )
    with budget(calls=2):
        opening = open_orchestrator(":memory:")
        orchestrator = await opening.__aenter__()
    try:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            await session.wait_idle()
            tree = session.tree
    finally:
        await opening.__aexit__(None, None, None)

    assert {tree[it].status for it in tree.children(tree.root)} == {"succeeded"}


async def test_a_run_begun_by_a_tool_is_paid_for_by_the_budgets_of_its_task() -> None:
    calls: list[object] = []

    def count(transcript: Transcript) -> str:
        calls.append(transcript)
        return "done"

    async with open_orchestrator(":memory:") as orchestrator:

        @tool
        async def run_another() -> str:
            """Run an agent."""
            agent = Agent("inner", model=ScriptedModel.always(count))
            return str((await orchestrator.run(agent, "go")).outcome.ending)

        model = ScriptedModel([*[ToolCall("run_another")] * 4, "end"])
        lead = Agent("lead", model=model, tools=[run_another])
        with budget(calls=3):
            async with orchestrator.open_session(lead) as session:
                reply = await session.ask("go")

    assert reply.outcome.ending is Ending.OVER_BUDGET
    assert len(calls) == 1


async def test_a_session_at_rest_can_be_closed_while_others_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_cache, "MAX_RESTING_TASKS", 2)
    async with open_orchestrator(":memory:") as orchestrator:
        ids: list[str] = []
        for _ in range(6):
            async with orchestrator.open_session(worker()) as session:
                await session.ask("go")
            ids.append(session.id)
        for id_ in ids:
            await orchestrator.close_session(id_)
            with pytest.raises(ClosedError, match="for good"):
                async with orchestrator.open_session(worker(), session=id_):
                    pass


@pytest.mark.parametrize("patience", ["quiet", "stalled", "stalled_in_tool"])
def test_a_patience_of_zero_is_refused(patience: str) -> None:
    with pytest.raises(ValueError, match="must be more than 0 seconds; None is for ever"):
        Patience(**{patience: 0})
