"""Cancel means joined: it returns when every descendant has ended."""

from pathlib import Path

import pytest
import trio

from orchestrator import MemoryJournal, Orchestrator, Session, UnknownIdError, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, ToolCall, tool
from orchestrator.delegation import Ending, Rules
from orchestrator.delegation.events import TaskSettled
from tests.kit import facts, hand_on, worker


def paths(orchestrator: Orchestrator) -> dict[str, str]:
    """Return the id of every task of the newest run, by path."""
    tree = orchestrator.tree(orchestrator.runs[-1])
    return {tree[task].path: task for task in tree}


def statuses(orchestrator: Orchestrator) -> dict[str, str]:
    tree = orchestrator.tree(orchestrator.runs[-1])
    return {tree[task].path: tree[task].status for task in tree}


async def test_cancelling_a_child_ends_all_below_it_and_spares_its_siblings() -> None:
    middle = Agent(
        "middle",
        model=ScriptedModel.always(hand_on("x", "y", background=False)),
        delegates=[worker("leaf", seconds=100)],
    )
    model = ScriptedModel([[hand_on("a", agent="middle"), hand_on("b", agent="other")], "end"])
    top = Agent("top", model=model, delegates=[middle, worker("other", seconds=50)])
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, top, "go")
            await trio.sleep(10)
            await orchestrator.cancel(paths(orchestrator)["/top/middle[1]"])

            assert statuses(orchestrator) == {
                "/top": "running",
                "/top/middle[1]": "cancelled",
                "/top/middle[1]/leaf[1]": "cancelled",
                "/top/middle[1]/leaf[2]": "cancelled",
                "/top/other[1]": "running",
            }
            assert trio.current_time() == pytest.approx(10)

        assert statuses(orchestrator)["/top"] == "succeeded"
        assert statuses(orchestrator)["/top/other[1]"] == "succeeded"


async def test_cancel_waits_for_the_cleanup_of_the_children() -> None:
    @tool
    async def careful() -> str:
        """Take time to tidy up."""
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)
        return "never"

    child = Agent("child", model=ScriptedModel([ToolCall("careful")]), tools=[careful])
    top = Agent("top", model=ScriptedModel([hand_on("a"), "end"]), delegates=[child])
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, top, "go")
            await trio.sleep(10)
            await orchestrator.cancel(paths(orchestrator)["/top/child[1]"])

            assert trio.current_time() == pytest.approx(13)
            assert statuses(orchestrator)["/top/child[1]"] == "cancelled"


async def test_the_text_and_the_usage_of_a_cancelled_task_are_kept() -> None:
    def think(_: object) -> ToolCall:
        return ToolCall("wait")

    @tool
    async def wait() -> str:
        await trio.sleep_forever()
        return "never"

    child = Agent("child", model=ScriptedModel.always(think), tools=[wait])
    top = Agent("top", model=ScriptedModel([hand_on("a"), "end"]), delegates=[child])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, top, "go")
            await trio.sleep(10)
            task = paths(orchestrator)["/top/child[1]"]
            await orchestrator.cancel(task)
        tree = orchestrator.tree(orchestrator.runs[-1])

    assert tree[facts(journal.entries, TaskSettled)[0].task].usage.calls == 1


async def test_cancelling_a_session_ends_its_turn_and_all_it_has_in_the_background() -> None:
    model = ScriptedModel(
        [hand_on("a", "b", background=True), hand_on("c", background=False), "news of the two"]
    )
    agent = Agent("top", model=model, delegates=[worker(seconds=100)])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(10)
                await orchestrator.cancel(session.id, tree=True)

                assert statuses(orchestrator)["/top/worker[1]"] == "cancelled"
                assert statuses(orchestrator)["/top/worker[2]"] == "cancelled"
                assert statuses(orchestrator)["/top/worker[3]"] == "cancelled"
                assert trio.current_time() == pytest.approx(10)
            # It goes on: it is told what became of its tasks, in a turn like any other.
            await session.wait_idle()

            assert session.replies.receive_nowait().text == "news of the two"


async def test_cancelling_an_ended_task_returns_at_once() -> None:
    top = Agent("top", model=ScriptedModel([hand_on("a"), "end"]), delegates=[worker()])
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(top, "go")
        for task in run.tree:
            await orchestrator.cancel(task)

        assert run.tree.counts() == {"succeeded": 2}


async def test_cancelling_an_unknown_task_raises() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        with pytest.raises(UnknownIdError, match="there is no task 't_none'"):
            await orchestrator.cancel("t_none")


async def test_a_task_that_a_crash_interrupted_can_be_cancelled() -> None:
    """It does not run, so the orchestrator itself settles it."""
    model = ScriptedModel([hand_on("a", background=True), hand_on("b", background=False)])
    agent = Agent("top", model=model, delegates=[worker(seconds=100)])
    journal = MemoryJournal()
    with trio.move_on_after(10):
        async with open_orchestrator(journal, rules=Rules()) as orchestrator:
            async with orchestrator.open_session(agent) as session:
                await session.ask("go")

    async with open_orchestrator(journal) as orchestrator:
        assert statuses(orchestrator) == {
            "/top": "interrupted",
            "/top/worker[1]": "interrupted",
            "/top/worker[2]": "interrupted",
        }
        await orchestrator.cancel(session.id, tree=True)

        assert statuses(orchestrator) == {
            "/top": "cancelled",
            "/top/worker[1]": "cancelled",
            "/top/worker[2]": "cancelled",
        }


def lead() -> Agent:
    return Agent(
        "lead",
        model=ScriptedModel.always(hand_on("a", "b", background=True)),
        delegates=[worker(seconds=100)],
    )


async def test_a_message_that_no_turn_has_read_yet_is_cancelled_with_its_turn() -> None:
    """In about half of the sessions the cancel comes between the message and its turn."""
    endings: list[Ending] = []

    async def ask(session: Session) -> None:
        endings.append((await session.ask("go")).outcome.ending)

    async with open_orchestrator(":memory:") as orchestrator:
        for _ in range(20):
            async with orchestrator.open_session(lead()) as session:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ask, session)
                    while not session.tree[session.tree.root].goal:
                        await trio.lowlevel.checkpoint()
                    await orchestrator.cancel(session.id)
                await orchestrator.close_session(session.id)

    assert endings == [Ending.CANCELLED] * 20


@pytest.mark.realtime
async def test_a_cancel_that_finds_a_session_at_rest_returns_while_it_is(tmp_path: Path) -> None:
    """A message may arrive at the same moment; its turn was not cancelled."""
    with trio.fail_after(100):
        async with open_orchestrator(tmp_path / "journal.db") as orchestrator:
            for _ in range(20):
                async with orchestrator.open_session(lead()) as session:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(session.ask, "go")
                        await orchestrator.cancel(session.id, tree=True)

                        children = session.tree.children(session.tree.root)
                        left = {session.tree[child].status for child in children}
                        assert left <= {"cancelled"}
                        nursery.cancel_scope.cancel()
                    await orchestrator.close_session(session.id)
