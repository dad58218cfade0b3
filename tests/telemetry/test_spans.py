"""Spans are made from facts: nested in structure and time, with the sums of the tree."""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
import trio
from msgspec import UNSET

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    ModelRequest,
    ScriptedModel,
    ToolCall,
    ToolError,
    Usage,
    tool,
)
from orchestrator.delegation import SessionId
from orchestrator.delegation.events import Entry
from orchestrator.kernel.journal.journal import fold_entries
from orchestrator.kernel.journal.sqlite.journal import read_sqlite_journal
from orchestrator.products.telemetry import conventions as names
from orchestrator.products.telemetry.attributes import MAX_TEXT
from orchestrator.products.telemetry.session_spans import SessionSpans
from orchestrator.products.telemetry.span import Span, task_trace, turn_ids
from tests.golden.version_1 import FILE
from tests.kit import FunctionModel, editor, hand_on, worker


def spans_of(entries: Iterable[Entry], *, content: bool = False) -> list[Span]:
    sessions: dict[SessionId, SessionSpans] = {}
    spans: list[Span] = []
    for entry in entries:
        if not entry.session:
            for session in sessions.values():
                spans += session.add(entry)
        else:
            if entry.session not in sessions:
                sessions[entry.session] = SessionSpans(entry.session, content=content)
            spans += sessions[entry.session].add(entry)
    for session in sessions.values():
        spans += session.end()
    return spans


def golden(folder: Path) -> Path:
    """Copy the journal: SQLite writes beside a file that it reads."""
    copied = Path(shutil.copyfile(FILE, folder / "journal.db"))
    copied.chmod(0o600)
    return copied


async def recorded(agent: Agent, *goals: str) -> Sequence[Entry]:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        for goal in goals:
            await orchestrator.run(agent, goal)
    return journal.entries


def total_of(spans: Iterable[Span], name: str) -> float:
    values = [span.attributes.get(name, 0) for span in spans]
    return sum(value for value in values if isinstance(value, int | float))


def named(spans: Iterable[Span], name: str) -> Span:
    (found,) = (span for span in spans if span.name == name)
    return found


@pytest.mark.realtime
async def test_every_span_of_the_golden_journal_lies_within_its_parent(tmp_path: Path) -> None:
    entries = await read_sqlite_journal(golden(tmp_path))
    spans = spans_of(entries)
    by_ids = {span.ids: span for span in spans}

    assert len(by_ids) == len(spans) > 100
    for span in spans:
        assert span.start <= span.end
        assert {*span.links} <= by_ids.keys()
        if span.parent:
            (parent,) = (it for it in spans if it.ids.span == span.parent)
            assert parent.ids.trace == span.ids.trace
            assert parent.start <= span.start <= span.end <= parent.end


@pytest.mark.realtime
async def test_the_spans_of_the_golden_journal_have_the_sums_of_its_trees(tmp_path: Path) -> None:
    entries = await read_sqlite_journal(golden(tmp_path))
    ledger = fold_entries(entries, "golden")
    spans = spans_of(entries)

    for id_, session in ledger.sessions.items():
        total = session.tree[session.tree.root].total
        mine = [span for span in spans if span.session == id_]
        assert total_of(mine, names.INPUT_TOKENS) == total.input_tokens
        assert total_of(mine, names.OUTPUT_TOKENS) == total.output_tokens
        assert total_of(mine, names.OUR_COST) == pytest.approx(total.usd)


@pytest.mark.realtime
async def test_the_same_facts_give_the_same_spans(tmp_path: Path) -> None:
    entries = await read_sqlite_journal(golden(tmp_path))
    assert spans_of(entries) == spans_of(entries)


async def test_a_joined_task_is_inside_the_call_that_waits_for_it() -> None:
    lead = editor(
        hand_on("find out", agent="finder"), "done", delegates=[worker("finder", seconds=3)]
    )
    spans = spans_of(await recorded(lead, "go"))

    root = named(spans, "invoke_agent editor")
    call = named(spans, "execute_tool delegate_task")
    child = named(spans, "invoke_agent finder")
    assert root.parent == 0
    assert call.parent == root.ids.span
    assert child.parent == call.ids.span
    assert {root.ids.trace} == {span.ids.trace for span in spans}
    assert call.start <= child.start < child.end <= call.end
    assert child.end - child.start == pytest.approx(3)
    assert child.attributes[names.OUR_MODE] == "joined"
    assert child.attributes[names.AGENT_NAME] == "finder"


