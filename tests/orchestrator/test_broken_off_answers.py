"""An answer that is broken off is kept as far as it had come: its text, its tokens, its cost."""

from contextlib import nullcontext
from typing import Any

import pytest
import trio

from orchestrator import MemoryJournal, budget, open_orchestrator, race
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallDelta,
    Failure,
    Limits,
    ModelError,
    ModelRequest,
    Patience,
    Price,
    Queued,
    ReasoningDelta,
    Retrying,
    ToolCall,
    Usage,
    tool,
)
from orchestrator.delegation import Cause, Ending
from orchestrator.delegation.events import ModelFailed, ModelFailure, TaskSettled, TurnResumed
from orchestrator.kernel.journal.run_history import read_history
from orchestrator.products.history.replay.run import replay_sync
from orchestrator.testing import SpyModel, StreamingModel
from tests.kit import FunctionModel, editor, facts, hand_on, run, tool_answers, worker
from tests.orchestrator.test_replay import run_of

SAID = "Roses are red, violets "
PIECES = ("Roses are ", "red, ", "violets ")


def priced(*pieces: Any) -> StreamingModel:
    return StreamingModel.always(*pieces, price=Price(input=1_000, output=4_000))


def poet(*more: Any, **options: Any) -> Agent[Any]:
    """Return an agent that says three pieces, and then nothing for an hour."""
    model = priced(*PIECES, *more, 3_600, "are blue")
    return Agent("poet", model=model, **options)


def broken_off(journal: MemoryJournal) -> ModelFailed:
    (fact,) = facts(journal.entries, ModelFailed)
    assert fact.reason is ModelFailure.BROKEN_OFF
    return fact


async def test_a_timed_out_answer_keeps_its_partial_text_and_usage() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        ran = await orchestrator.run(poet(limits=Limits(seconds=5)), "a poem")

    assert ran.outcome.cause is Cause.DEADLINE
    assert ran.outcome.output == SAID
    assert broken_off(journal).text == SAID
    used = ran.usage
    assert (used.calls, used.estimated, used.unpriced) == (1, 1, 0)
    assert used.output_tokens == len(SAID) // 4 + 1
    assert used.input_tokens >= 1
    assert used.micro_usd == used.input_tokens * 1_000 + used.output_tokens * 4_000
    line = ran.tree.to_text()
    assert f"~{used.tokens} tok" in line
    assert "≥ $" in line


@pytest.mark.parametrize(
    "limits", [{}, {"calls": 5}, {"tokens": 100_000}, {"usd": 900}, {"seconds": 90}]
)
async def test_a_tree_shows_the_same_of_it_under_any_budget(limits: dict[str, Any]) -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(**limits) if limits else nullcontext():
            ran = await orchestrator.run(poet(limits=Limits(seconds=5)), "a poem")

    assert ran.outcome.output == SAID
    assert (ran.usage.input_tokens, ran.usage.output_tokens) == (1, 6)
    assert ran.usage.micro_usd == 25_000


async def test_a_cancelled_child_hands_its_partial_text_to_its_parent() -> None:
    spy = SpyModel([hand_on("a poem", agent="poet", background=False), "end"])
    lead = Agent("lead", model=spy, delegates=[poet()])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, lead, "go")
            await trio.sleep(5)
            tree = orchestrator.tree(orchestrator.runs[-1])
            (child,) = tree.children(tree.root)
            await orchestrator.cancel(child)
            kept = await orchestrator.read.task(child)
        session = kept.session.id
        entries = await orchestrator.read.entries(session)

    history = read_history(session, entries, has_writer=False, wants_transcript=lambda _: True)
    transcript = history.transcripts[child].messages
    assert kept.task.outcome is not None
    assert kept.task.outcome.output == SAID
    assert tree[child].total.estimated == 1
    last = transcript[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.text, last.incomplete) == (SAID, True)
    (answer,) = tool_answers(spy.requests[-1].transcript)
    assert answer["results"][0]["output"] == SAID
    assert answer["results"][0]["estimated_calls"] == 1


