"""`Orchestrator.stream`: a run is read while it goes on, and belongs to its block."""

from typing import assert_type

import attrs
import pytest
import trio
import trio.testing
from msgspec.structs import replace

from orchestrator import (
    ApprovalNeeded,
    Machine,
    ModelRetried,
    ReasoningWritten,
    RunEvent,
    StreamedRun,
    TaskDelegated,
    TaskEnded,
    TextReplaced,
    TextWritten,
    ToolCalled,
    ToolReturned,
    open_orchestrator,
)
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallId,
    Failure,
    Hooks,
    ModelRequest,
    ReasoningDelta,
    Retrying,
    ScriptedModel,
    TaskContext,
    ToolCall,
    confirm,
    tool,
)
from orchestrator.delegation import Cause, Ending, Mode
from orchestrator.testing import StreamingModel
from tests.kit import hand_on, worker
from tests.orchestrator.held_journal import HeldJournal


@tool
def count(word: str) -> int:
    """Return the length of a word."""
    return len(word)


class SilentModel:
    """Answers without an event."""

    name = "silent"

    async def answer(self, _: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        return AssistantMessage("All of it.")


def shape(event: RunEvent) -> tuple[str, str]:
    return (type(event).__name__, event.path)


@pytest.mark.realtime
async def test_text_calls_delegations_and_results_come_in_their_order() -> None:
    model = StreamingModel(
        [
            ["Let me ", "count. ", ToolCall("count", {"word": "trio"})],
            ["Now ask.", hand_on("look it up")],
            ["It has ", "four."],
        ]
    )
    editor = Agent("editor", model=model, tools=[count], delegates=[worker(says="found")])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.stream(editor, "Count.") as run:
            events = joined([event async for event in run])
            done = await run.wait()

    assert done.output == "It has four."
    assert [shape(event) for event in events] == [
        ("TextWritten", "/editor"),
        ("ToolCalled", "/editor"),
        ("ToolReturned", "/editor"),
        ("TextWritten", "/editor"),
        ("ToolCalled", "/editor"),
        ("TaskDelegated", "/editor/worker[1]"),
        ("TextWritten", "/editor/worker[1]"),
        ("TaskEnded", "/editor/worker[1]"),
        ("ToolReturned", "/editor"),
        ("TextWritten", "/editor"),
        ("TaskEnded", "/editor"),
    ]
    assert texts(events, "/editor") == ["Let me count. ", "Now ask.", "It has four."]
    called, returned = events[1], events[2]
    assert isinstance(called, ToolCalled)
    assert called.call.arguments == {"word": "trio"}
    assert isinstance(returned, ToolReturned)
    assert (returned.call, returned.text, returned.failed) == (called.call, "4", False)
    delegated, ended = events[5], events[7]
    assert isinstance(delegated, TaskDelegated)
    assert (delegated.agent, delegated.goal) == ("worker", "look it up")
    assert (delegated.parent, delegated.mode) == (run.tree.root, Mode.JOINED)
    assert isinstance(ended, TaskEnded)
    assert ended.outcome.output == "found"


def joined(events: list[RunEvent]) -> list[RunEvent]:
    """Join the pieces of an answer: how many there are is up to the schedule."""
    found: list[RunEvent] = []
    for event in events:
        last = found[-1] if found else None
        if (
            isinstance(event, TextWritten)
            and isinstance(last, TextWritten)
            and last.task == event.task
        ):
            found[-1] = replace(last, text=last.text + event.text)
        else:
            found.append(event)
    return found


def texts(events: list[RunEvent], path: str) -> list[str]:
    return [it.text for it in events if isinstance(it, TextWritten) and it.path == path]


async def test_a_piece_is_read_while_the_model_is_still_writing() -> None:
    go_on = trio.Event()
    talker = Agent("talker", model=StreamingModel([["Once ", go_on, "upon."]]))
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.stream(talker, "Tell.") as run:
            first = await anext(run)
            go_on.set()
            rest = [event async for event in run]

    assert isinstance(first, TextWritten)
    assert first.text == "Once "
    assert texts(rest, "/talker") == ["upon."]


async def test_a_model_without_streaming_emits_its_whole_answer() -> None:
    silent = Agent("silent", model=SilentModel())
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.stream(silent, "Tell.") as run:
            events = [event async for event in run]

    assert texts(events, "/silent") == ["All of it."]


async def test_parallel_tasks_may_give_their_calls_the_same_id() -> None:
    """Some providers number the calls of each transcript."""
    called = {"a": trio.Event(), "b": trio.Event()}

    @tool
    async def act(who: str) -> str:
        """Act, when both were called."""
        called[who].set()
        for event in called.values():
            await event.wait()
        return f"{who} acted"

    def actor(name: str) -> Agent:
        call = ToolCall("act", {"who": name}, id=CallId("~1.0"))
        return Agent(name, model=ScriptedModel([call, "ok"]), tools=[act])

    both = [ToolCall("delegate_task", {"agent": it, "goal": "go"}) for it in called]
    lead = Agent("lead", model=ScriptedModel([both, "done"]), delegates=[actor("a"), actor("b")])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.stream(lead, "go") as run:
            returned = {
                event.path: (event.call.arguments, event.text)
                async for event in run
                if isinstance(event, ToolReturned) and event.call.name == "act"
            }

    assert returned == {
        "/lead/a[1]": ({"who": "a"}, "a acted"),
        "/lead/b[1]": ({"who": "b"}, "b acted"),
    }


@pytest.mark.parametrize(
    ("last", "facts"),
    [
        ([], ["TaskEnded"]),
        ([ToolCall("look", {})], ["ToolCalled", "ToolReturned", "TextWritten", "TaskEnded"]),
    ],
)
async def test_text_is_read_at_once_and_a_fact_when_it_is_durable(
    last: list[ToolCall], facts: list[str]
) -> None:
    journal = HeldJournal()
    read: list[str] = []

    @tool
    async def look() -> str:
        """Look."""
        await trio.lowlevel.checkpoint()
        return "seen"

    async def hold() -> None:
        journal.hold()
        await trio.lowlevel.checkpoint()

    async def follow(run: StreamedRun[str]) -> None:
        async for event in run:
            read.append(type(event).__name__)  # noqa: PERF401 (it is looked at meanwhile)

    model = StreamingModel([[hold, "Once.", *last], ["Done."]])
    talker = Agent("talker", model=model, tools=[look])
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.stream(talker, "Tell.") as run:
            # Owns the reader.
            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow, run)
                await trio.testing.wait_all_tasks_blocked()
                seen, taken = list(read), run.events.take()
                journal.release()

    assert (seen, taken) == (["TextWritten"], [])
    assert read == ["TextWritten", *facts]