async def test_a_detached_task_has_its_own_trace_with_links_in_both_directions() -> None:
    lead = editor(
        hand_on("watch", background=True), "started", "thanks", delegates=[worker(seconds=60)]
    )
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            async for reply in session.replies:
                assert reply.text == "thanks"
                break
    spans = spans_of(journal.entries)

    child = named(spans, "invoke_agent worker")
    call = named(spans, "execute_tool delegate_task")
    first, second = (span for span in spans if span.name == "invoke_agent editor")
    assert child.parent == 0
    assert child.ids == task_trace(session.tree.children(session.tree.root)[0])
    assert child.links == (call.ids,)
    assert call.links == (child.ids,)
    assert first.links == ()
    assert second.links == (child.ids,)
    assert [first.ids, second.ids] == [turn_ids(session.id, it, UNSET)[0] for it in (1, 2)]
    assert child.end > first.end


async def test_a_failed_task_and_a_failed_tool_have_errors() -> None:
    @tool
    async def explode() -> str:
        """Fail."""
        await trio.lowlevel.checkpoint()
        raise ToolError("boom")

    child = Agent("child", model=ScriptedModel([ValueError("no connection")]))
    model = ScriptedModel([ToolCall("explode"), hand_on("try"), "sorry"])
    lead = Agent("lead", model=model, tools=[explode], delegates=[child])
    spans = spans_of(await recorded(lead, "go"))

    assert named(spans, "execute_tool explode").failed
    failed = named(spans, "invoke_agent child")
    assert failed.failed
    assert failed.attributes[names.OUR_ENDING] == "failed"
    assert "no connection" in failed.error
    assert not named(spans, "invoke_agent lead").failed


async def test_content_is_left_out_unless_it_is_asked_for() -> None:
    steps = [hand_on("the secret plan"), "all told"]
    lead = editor(*steps, delegates=[worker(says="x" * (MAX_TEXT + 10))])
    entries = await recorded(lead, "go")

    plain = [span for span in spans_of(entries) if "secret plan" in repr(span)]
    assert plain == []
    spans = spans_of(entries, content=True)
    child = named(spans, "invoke_agent worker")
    assert "the secret plan" in str(child.attributes[names.INPUT_MESSAGES])
    assert len(str(child.attributes[names.OUTPUT_MESSAGES])) == MAX_TEXT
    assert child.attributes[names.OUR_CUT] == (names.OUTPUT_MESSAGES,)
    lead_span = named(spans, "invoke_agent editor")
    assert '"content": "go"' in str(lead_span.attributes[names.INPUT_MESSAGES])
    assert "the secret plan" in str(
        named(spans, "execute_tool delegate_task").attributes[names.TOOL_ARGUMENTS]
    )


async def test_a_call_of_a_model_names_its_provider_and_usage() -> None:
    said = AssistantMessage(
        "hello", usage=Usage(1, 70, 5, cached_tokens=64), model="openai:gpt-5-mini"
    )

    async def answer(_: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        return said

    model = FunctionModel(answer)
    spans = spans_of(await recorded(Agent("lead", model=model), "go"))

    chat = named(spans, "chat gpt-5-mini")
    assert chat.kind == "client"
    assert chat.attributes[names.PROVIDER] == "openai"
    assert chat.attributes[names.INPUT_TOKENS] == 70
    assert chat.attributes[names.OUTPUT_TOKENS] == 5
    assert chat.attributes[names.CACHE_READ_TOKENS] == 64


async def test_a_cancelled_call_ends_with_its_task() -> None:
    @tool
    async def hang() -> str:
        """Wait forever."""
        await trio.sleep_forever()
        raise AssertionError

    lead = Agent("lead", model=ScriptedModel([ToolCall("hang")]), tools=[hang])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        with trio.move_on_after(5):
            await orchestrator.run(lead, "go")
    spans = spans_of(journal.entries)

    call, root = named(spans, "execute_tool hang"), named(spans, "invoke_agent lead")
    assert call.attributes[names.ERROR_TYPE] == "broken_off"
    assert root.attributes[names.OUR_ENDING] == "cancelled"
    assert call.end == root.end


async def test_ended_turns_leave_no_state() -> None:
    lead = editor(*[hand_on("a", "b", background=False), "done"] * 30, delegates=[worker()])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            for _ in range(30):
                await session.ask("go")
    spans = SessionSpans(session.id)
    ended = [span for entry in journal.entries for span in spans.add(entry)]

    assert len(ended) == 30 * 8
    assert not spans.is_open
    assert [it for it in vars(spans).values() if isinstance(it, dict) and it] == []
