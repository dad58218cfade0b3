"""`orchestrator.asyncio`: the same orchestrator for programs on the other event loop."""

import asyncio  # noqa: TID251 (the loop of these tests)
import gc
import inspect
import subprocess
import sys
import threading  # noqa: TID251 (which thread runs what)
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, assert_type

import anyio
import attrs
import pytest
import trio

from orchestrator import (
    ApprovalNeeded,
    ClosedError,
    JournalInUseError,
    Run,
    TaskEnded,
    TextWritten,
    UnknownIdError,
    budget,
    delegate,
)
from orchestrator import Orchestrator as OnTrio
from orchestrator import Session as SessionOnTrio
from orchestrator import StreamedRun as StreamOnTrio
from orchestrator import open_orchestrator as open_on_trio
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallKey,
    Hooks,
    ModelRequest,
    ScriptedModel,
    TaskContext,
    TextDelta,
    ToolCall,
    ToolError,
    agent,
    confirm,
)
from orchestrator.agents import tool as trio_tool
from orchestrator.delegation import Ending
from orchestrator.products.asyncio import (
    Orchestrator,
    Session,
    StreamedRun,
    model,
    open_orchestrator,
    owner_loop,
    run_in_asyncio,
    tool,
)
from orchestrator.products.asyncio.trio_thread import Held, TrioThread
from orchestrator.testing import StreamingModel
from tests.kit import hand_on, worker

SAFETY = 60