async def test_a_stalled_child_and_the_loser_of_a_race_keep_it_too() -> None:
    stalled = poet(patience=Patience(quiet=5, stalled=20))
    lead = editor(hand_on("x", agent="poet"), "end", delegates=[stalled])
    for agent, ending in (
        (lead, Ending.TIMED_OUT),
        (race(worker("winner", seconds=9), poet()), Ending.CANCELLED),
    ):
        journal = MemoryJournal()
        async with open_orchestrator(journal) as orchestrator:
            ran = await orchestrator.run(agent, "a poem")

        tree, fact = ran.tree, broken_off(journal)
        assert tree[fact.task].status == ending
        assert tree[fact.task].usage.estimated == 1
        (settled,) = (
            it.outcome for it in facts(journal.entries, TaskSettled) if it.task == fact.task
        )
        assert settled.output == fact.text == SAID


async def test_the_next_turn_reads_the_partial_text_of_a_cancelled_one() -> None:
    spy = SpyModel(StreamingModel([(*PIECES, 3_600), ("are blue",)]))
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(Agent("poet", model=spy)) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "a poem")
                await trio.sleep(5)
                await orchestrator.cancel(session.id)
                nursery.cancel_scope.cancel()
            reply = await session.ask("go on")

    assert reply.text == "are blue"
    assert spy.texts[-1] == ["a poem", SAID, "go on"]


@pytest.mark.parametrize(
    ("pieces", "said"), [((), ""), (("Violets ",), "Violets ")], ids=["nothing", "some"]
)
async def test_a_cancelled_turn_returns_only_its_own_text(
    pieces: tuple[str, ...], said: str
) -> None:
    model = StreamingModel([("Roses are red.",), (*pieces, 3_600)])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(Agent("poet", model=model)) as session:
            replies = [await session.ask("a poem")]

            async def ask() -> None:
                replies.append(await session.ask("another"))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await trio.sleep(5)
                await orchestrator.cancel(session.id)

    assert replies[1].outcome.cause is Cause.ASKED
    assert replies[1].outcome.output == said


async def test_a_failed_turn_returns_no_text_of_the_turn_before() -> None:
    async def answer_once(request: ModelRequest) -> str:
        await trio.lowlevel.checkpoint()
        if len(request.transcript) > 1:
            raise ModelError("no more")
        return "Roses are red."

    model = FunctionModel(answer_once)
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(Agent("poet", model=model)) as session:
            await session.ask("a poem")
            reply = await session.ask("another")

    assert reply.outcome.cause is Cause.MODEL
    assert reply.outcome.output == ""


async def test_a_fork_reads_it_too_and_does_not_pay_for_it_again() -> None:
    spy = SpyModel(StreamingModel([(*PIECES, 3_600), (hand_on("x", background=False),), ("end",)]))
    lead = Agent("lead", model=spy, delegates=[worker()])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(lead) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "a poem")
                await trio.sleep(5)
                await orchestrator.cancel(session.id)
                nursery.cancel_scope.cancel()
            await session.ask("go on")
        again = SpyModel("other end")
        forked = await orchestrator.fork(
            Agent("lead", model=again, delegates=[worker()]), session.id, task="/lead/worker[1]"
        )

    assert again.texts[-1][:3] == ["a poem", SAID, "go on"]
    assert (forked.outcome.output, forked.usage.estimated) == ("other end", 0)


