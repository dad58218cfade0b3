"""Handoff: an agent gives its conversation away, and the answer of the other one is its own."""

from collections import Counter
from typing import Any

import attrs
import pytest
import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Budget,
    DefinitionError,
    Message,
    ModelRequest,
    Part,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
    agent,
    tool,
)
from orchestrator.cli.terminal.transcript import transcript_lines
from orchestrator.delegation import Cause, Ending, Mode, Reason, Rules
from orchestrator.delegation.events import (
    ModelAnswered,
    SessionOpened,
    TaskRequested,
    TaskSettled,
    TurnEnded,
    TurnStarted,
)
from orchestrator.delegation.notices import HANDED_OFF
from orchestrator.products.history.replay.run import replay_sync
from orchestrator.testing import Harness
from tests.kit import FunctionModel, facts, run, tool_answers, worker
from tests.orchestrator.test_replay import run_of, talk_with


def give(goal: str = "Refund it.", **arguments: Any) -> ToolCall:
    return ToolCall("delegate_task", {"goal": goal, "handoff": True} | arguments)


def desk(*steps: Any, **options: Any) -> Agent[Any]:
    """Return an agent that follows a script, and may hand off to `billing`."""
    delegates = options.pop("delegates", None) or [worker("billing", says="Refunded.")]
    return Agent("desk", model=ScriptedModel(steps), delegates=delegates, handoff=True, **options)


def texts(transcript: Transcript) -> list[tuple[str, str]]:
    return [(type(it).__name__, it.text) for it in transcript]


async def test_the_answer_of_the_other_agent_ends_the_turn() -> None:
    """The script has no second step: the model is not called again."""
    ended = await run(desk(give()))

    assert ended.output == "Refunded."
    (child,) = ended.tree.find(agent="billing")
    assert ended.tree[child].mode is Mode.JOINED
    assert ended.tree[child].reason is Reason.HANDED_OFF


async def test_a_handoff_passes_the_conversation_and_the_goal_without_tool_results() -> None:
    read: list[list[tuple[str, str]]] = []

    @tool
    async def look_up(name: str) -> str:
        """Look a customer up."""
        await trio.lowlevel.checkpoint()
        return f"{name} is in a file"

    def answer(transcript: Transcript) -> str:
        read.append(texts(transcript))
        return "Refunded."

    billing = Agent("billing", model=ScriptedModel.always(answer))
    steps = [
        AssistantMessage("What did you buy?"),
        AssistantMessage("Let me see.", (ToolCall("look_up", {"name": "Ann"}),)),
        AssistantMessage("I get the right person.", (give(),)),
    ]

    async def talk(request: ModelRequest) -> str | AssistantMessage:
        await trio.lowlevel.checkpoint()
        return steps.pop(0) if steps else request.transcript[-2].text

    talker = attrs.evolve(desk(delegates=[billing], tools=[look_up]), model=FunctionModel(talk))
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(talker) as session:
            await session.ask("I want my money back")
            reply = await session.ask("A lamp")
            later = await session.ask("Thanks")

    assert reply.text == "Refunded."
    assert later.text == "Refunded.", "the next turn is the parent's, which has read it"
    assert read == [
        [
            ("UserMessage", "I want my money back"),
            ("AssistantMessage", "What did you buy?"),
            ("UserMessage", "A lamp"),
            ("AssistantMessage", "Let me see."),
            ("AssistantMessage", "I get the right person."),
            ("UserMessage", f"{HANDED_OFF}\n\nRefund it."),
        ]
    ]