async def test_leaving_the_block_cancels_the_tree_and_joins_it() -> None:
    begun, ended = trio.Event(), list[str]()

    @tool
    async def dig(hole: str) -> str:
        """Dig a hole."""
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.append(hole)
        return ""

    digger = Agent("digger", model=ScriptedModel([ToolCall("dig", {"hole": "a"})]), tools=[dig])
    boss = Agent("boss", model=ScriptedModel([hand_on("dig")]), delegates=[digger])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.stream(boss, "Dig.") as run:
            async for event in run:
                if isinstance(event, ToolCalled) and event.call.name == "dig":
                    await begun.wait()
                    break
        assert ended == ["a"]
        assert orchestrator.working == 0
        done = await run.wait()

    assert done.outcome.ending is Ending.CANCELLED
    assert [event async for event in run][-1] == TaskEnded(done.tree.root, "/boss", done.outcome)


async def test_an_error_in_the_block_ends_the_run_and_is_raised_unchanged() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        with pytest.raises(KeyError, match="mine"):
            async with orchestrator.stream(worker(seconds=60), "go") as run:
                raise KeyError("mine")
        assert (await run.wait()).outcome.cause is Cause.CALLER_GONE


async def test_a_retried_answer_emits_model_retried() -> None:
    model = StreamingModel(
        [["Onc", Retrying(Failure.OVERLOADED, "the provider is busy", 1), "Once."]]
    )
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.stream(Agent("talker", model=model), "go") as run:
            events = [event async for event in run]

    assert [type(event) for event in events[:2]] == [TextWritten, ModelRetried]
    assert isinstance(events[1], ModelRetried)
    assert events[1].error == "the provider is busy"