async def test_a_resumed_turn_asks_again_and_drops_the_partial_text() -> None:
    journal = MemoryJournal()
    hang = StreamingModel.always(*PIECES, 3_600)
    async with open_orchestrator(journal) as orchestrator:
        async with (
            orchestrator.open_session(Agent("poet", model=hang)) as session,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(session.ask, "a poem")
            await trio.sleep(5)
            nursery.cancel_scope.cancel()

    assert broken_off(journal).text == SAID
    spy = SpyModel(StreamingModel.always("Violets are blue"))
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(
            Agent("poet", model=spy), session=session.id
        ) as session:
            reply = await session.replies.receive()
            transcript = await orchestrator.read.transcript(session.id)

    assert facts(journal.entries, TurnResumed)
    assert reply.text == "Violets are blue"
    assert spy.texts == [["a poem"]]
    assert [message.text for message in transcript] == ["a poem", "Violets are blue"]


async def test_a_model_that_does_not_stream_was_called_all_the_same() -> None:
    async def silent(_: object) -> str:
        await trio.sleep_forever()
        return "never"

    agent = Agent("a", model=FunctionModel(silent), limits=Limits(seconds=5))
    ran = await run(agent, "x" * 400)

    assert ran.outcome.output == ""
    assert ran.usage == Usage(calls=1, input_tokens=100, unpriced=1, estimated=1), (
        "the price is unknown, too"
    )


async def test_a_call_that_waits_for_its_turn_was_never_made() -> None:
    journal = MemoryJournal()
    agent = Agent("a", model=StreamingModel.always(Queued(True), 60), limits=Limits(seconds=5))
    async with open_orchestrator(journal) as orchestrator:
        ran = await orchestrator.run(agent, "go")

    assert ran.usage == Usage()
    assert facts(journal.entries, ModelFailed) == []


async def test_a_partially_streamed_call_is_never_run() -> None:
    ran_tools: list[str] = []

    @tool
    async def launch(where: str) -> str:
        """Launch it."""
        await trio.lowlevel.checkpoint()
        ran_tools.append(where)
        return "launched"

    model = StreamingModel.always(
        ReasoningDelta("Let me think. "),
        "I launch it. ",
        CallDelta(0, "launch", '{"where": "Pa'),
        3_600,
        ToolCall("launch", {"where": "Paris"}),
    )
    agent = Agent("a", model=model, tools=[launch], limits=Limits(seconds=5))
    ran = await run(agent)

    assert ran.outcome.output == "I launch it. "
    assert ran_tools == []
    assert ran.usage.output_tokens == -(-len('Let me think. I launch it. {"where": "Pa') // 4)


async def test_the_text_of_a_failed_attempt_is_dropped_and_paid_for() -> None:
    again = Retrying(Failure.CONNECTION, "gone", 1)
    model = StreamingModel.always("Rosy ", again, "Roses ", 3_600)
    ran = await run(Agent("a", model=model, limits=Limits(seconds=5)))

    assert ran.outcome.output == "Roses "
    assert ran.usage.calls >= 1
    assert ran.usage.output_tokens >= len("Roses ") // 4


async def test_a_provider_that_fails_in_the_middle_leaves_the_text_without_numbers() -> None:
    journal = MemoryJournal()
    model = priced(*PIECES, ModelError("gone", partial=SAID))
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(Agent("a", model=model)) as session:
            reply = await session.ask("a poem")
            transcript = await orchestrator.read.transcript(session.id)

    (failed,) = facts(journal.entries, ModelFailed)
    assert (failed.reason, failed.text) == (ModelFailure.FAILED, SAID)
    assert failed.usage.estimated == 1
    assert failed.usage.output_tokens == 6
    assert reply.outcome.output == transcript[-1].text == SAID


async def test_half_a_secret_at_the_end_is_omitted_like_in_the_stream() -> None:
    key = "sk-proj-" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7" * 2
    model = StreamingModel.always("Here it is: ", key[:20], 3_600)
    whole = StreamingModel.always(f"Here it is: {key} and ", "so ", 3_600)
    for script in (model, whole):
        journal = MemoryJournal()
        agent = Agent("a", model=script, limits=Limits(seconds=5))
        async with open_orchestrator(journal) as orchestrator:
            ran = await orchestrator.run(agent, "go")
        assert ran.outcome.output.startswith("Here it is: ")
        assert key[8:20] not in repr(journal.entries)


def test_a_replay_breaks_off_where_the_record_does() -> None:
    agent = poet(limits=Limits(seconds=5))
    lead = editor(hand_on("x", agent="poet"), "end", delegates=[agent])

    assert replay_sync(run_of(agent), agent).difference is None
    assert replay_sync(run_of(lead), lead).difference is None

    async def raises(_: object) -> str:
        await trio.sleep(1)
        raise ValueError("a bug")

    broken = Agent("broken", model=FunctionModel(raises))
    lead = editor(hand_on("x", agent="broken"), "end", delegates=[broken])
    assert replay_sync(run_of(lead), lead).difference is None


async def test_the_cost_of_a_text_delta_does_not_grow_with_the_text() -> None:
    """It is joined once, when the call is broken off."""
    model = StreamingModel.always(*["so it goes "] * 20_000, 3_600)
    ran = await run(Agent("a", model=model, limits=Limits(seconds=5)))

    assert len(ran.outcome.output) == 20_000 * len("so it goes ")