async def test_a_later_handoff_reads_the_answer_of_an_earlier_one() -> None:
    read: list[list[str]] = []

    def answer(transcript: Transcript) -> Any:
        read.append([it.text for it in transcript])
        return [LookupError("no till"), "The lamp.", "The vase."][len(read) - 1]

    billing = Agent("billing", model=ScriptedModel([answer] * 3))
    talker = desk(give("1"), give("2"), give("3"), delegates=[billing])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(talker) as session:
            first = await session.ask("A lamp is broken")
            second = await session.ask("A vase, too")

    assert (first.text, second.text) == ("The lamp.", "The vase.")
    assert read[1:] == [
        ["A lamp is broken", f"{HANDED_OFF}\n\n2"],
        ["A lamp is broken", "The lamp.", "A vase, too", f"{HANDED_OFF}\n\n3"],
    ]


async def test_images_of_the_user_are_handed_over_too() -> None:
    read: list[Message] = []
    image = Part("image/png", data=b"\x89PNG")

    def answer(transcript: Transcript) -> str:
        read.extend(transcript)
        return "A lamp."

    billing = Agent("billing", model=ScriptedModel.always(answer))
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(desk(give(), delegates=[billing])) as session:
            await session.ask("What is it?", image)

    assert read[0] == UserMessage("What is it?", (image,))


@pytest.mark.realtime
async def test_a_secret_in_the_conversation_stays_out_of_the_journal() -> None:
    journal = MemoryJournal()
    secret = "sk-proj-" + "a1B2c3D4e5" * 5
    long = "word " * 3_000
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(desk(give()), f"{long} my key is {secret}")

    (requested,) = facts(journal.entries, TaskRequested)
    handed = requested.request.handed
    assert handed
    (said,) = handed
    assert said.text.startswith("word word")
    assert secret not in said.text


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (give("", tasks=[{"goal": "a"}]), "one goal, and not in the background"),
        (give(background=True), "one goal, and not in the background"),
        (give(""), "every task needs a goal"),
        (give(handoff="yes"), "Expected `bool`"),
    ],
)
async def test_an_impossible_handoff_is_refused(call: ToolCall, problem: str) -> None:
    heard: list[Any] = []

    def again(transcript: Transcript) -> str:
        heard.extend(tool_answers(transcript))
        return "I do it."

    assert (await run(desk(call, again))).output == "I do it."
    assert problem in heard[0]


async def test_a_handoff_must_be_the_only_call() -> None:
    """The other call has its effect; which answer would be the last is not left to chance."""
    heard: list[Any] = []

    def again(transcript: Transcript) -> str:
        heard.extend(tool_answers(transcript))
        return "I do it."

    both = [give(), ToolCall("delegate_task", {"goal": "b"})]
    ended = await run(desk(both, again))

    assert ended.output == "I do it."
    assert len(ended.tree.find(agent="billing")) == 1
    assert sum("must be your only call" in str(it) for it in heard) == 1


async def test_a_handoff_names_one_of_several_agents_and_no_pipeline() -> None:
    @agent
    async def form(text: str) -> str:
        await trio.lowlevel.checkpoint()
        return text

    heard: list[Any] = []

    def again(transcript: Transcript) -> Any:
        heard.append(tool_answers(transcript)[-1])
        return give(agent="form") if len(heard) == 1 else give(agent="sales")

    team = [worker("billing"), worker("sales", says="Sold."), form]

    assert (await run(desk(give(), again, again, delegates=team))).output == "Sold."
    assert heard == ["say which agent takes the conversation over: billing, sales"] * 2


async def test_the_parent_reads_the_error_of_a_failed_handoff_and_continues() -> None:
    heard: list[Any] = []

    def again(transcript: Transcript) -> str:
        message = transcript[-1]
        assert isinstance(message, ToolMessage)
        assert message.failed
        heard.append(message.text)
        return "I do it."

    broken = Agent("billing", model=ScriptedModel.always(LookupError("no till")))
    agent = desk(give(), again, delegates=[broken])

    assert (await run(agent)).output == "I do it."
    assert "no till" in heard[0]
    assert '"status":"failed"' in heard[0]