async def test_reasoning_is_apart_from_the_answer() -> None:
    model = StreamingModel([[ReasoningDelta("Hm."), "Yes."]])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.stream(Agent("thinker", model=model), "go") as run:
            events = [event async for event in run]

    assert [shape(event)[0] for event in events] == ["ReasoningWritten", "TextWritten", "TaskEnded"]
    assert isinstance(events[0], ReasoningWritten)
    assert events[0].text == "Hm."


async def test_an_answer_that_a_hook_has_changed_replaces_its_pieces() -> None:
    def shout(_: TaskContext, answer: AssistantMessage) -> AssistantMessage:
        return replace(answer, text=answer.text.upper())

    model = StreamingModel([["Once ", "upon."]])
    loud = Agent("loud", model=model, hooks=[Hooks(after_model=shout)])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.stream(loud, "go") as run:
            events = joined([event async for event in run])
            done = await run.wait()

    assert [shape(event)[0] for event in events] == ["TextWritten", "TextReplaced", "TaskEnded"]
    assert isinstance(events[1], TextReplaced)
    assert events[1].text == done.output == "ONCE UPON."


async def test_a_secret_in_pieces_is_in_no_piece() -> None:
    model = StreamingModel([["The key is s3cr", "3t-w0rd", " indeed."]])
    async with open_orchestrator(
        ":memory:", machine=Machine(environ={"SHOP_KEY": "s3cr3t-w0rd"})
    ) as orchestrator:
        async with orchestrator.stream(Agent("leak", model=model), "go") as run:
            events = [event async for event in run]
            done = await run.wait()

    said = "".join(texts(events, "/leak"))
    assert "s3cr" not in said
    assert said == done.output


async def test_a_stream_answers_approvals() -> None:
    guarded = Agent(
        "guarded",
        model=ScriptedModel([ToolCall("count", {"word": "a"}), "counted"]),
        tools=[count],
        approve=[confirm("count")],
    )
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.stream(guarded, "go", attended=True) as run:
            async for event in run:
                if isinstance(event, ApprovalNeeded):
                    await orchestrator.answer(event.question.id, "deny")
            done = await run.wait()

    assert done.output == "counted"


async def test_streams_do_not_hear_each_other() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        async with (
            orchestrator.stream(worker("one", says="1"), "go") as one,
            orchestrator.stream(worker("two", says="2"), "go") as two,
        ):
            of_one = [event async for event in one]
            of_two = [event async for event in two]

    assert {event.path for event in of_one} == {"/one"}
    assert {event.path for event in of_two} == {"/two"}


async def test_a_session_is_read_while_it_goes_on() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(worker(says="Hello.")) as session:
            with session.events() as events:
                await session.ask("Greet.")
                await session.ask("Again.")
                taken = events.take()
            assert [event async for event in events] == []

    assert [shape(event)[0] for event in taken] == ["TextWritten", "TaskEnded"] * 2


async def test_types_go_through() -> None:
    @attrs.frozen
    class Report:
        stars: int

    critic = Agent("critic", output=Report, model=ScriptedModel(['{"stars": 3}']))
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.stream(critic, "go") as run:
            assert_type(run, StreamedRun[Report])
            done = await run.wait()

    assert_type(done.output, Report)
    assert done.output.stars == 3