def on_asyncio(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on asyncio, as a program would."""

    async def in_time(*args: Any, **keywords: Any) -> None:
        async with asyncio.timeout(SAFETY):
            await test(*args, **keywords)

    def run(*args: Any, **keywords: Any) -> None:
        asyncio.run(in_time(*args, **keywords))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return run


class Waiting:
    """An agent with a tool that waits for ever, and says how it ended."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.log: list[str] = []
        loop = asyncio.get_running_loop()

        @trio_tool
        async def dig(hole: str) -> str:
            """Dig a hole."""
            loop.call_soon_threadsafe(self.begun.set)
            try:
                await trio.sleep_forever()
            finally:
                await trio.lowlevel.cancel_shielded_checkpoint()
                self.log.append(f"ended {hole}")

        call = ToolCall("dig", {"hole": "a"})
        digger = Agent("digger", model=ScriptedModel([call]), tools=[dig])
        self.agent = Agent("boss", model=ScriptedModel([hand_on("dig")]), delegates=[digger])


@on_asyncio
async def test_a_run_is_awaited_as_on_trio() -> None:
    @attrs.frozen
    class Report:
        stars: int

    critic = Agent("critic", output=Report, model=ScriptedModel(['{"stars": 3}']))
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(critic, "go")

    assert_type(run, Run[Report])
    assert run.output == Report(3)
    assert len(run.tree) == 1


@on_asyncio
async def test_many_runs_go_on_at_once() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        runs = await asyncio.gather(
            *(orchestrator.run(worker(says=str(n)), "go") for n in range(100))
        )
        ids = await orchestrator.read_runs()
        working = await orchestrator.count_working()

    assert [run.output for run in runs] == [str(n) for n in range(100)]
    assert sorted(ids) == sorted(run.id for run in runs)
    assert working == 0


@on_asyncio
async def test_cancelling_the_caller_cancels_the_tree_and_joins_it() -> None:
    waiting = Waiting()
    async with open_orchestrator(":memory:") as orchestrator:
        task = asyncio.create_task(orchestrator.run(waiting.agent, "go"))
        await waiting.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert waiting.log == ["ended a"]
        [run] = await orchestrator.read_runs()
        tree = await orchestrator.read_tree(run)

    assert tree.counts() == {"cancelled": 2}


@on_asyncio
async def test_impatient_callers_wait_for_the_end_all_the_same() -> None:
    """Cancelled twice, and by a scope of anyio, which cancels again and again."""
    waiting = Waiting()
    async with open_orchestrator(":memory:") as orchestrator:
        task = asyncio.create_task(orchestrator.run(waiting.agent, "go"))
        await waiting.begun.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert waiting.log == ["ended a"]

        waiting = Waiting()
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(orchestrator.run, waiting.agent, "go")
                await waiting.begun.wait()
                scope.cancel()
        assert waiting.log == ["ended a"]


@on_asyncio
async def test_a_timeout_of_asyncio_ends_a_run() -> None:
    waiting = Waiting()
    async with open_orchestrator(":memory:") as orchestrator:
        patience = asyncio.timeout(SAFETY)
        begun = asyncio.create_task(waiting.begun.wait())
        begun.add_done_callback(lambda _: patience.reschedule(0))
        with pytest.raises(TimeoutError):
            async with patience:
                await orchestrator.run(waiting.agent, "go")

    assert waiting.log == ["ended a"]


@on_asyncio
async def test_closing_ends_runs_that_others_await() -> None:
    waiting = Waiting()
    async with open_orchestrator(":memory:") as orchestrator:
        task = asyncio.create_task(orchestrator.run(waiting.agent, "go"))
        await waiting.begun.wait()

    with pytest.raises(ClosedError):
        await task
    assert waiting.log == ["ended a"]
    with pytest.raises(ClosedError):
        await orchestrator.run(waiting.agent, "go")


@on_asyncio
async def test_errors_come_through_as_they_are(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    async with open_orchestrator(journal) as orchestrator:
        with pytest.raises(UnknownIdError, match="there is no task 't_1'"):
            await orchestrator.cancel("t_1")
        with pytest.raises(JournalInUseError):
            await open_orchestrator(journal)
        with pytest.raises(UnknownIdError):
            await orchestrator.open_session(worker(), session="s_1")


@on_asyncio
async def test_a_budget_around_the_call_counts() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(calls=0):
            run = await orchestrator.run(worker(), "go")

    assert run.outcome.ending is Ending.OVER_BUDGET


@on_asyncio
async def test_an_orchestrator_without_a_block_is_open_until_aclose() -> None:
    """In a notebook no block is around the cells."""
    orchestrator = await open_orchestrator(":memory:")
    session = await orchestrator.open_session(worker(says="Hello."))
    assert (await session.ask("Hi.")).text == "Hello."
    await session.aclose()
    await orchestrator.aclose()

    names = {thread.name for thread in threading.enumerate()}
    assert "trio of the orchestrator" not in names


@on_asyncio
async def test_a_dropped_orchestrator_frees_its_journal_and_warns(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"

    async def use_session() -> threading.Thread:
        session = await (await open_orchestrator(journal)).open_session(worker())
        gc.collect()
        # A session keeps its orchestrator.
        assert (await session.ask("go")).text == "done"
        return next(it for it in threading.enumerate() if it.name == "trio of the orchestrator")

    async def drop() -> threading.Thread:
        thread = await use_session()
        gc.collect()
        return thread

    with pytest.warns(ResourceWarning, match="dropped while it was open"):
        thread = await drop()
    await asyncio.to_thread(thread.join)
    async with open_orchestrator(journal) as orchestrator:
        assert len(await orchestrator.read_runs()) == 1


@on_asyncio
async def test_a_session_gives_replies_events_and_questions() -> None:
    guarded = Agent(
        "guarded",
        model=ScriptedModel([ToolCall("count", {"word": "ab"}), "Counted."]),
        tools=[count],
        approve=[confirm("count")],
    )
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(guarded) as session:
            async with session.events() as events:
                asked = asyncio.create_task(session.ask("Count."))
                question = await session.questions.receive()
                assert await session.read_open_questions() == [question]
                await session.answer(question.id, "once")
                reply = await asked
                read = [await anext(events) for _ in range(5)]
            await session.wait_idle()
            tree = await session.read_tree()
        with pytest.raises(ClosedError):
            await session.replies.receive()
        assert [reply async for reply in session.replies] == []

    assert reply.text == "Counted."
    assert [type(event).__name__ for event in read] == [
        "ToolCalled",
        "ApprovalNeeded",
        "ToolReturned",
        "TextWritten",
        "TaskEnded",
    ]
    assert len(tree) == 1


@on_asyncio
async def test_the_questions_of_runs_are_a_stream() -> None:
    call = ToolCall("count", {"word": "trio"})
    guarded = Agent(
        "guarded",
        model=ScriptedModel([call, "Counted."]),
        tools=[count],
        approve=[confirm("count")],
    )
    async with open_orchestrator(":memory:") as orchestrator:
        running = asyncio.create_task(orchestrator.run(guarded, "Count.", attended=True))
        async for question in orchestrator.questions:
            await orchestrator.answer(question.id, "once")
            break
        run = await running

    assert run.output == "Counted."
    assert [question async for question in orchestrator.questions] == []


@trio_tool
def count(word: str) -> int:
    """Return the length of a word."""
    return len(word)


@on_asyncio
async def test_a_reply_that_a_notice_woke_is_received() -> None:
    call = ToolCall("delegate_task", {"goal": "go", "background": True})
    boss = Agent(
        "boss", model=ScriptedModel([call, "Begun.", "All done."]), delegates=[worker(says="dug")]
    )
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(boss) as session:
            assert (await session.ask("Begin.")).text == "Begun."
            late = await session.replies.receive()

    assert late.text == "All done."


@on_asyncio
async def test_a_run_is_read_while_it_goes_on() -> None:
    talker = Agent("talker", model=StreamingModel([["Once ", "upon ", "a time."]]))
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.stream(talker, "go") as run:
            events = [event async for event in run]
            done = await run.wait()
            tree = await run.read_tree()

    assert "".join(it.text for it in events if isinstance(it, TextWritten)) == done.output
    assert isinstance(events[-1], TaskEnded)
    assert len(tree) == 1


@on_asyncio
async def test_leaving_a_stream_early_cancels_and_joins() -> None:
    waiting = Waiting()
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.stream(waiting.agent, "go") as run:
            await waiting.begun.wait()
        assert waiting.log == ["ended a"]
        assert (await run.wait()).outcome.ending is Ending.CANCELLED


@on_asyncio
async def test_a_stream_answers_approvals() -> None:
    guarded = Agent(
        "guarded",
        model=ScriptedModel([ToolCall("count", {"word": "ab"}), "Counted."]),
        tools=[count],
        approve=[confirm("count")],
    )
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.stream(guarded, "go", attended=True) as run:
            async for event in run:
                if isinstance(event, ApprovalNeeded):
                    assert await orchestrator.read_approvals() == [event.question]
                    await orchestrator.answer(event.question.id, "once")
            done = await run.wait()

    assert done.output == "Counted."


NAME: ContextVar[str] = ContextVar("name")


@on_asyncio
async def test_a_tool_of_asyncio_runs_in_the_loop_that_opened() -> None:
    mine = asyncio.get_running_loop()

    @tool(name="fetch")
    async def fetch_page(page: str, key: CallKey) -> str:
        """Fetch a page.

        Args:
            page: which one.
            key: the call.
        """
        assert asyncio.get_running_loop() is mine
        await asyncio.sleep(0)
        return f"{page} for {NAME.get()} {bool(key)}"

    model_ = ScriptedModel([ToolCall("fetch", {"page": "p1"}), lambda t: t[-1].text])
    reader = Agent("reader", model=model_, tools=[fetch_page])
    async with open_orchestrator(":memory:") as orchestrator:
        NAME.set("me")
        run = await orchestrator.run(reader, "go")

    assert run.output == "p1 for me True"
    assert fetch_page.parameters["properties"]["page"]["description"] == "which one."


@on_asyncio
async def test_a_tool_of_asyncio_is_cancelled_with_its_task() -> None:
    begun, log = asyncio.Event(), list[str]()

    @tool
    async def dig() -> str:
        """Dig."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            log.append("ended")
        return ""

    digger = Agent("digger", model=ScriptedModel([ToolCall("dig", {})]), tools=[dig])
    boss = Agent("boss", model=ScriptedModel([hand_on("dig")]), delegates=[digger])
    async with open_orchestrator(":memory:") as orchestrator:
        task = asyncio.create_task(orchestrator.run(boss, "go"))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert log == ["ended"]


@on_asyncio
async def test_the_error_of_an_asyncio_tool_reaches_the_model() -> None:
    @tool
    async def refuse() -> str:
        """Refuse."""
        await asyncio.sleep(0)
        raise ToolError("not today")

    @tool(timeout=0.01)
    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return ""

    @tool
    async def give_up() -> str:
        """Cancel its own task."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return ""

    calls = [ToolCall("refuse", {}), ToolCall("hang", {}), ToolCall("give_up", {})]
    model_ = ScriptedModel([calls, lambda t: " | ".join(m.text for m in t[-3:])])
    tools = [refuse, hang, give_up]
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(Agent("a", model=model_, tools=tools), "go")

    said = sorted(run.output.split(" | "))
    assert said[0].startswith("hang did not answer within 0.01 seconds")
    assert said[1:] == ["not today", "the function was cancelled by its own event loop"]


@on_asyncio
async def test_a_plain_function_and_a_detached_task_work_too() -> None:
    @tool
    def plain() -> str:
        """Be plain."""
        return "plain"

    @tool
    async def other() -> str:
        """Be of asyncio."""
        await asyncio.sleep(0)
        return "asyncio"

    calls = [ToolCall("plain", {}), ToolCall("other", {})]
    child = Agent(
        "child",
        model=ScriptedModel([calls, lambda t: " ".join(sorted(it.text for it in t[-2:]))]),
        tools=[plain, other],
    )
    detach = ToolCall("delegate_task", {"goal": "go", "background": True})
    boss = Agent("boss", model=ScriptedModel([detach, "Begun.", "Done."]), delegates=[child])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(boss) as session:
            async with session.events() as events:
                await session.ask("Begin.")
                await session.replies.receive()
                ended = await anext(
                    event
                    async for event in events
                    if isinstance(event, TaskEnded) and "child" in event.path
                )

    assert ended.outcome.output == "asyncio plain"


@on_asyncio
async def test_a_function_of_asyncio_is_a_model() -> None:
    async def oracle(request: ModelRequest) -> str:
        request.tell(TextDelta("It "))
        await asyncio.sleep(0)
        request.tell(TextDelta("is."))
        return "It is."

    async def formal(request: ModelRequest) -> AssistantMessage:
        await asyncio.sleep(0)
        return AssistantMessage(f"{len(request.transcript)} messages")

    first, second = model(oracle), model(formal, name="formal-1")
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.stream(Agent("a", model=first), "go") as run:
            texts = [it.text async for it in run if isinstance(it, TextWritten)]
        other = await orchestrator.run(Agent("b", model=second), "go")

    assert "".join(texts) == "It is."
    assert other.output == "1 messages"
    assert (first.name, second.name) == ("oracle", "formal-1")


@on_asyncio
async def test_a_pipeline_reaches_asyncio() -> None:
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    @agent
    async def program(number: int) -> str:
        doubled = await run_in_asyncio(double, number)
        return await delegate(worker(says=f"{doubled}"), "go")

    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(program, 21)

    assert run.output == "42"


async def test_an_asyncio_tool_on_trio_names_the_fix() -> None:
    @tool
    async def fetch() -> str:
        """Fetch."""
        await asyncio.sleep(0)
        return ""

    lost = Agent("lost", model=ScriptedModel([ToolCall("fetch", {})]), tools=[fetch])
    async with open_on_trio(":memory:") as orchestrator:
        run = await orchestrator.run(lost, "go")

    assert "orchestrator.asyncio.open_orchestrator" in run.outcome.error


async def needs_asyncio(*_: object) -> None:
    await asyncio.sleep(0.01)


def with_tool() -> Agent[Any, Any]:
    @trio_tool
    async def work() -> str:
        """Work."""
        await needs_asyncio()
        return "done"

    return Agent("a", model=ScriptedModel([ToolCall("work", {})]), tools=[work])


def with_instructions() -> Agent[Any, Any]:
    async def instructions(task: TaskContext) -> str:
        await needs_asyncio()
        return task.goal

    return Agent("a", model=ScriptedModel(["x"]), instructions=instructions)


def with_hook() -> Agent[Any, Any]:
    hooks = Hooks(before_model=needs_asyncio)
    return Agent("a", model=ScriptedModel(["x"]), hooks=[hooks])


def with_check() -> Agent[Any, Any]:
    return Agent("a", model=ScriptedModel(["x"]), checks=[needs_asyncio])


def with_function() -> Agent[Any, Any]:
    @agent
    async def pipeline(goal: str) -> str:
        await needs_asyncio()
        return goal

    return pipeline


def with_future() -> Agent[Any, Any]:
    future = asyncio.get_running_loop().create_future()

    @agent
    async def pipeline(goal: str) -> str:
        await future
        return goal

    return pipeline


@pytest.mark.parametrize(
    "make", [with_tool, with_instructions, with_hook, with_check, with_function, with_future]
)
@on_asyncio
async def test_an_asyncio_function_run_by_trio_names_the_fix(
    make: Callable[[], Agent[Any, Any]],
) -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(make(), "go")

    assert "orchestrator.asyncio.tool" in run.outcome.error
    assert "run_in_asyncio" in run.outcome.error


def test_several_loops_use_one_orchestrator() -> None:
    """Django makes a loop for each call, in a thread of its own."""
    opened: list[Orchestrator] = []
    outputs: list[str] = []

    async def use() -> None:
        outputs.append((await opened[0].run(worker(says="other"), "go")).output)

    async def main() -> None:
        async with asyncio.timeout(SAFETY), open_orchestrator(":memory:") as it:
            opened.append(it)
            await asyncio.gather(*(asyncio.to_thread(lambda: asyncio.run(use())) for _ in range(3)))

    asyncio.run(main())
    assert outputs == ["other"] * 3


def test_a_loop_that_stands_still_keeps_no_other_loop_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner_loop, "CLEANUP_SECONDS", 0.01)
    posted = threading.Event()
    log: list[str] = []

    @tool
    async def dig() -> str:
        """Dig."""
        log.append("begun")
        await asyncio.sleep(0)
        return ""

    digger = Agent("digger", model=ScriptedModel([ToolCall("dig", {})]), tools=[dig])
    owner = asyncio.new_event_loop()
    post = owner.call_soon_threadsafe

    def watch(*args: Any, **keywords: Any) -> object:
        handle = post(*args, **keywords)
        if not owner.is_running():
            posted.set()
        return handle

    async def use(orchestrator: Orchestrator) -> None:
        task = asyncio.create_task(orchestrator.run(digger, "go"))
        await asyncio.to_thread(posted.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def open_it() -> Orchestrator:
        return await open_orchestrator(":memory:")

    try:
        orchestrator = owner.run_until_complete(open_it())
        monkeypatch.setattr(owner, "call_soon_threadsafe", watch)
        asyncio.run(use(orchestrator))
        owner.run_until_complete(orchestrator.aclose())
    finally:
        owner.close()
    # It was cancelled before its loop began it.
    assert log == []


def test_a_program_that_does_not_close_it_exits_and_keeps_the_journal(tmp_path: Path) -> None:
    code = """if True:
        import asyncio, sys
        from orchestrator import Agent, ScriptedModel
        from orchestrator.asyncio import open_orchestrator

        async def main():
            orchestrator = await open_orchestrator(sys.argv[1])
            run = await orchestrator.run(Agent("a", model=ScriptedModel(["ok"])), "go")
            print(run.output)

        asyncio.run(main())
    """
    journal = tmp_path / "journal.db"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::ResourceWarning", "-c", code, str(journal)],
        capture_output=True,
        text=True,
        timeout=SAFETY,
        check=False,
    )

    assert (done.stdout, done.stderr, done.returncode) == ("ok\n", "", 0)
    assert not journal.with_name("journal.db-wal").exists()


def test_the_asyncio_arguments_equal_those_of_trio() -> None:
    assert inspect.signature(open_orchestrator) == inspect.signature(open_on_trio)


class Resource:
    """A context manager of trio that opens when its gate is open, and says what happened."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.log: list[str] = []

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[str]:
        self.begun.set()
        try:
            await trio.to_thread.run_sync(self.gate.wait, abandon_on_cancel=True)
            yield "it"
        finally:
            self.log.append("closed")


@on_asyncio
async def test_cancelling_an_opening_waits_until_it_is_closed_again() -> None:
    resource = Resource()
    thread = TrioThread(resource.open)
    opening = asyncio.create_task(thread.open())
    await asyncio.to_thread(resource.begun.wait)
    opening.cancel()
    resource.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert resource.log == ["closed"]
    with pytest.raises(ClosedError):
        thread.read(list)


@on_asyncio
async def test_cancelling_an_opening_cancels_the_resource() -> None:
    resource = Resource()
    opening = asyncio.create_task(TrioThread(resource.open).open())
    try:
        await asyncio.to_thread(resource.begun.wait)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert resource.log == ["closed"]
        assert not resource.gate.is_set()
    finally:
        # The thread that waits for it ends.
        resource.gate.set()


@on_asyncio
async def test_an_opening_cancelled_before_trio_runs_is_closed() -> None:
    resource = Resource()
    resource.gate.set()
    opening = asyncio.create_task(TrioThread(resource.open).open())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert resource.log == ["closed"] * resource.begun.is_set()


@on_asyncio
async def test_cancelling_an_opening_beside_an_orchestrator_cancels_it() -> None:
    outer, inner = Resource(), Resource()
    outer.gate.set()
    thread = TrioThread(outer.open)
    assert await thread.open() == "it"
    opening = asyncio.create_task(Held(thread, inner.open).open())
    await asyncio.to_thread(inner.begun.wait)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert inner.log == ["closed"]

    inner.gate.set()
    held = Held(thread, inner.open)
    assert await held.open() == "it"
    # The thread is closed first: what it held is closed with it.
    await thread.close()
    await held.close()
    assert (inner.log, outer.log) == (["closed"] * 2, ["closed"])


@on_asyncio
async def test_an_error_in_the_thread_is_raised_in_the_reader() -> None:
    resource = Resource()
    resource.gate.set()
    thread = TrioThread(resource.open)
    await thread.open()

    def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        thread.read(fail)
    assert thread.read(lambda: 7) == 7
    await thread.close()
    with pytest.raises(ClosedError):
        await thread.call(trio.lowlevel.checkpoint)


NOT_FOR_ASYNCIO = {
    # What reads the state without waiting has another name: `read_runs`, `count_working`.
    *("approvals", "calls", "now", "read", "runs", "tree", "working"),
    # The ports of the kernel, for doors.
    *("facts", "sessions"),
    # `stream` and `Session.events` are for asyncio.
    *("listen", "subscribe", "wait_durable"),
    # What a process does with its journal.
    *("abandon", "delete_run", "preview_prune", "prune"),
}


def public_names(of: type) -> set[str]:
    return {name for name in vars(of) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("ours", "theirs", "left_out"),
    [
        (OnTrio, Orchestrator, NOT_FOR_ASYNCIO),
        (SessionOnTrio, Session, {"capability", "deliver", "disconnect", "open_questions", "tree"}),
        (StreamOnTrio, StreamedRun, {"id", "take_turn", "tree"}),
    ],
)
def test_both_faces_have_the_same_methods_with_the_same_arguments(
    ours: type, theirs: type, left_out: set[str]
) -> None:
    assert public_names(ours) - public_names(theirs) == left_out
    for name in public_names(ours) & public_names(theirs):
        one, other = (inspect.signature(getattr(it, name)) for it in (ours, theirs))
        assert list(one.parameters) == list(other.parameters), name