async def test_a_failed_handoff_does_not_return_the_text_of_its_parent() -> None:
    async def talk(request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        is_first = not isinstance(request.transcript[-1], ToolMessage)
        return AssistantMessage("One moment.", (give(),) if is_first else ())

    broken = Agent("billing", model=ScriptedModel.always(LookupError("no till")))
    parent = attrs.evolve(desk(delegates=[broken]), model=FunctionModel(talk))
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(parent, "go")

    (child,) = facts(journal.entries, TaskSettled)
    assert child.outcome.ending is Ending.FAILED
    assert not child.outcome.output


def test_a_replay_of_one_that_failed_is_the_same() -> None:
    def step(transcript: Transcript) -> Any:
        return "I do it." if isinstance(transcript[-1], ToolMessage) else give()

    broken = Agent("billing", model=ScriptedModel.always(LookupError("no till")))
    agent = attrs.evolve(desk(delegates=[broken]), model=ScriptedModel.always(step))

    assert replay_sync(run_of(agent), agent).is_same


@attrs.frozen
class Refund:
    euros: int


async def test_the_output_of_a_handoff_has_the_promised_type() -> None:
    right = worker("billing", says='{"euros": 3}')
    typed = desk(give(), output=Refund, delegates=[right])

    assert (await run(typed)).output == Refund(3)


async def test_the_parent_repairs_a_handed_off_output_of_the_wrong_type() -> None:
    heard: list[str] = []

    def again(transcript: Transcript) -> str:
        heard.append(transcript[-1].text)
        return '{"euros": 4}'

    typed = desk(give(), again, output=Refund)

    assert (await run(typed)).output == Refund(4)
    assert heard[0].startswith("Your answer could not be read")


async def test_a_handoff_is_repeated_up_to_the_repair_limit() -> None:
    typed = desk(*[give(f"{n}") for n in range(9)], output=Refund)
    ended = await run(typed)

    assert ended.outcome.cause is Cause.OUTPUT
    assert len(ended.tree.find(agent="billing")) == typed.limits.repairs + 1


async def test_a_handed_off_agent_may_hand_off_again() -> None:
    read: list[list[tuple[str, str]]] = []

    def answer(transcript: Transcript) -> str:
        read.append(texts(transcript))
        return "Done."

    last = Agent("last", model=ScriptedModel.always(answer))
    middle = Agent("middle", model=ScriptedModel([give("Second.")]), delegates=[last], handoff=True)

    assert (await run(desk(give("First."), delegates=[middle]))).output == "Done."
    assert [text for _, text in read[0]] == [
        "go",
        f"{HANDED_OFF}\n\nFirst.",
        f"{HANDED_OFF}\n\nSecond.",
    ]


async def test_a_handoff_has_depth_budgets_and_cancellation_like_any_child() -> None:
    refused = await run(desk(give(), "I do it."), rules=Rules(depth=0))
    assert refused.output == "I do it."

    over = await run(desk(give(), budget=Budget(calls=1)))
    assert over.outcome.ending is Ending.OVER_BUDGET

    slow = desk(give(), delegates=[worker("billing", seconds=60)])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        with trio.move_on_after(5):
            await orchestrator.run(slow, "go")
    (child,) = facts(journal.entries, TaskSettled)
    assert child.outcome.ending is Ending.CANCELLED


def crashing_team(asked: Counter[str], *, fits: bool) -> Agent[Any]:
    """Return a team on models that are functions of the transcript, and count their calls."""

    def lead(transcript: Transcript) -> Any:
        asked["desk"] += 1
        return '{"euros": 4}' if transcript[-1].text.startswith("Your") else give()

    def take(transcript: Transcript) -> str:
        asked["billing"] += 1
        assert [it.text for it in transcript] == ["go", f"{HANDED_OFF}\n\nRefund it."]
        return '{"euros": 3}' if fits else "three"

    billing = Agent("billing", model=ScriptedModel.always(take))
    model = ScriptedModel.always(lead)
    return Agent("desk", model=model, delegates=[billing], handoff=True, output=Refund)


@pytest.mark.parametrize("fits", [True, False])
async def test_a_crash_after_any_entry_ends_the_turn_in_the_same_way(fits: bool) -> None:
    whole = Harness()
    expected = await whole.run(crashing_team(Counter(), fits=fits), "go")
    assert expected.output == Refund(3 if fits else 4)
    answers = len(whole.facts(ModelAnswered))
    assert answers == (2 if fits else 3)
    first = next(entry.seq for entry in whole.entries if isinstance(entry.event, TurnStarted))
    assert len(whole.entries) - first > 3
    for length in range(first, len(whole.entries)):
        harness, asked = Harness(), Counter[str]()
        async with harness.open(crash_after=length) as orchestrator:
            await orchestrator.run(crashing_team(Counter(), fits=fits), "go")
        (opened,) = harness.facts(SessionOpened)
        answered = len(harness.facts(ModelAnswered))
        async with harness.open() as orchestrator:
            again = await orchestrator.resume(crashing_team(asked, fits=fits), opened.session)

        assert again.output == expected.output, length
        assert asked.total() == answers - answered, "what is paid for is kept"
        assert len(harness.facts(TaskRequested)) == 1
        assert len(harness.facts(TurnEnded)) == 1
        harness.assert_laws()


async def test_a_restarted_handoff_has_the_conversation_again() -> None:
    billing = attrs.evolve(worker("billing", says="Refunded."), on_restart="restart")
    harness = Harness()
    whole = Harness()
    await whole.run(desk(give(), delegates=[billing]), "go")
    answered = [it.seq for it in whole.entries if isinstance(it.event, ModelAnswered)][-1]
    async with harness.open(crash_after=answered) as orchestrator:
        await orchestrator.run(desk(give(), delegates=[billing]), "go")
    (opened,) = harness.facts(SessionOpened)
    read: list[list[str]] = []

    def answer(transcript: Transcript) -> str:
        read.append([it.text for it in transcript])
        return "Refunded."

    anew = attrs.evolve(billing, model=ScriptedModel.always(answer))
    async with harness.open() as orchestrator:
        again = await orchestrator.resume(desk(delegates=[anew]), opened.session)

    assert again.output == "Refunded."
    assert read == [["go", f"{HANDED_OFF}\n\nRefund it."]]


def test_a_replay_is_the_same_and_calls_no_model() -> None:
    agent = attrs.evolve(desk(), model=ScriptedModel.always(give()))

    assert replay_sync(run_of(agent), agent).is_same
    assert replay_sync(talk_with(agent), agent).is_same
    without = attrs.evolve(agent, handoff=False)
    assert not replay_sync(run_of(agent), without).is_same


def test_show_names_a_handoff() -> None:
    entries = [it for it in run_of(desk(give())) if isinstance(it.event, TaskRequested)]
    shown = "\n".join(line.plain for line in transcript_lines(entries))

    assert "joined: the caller handed the conversation off to it" in shown
    assert "the user: go" in shown


def test_only_agents_with_handoff_have_the_argument() -> None:
    def arguments(agent: Agent[Any]) -> set[str]:
        found: list[set[str]] = []

        async def main() -> None:
            await run(attrs.evolve(agent, model=model))

        class Model:
            name = "reader"

            async def answer(self, request: Any) -> AssistantMessage:
                await trio.lowlevel.checkpoint()
                found.append(set(request.tools[0].parameters["properties"]))
                return AssistantMessage("ok")

        model = Model()
        trio.run(main)
        return found[0]

    may = arguments(desk())
    assert may - arguments(attrs.evolve(desk(), handoff=False)) == {"handoff"}


def test_an_agent_without_delegates_cannot_hand_off() -> None:
    with pytest.raises(DefinitionError, match="no delegates to hand its conversation"):
        Agent("a", model="a:b", copies=True, handoff=True)

    assert not desk().leaf().handoff
