"""A turn runs until the final answer, and goes on wherever its transcript stands."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallId,
    LimitExceededError,
    Limits,
    Message,
    Model,
    ModelError,
    ModelRequest,
    OutputError,
    Price,
    RefusedBy,
    ScriptedModel,
    Tool,
    ToolCall,
    ToolError,
    ToolMessage,
    Transcript,
    UserMessage,
    take_turn,
    tool,
    unanswered_calls,
)
from orchestrator.agents.redaction.named_values import REDACTED
from orchestrator.agents.turn_host import Step
from orchestrator.testing import SpyModel
from tests.agents.turn_kit import MemoryHost, TestHost

GO = UserMessage("go")
LIMITS = Limits()
# Two calls that are alike but for their ids.
FIRST, SECOND = (ToolCall("send", {"letter": "x"}, id=CallId(i)) for i in ("a", "b"))
SENDS_TWICE = AssistantMessage(calls=(FIRST, SECOND))


class ScriptedSpy(SpyModel):
    """Follows a script, and keeps the requests."""

    def __init__(self, *steps: Any) -> None:
        super().__init__(steps)

    @property
    def tool_texts(self) -> list[str]:
        """Return the texts of the tools that the last request came with."""
        transcript = self.requests[-1].transcript
        return [message.text for message in transcript if isinstance(message, ToolMessage)]


class Turn:
    """A turn to be taken, and the steps it has recorded."""

    def __init__(
        self,
        model: Model,
        *tools: Tool,
        transcript: Sequence[Message] = (GO,),
        limits: Limits = LIMITS,
        record: Callable[[Step], Step] | None = None,
        ready: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> None:
        self.agent: Agent[Any] = Agent("editor", instructions="Edit.", model=model, limits=limits)
        self.model = model
        self.tools = tools
        self.transcript = transcript
        self.host = TestHost(record=record, ready=ready)
        self.steps = self.host.steps

    async def take(self) -> str:
        return await take_turn(
            self.agent, self.transcript, model=self.model, tools=self.tools, host=self.host
        )


@tool(idempotent=True)
async def double(number: int) -> int:
    await trio.sleep(number)
    return number * 2


@tool
async def send(letter: str) -> str:
    await trio.sleep(1)
    return f"sent {letter}"


async def test_a_final_answer_ends_the_turn() -> None:
    turn = Turn(ScriptedModel(["42"]))

    assert await turn.take() == "42"
    assert [step.text for step in turn.steps] == ["42"]


async def test_an_agent_with_an_empty_transcript_may_speak_first() -> None:
    assert await Turn(ScriptedModel(["hello"]), transcript=()).take() == "hello"


async def test_the_request_holds_instructions_tools_and_transcript() -> None:
    model = ScriptedSpy("42")
    turn = Turn(model, send, double)

    await turn.take()

    request = ModelRequest(
        instructions="Edit.", transcript=(GO,), tools=(send, double), tell=turn.host.emit
    )
    assert model.requests == [request]


async def test_a_tool_answers_and_the_model_goes_on() -> None:
    model = ScriptedSpy(ToolCall("double", {"number": 21}), "it is 42")
    turn = Turn(model, double)

    assert await turn.take() == "it is 42"
    asked, answered, _ = turn.steps
    assert isinstance(asked, AssistantMessage)
    assert answered == ToolMessage(asked.calls[0].id, "42", failed=False)
    assert model.requests[-1].transcript == (GO, asked, answered)


async def test_the_transcript_of_the_caller_is_left_alone() -> None:
    """The caller that holds it appends the recorded steps."""
    transcript: list[Message] = [GO]

    await Turn(ScriptedModel(["42"]), transcript=transcript).take()

    assert transcript == [GO]


async def test_parallel_calls_run_at_the_same_time() -> None:
    model = ScriptedSpy([ToolCall("double", {"number": n}) for n in (30, 10, 20)], "done")

    await Turn(model, double).take()

    assert trio.current_time() == 30
    assert model.tool_texts == ["20", "40", "60"]


async def test_each_of_two_equal_calls_is_answered() -> None:
    """A tool gets the whole call, and may tell them apart by their ids."""

    async def run(call: ToolCall) -> str:
        await trio.lowlevel.checkpoint()
        return call.id

    which = Tool(name="which", description="", parameters={}, run=run)
    model = ScriptedSpy([ToolCall("which"), ToolCall("which")], "done")
    turn = Turn(model, which)

    await turn.take()

    answers = [step for step in turn.steps if isinstance(step, ToolMessage)]
    assert all(answer.call == answer.text for answer in answers)
    assert len({answer.call for answer in answers}) == 2


async def test_a_tool_error_is_sent_to_the_model() -> None:
    @tool
    async def enter() -> str:
        await trio.lowlevel.checkpoint()
        raise ToolError("it is locked")

    turn = Turn(ScriptedModel([ToolCall("enter"), "then not"]), enter)

    assert await turn.take() == "then not"
    (answer,) = (step for step in turn.steps if isinstance(step, ToolMessage))
    assert (answer.text, answer.failed) == ("it is locked", True)


async def test_invalid_arguments_are_reported_to_the_model() -> None:
    model = ScriptedSpy(ToolCall("double", {"number": "two"}), "sorry")

    assert await Turn(model, double).take() == "sorry"
    assert "Expected `int`, got `str`" in model.tool_texts[0]


@pytest.mark.parametrize(("tools", "known"), [((), "none"), ((double, send), "double, send")])
async def test_an_unknown_tool_is_reported_to_the_model(
    tools: tuple[Tool, ...], known: str
) -> None:
    model = ScriptedSpy(ToolCall("fly"), "then not")

    assert await Turn(model, *tools).take() == "then not"
    assert model.tool_texts == [f"there is no tool 'fly'; there are: {known}"]


@pytest.mark.parametrize("calls", [1, 2])
async def test_any_other_error_of_a_tool_ends_the_turn(calls: int) -> None:
    @tool
    async def explode() -> None:
        await trio.sleep(1)
        raise ZeroDivisionError

    wishes = [ToolCall("explode"), ToolCall("double", {"number": 100})]
    turn = Turn(ScriptedModel([wishes[:calls]]), explode, double)

    with pytest.raises(ZeroDivisionError):
        await turn.take()

    assert trio.current_time() == 1
    assert len(turn.steps) == 1


async def test_an_error_of_the_model_ends_the_turn() -> None:
    turn = Turn(ScriptedModel([ModelError("overloaded")]))

    with pytest.raises(ModelError, match="overloaded"):
        await turn.take()

    assert turn.steps == []


async def test_a_turn_is_limited_in_model_calls() -> None:
    model = ScriptedModel.always(ToolCall("double", {"number": 1}))
    turn = Turn(model, double, limits=Limits(calls=3))

    with pytest.raises(LimitExceededError, match="limit of 3 model calls") as caught:
        await turn.take()

    assert caught.value.limit == "3 model calls"
    assert sum(isinstance(step, AssistantMessage) for step in turn.steps) == 3


async def test_the_last_call_that_is_allowed_may_give_the_answer() -> None:
    model = ScriptedModel([ToolCall("double", {"number": 1}), "2"])

    assert await Turn(model, double, limits=Limits(calls=2)).take() == "2"


async def test_a_resumed_turn_keeps_the_model_calls_it_has_used() -> None:
    """A limit that began again with every crash would be none."""
    model = ScriptedModel.always(ToolCall("double", {"number": 1}))
    limits = Limits(calls=3)
    before = Turn(model, double, limits=limits)
    with pytest.raises(LimitExceededError):
        await before.take()

    for kept in range(len(before.steps) + 1):
        resumed = Turn(model, double, limits=limits, transcript=[GO, *before.steps[:kept]])
        with pytest.raises(LimitExceededError):
            await resumed.take()
        assert [*before.steps[:kept], *resumed.steps] == before.steps


async def test_the_next_turn_starts_with_zero_usage() -> None:
    transcript: Sequence[Message] = [GO, AssistantMessage("a"), GO, AssistantMessage("b"), GO]
    turn = Turn(ScriptedModel(["c"]), transcript=transcript, limits=Limits(calls=1))

    assert await turn.take() == "c"


async def test_the_agent_acts_when_all_that_was_recorded_is_safe() -> None:
    """After a crash the journal must show all that the agent may have done."""
    log: list[str] = []

    def keep(step: Step) -> Step:
        log.append(f"kept {type(step).__name__}")
        return step

    async def wait_safe() -> None:
        await trio.sleep(5)
        log.append("safe")

    def think(transcript: Transcript) -> str | ToolCall:
        log.append("asked")
        return "done" if len(transcript) > 1 else ToolCall("act")

    @tool
    async def act() -> None:
        await trio.lowlevel.checkpoint()
        log.append("acted")

    model = ScriptedModel.always(think)
    await Turn(model, act, record=keep, ready=wait_safe).take()

    asked, acted = ["safe", "asked", "kept AssistantMessage"], ["safe", "acted"]
    assert log == [*asked, *acted, "kept ToolMessage", *asked]


@pytest.mark.parametrize(("acts_outside", "waits"), [(True, 3), (False, 2)])
async def test_a_tool_that_may_run_twice_waits_if_it_acts_outside(
    acts_outside: bool, waits: int
) -> None:
    async def wait_safe() -> None:
        await trio.sleep(100)

    model = ScriptedModel([ToolCall("double", {"number": 1}), "2"])
    changed = attrs.evolve(double, acts_outside=acts_outside)

    await Turn(model, changed, ready=wait_safe).take()

    # Before each of two model calls and before the tool, which takes a second.
    assert trio.current_time() == waits * 100 + 1


@pytest.mark.parametrize("acts_outside", [True, False])
async def test_an_interrupted_call_is_not_repeated_without_its_secret(acts_outside: bool) -> None:
    given: list[object] = []

    @tool(idempotent=True)
    async def sign_in(names: list[str]) -> None:
        await trio.lowlevel.checkpoint()
        given.append(names)

    call = ToolCall("sign_in", {"names": ["bob", f"password={REDACTED}"]}, id=CallId("1"))
    turn = Turn(
        ScriptedModel(["done"]),
        attrs.evolve(sign_in, acts_outside=acts_outside),
        transcript=[GO, AssistantMessage(calls=(call,))],
    )
    await turn.take()

    (answer, _) = turn.steps
    assert isinstance(answer, ToolMessage)
    assert answer.refused_by is (RefusedBy.CRASH if acts_outside else None)
    assert bool(given) is not acts_outside


async def test_an_interrupted_turn_goes_on_when_all_that_was_recorded_is_safe() -> None:
    """The transcript may have been recorded a moment ago."""
    transcripts: list[Sequence[Message]] = [
        [GO],
        [GO, AssistantMessage(calls=(FIRST,))],
        [GO, AssistantMessage("done")],
    ]

    async def wait_safe() -> None:
        await trio.sleep(1)

    for transcript in transcripts:
        began = trio.current_time()
        turn = Turn(ScriptedModel(["done"]), transcript=transcript, ready=wait_safe)
        with trio.move_on_after(0.5):
            await turn.take()
        assert turn.steps == []
        assert trio.current_time() == began + 0.5


async def test_the_model_reads_steps_in_recorded_order() -> None:
    """A turn that is resumed reads them in that order, and must go on as if it never stopped."""
    model = ScriptedSpy([ToolCall("double", {"number": 1})] * 5, "done")
    turn = Turn(model, double)

    await turn.take()

    assert model.requests[-1].transcript == (GO, *turn.steps[:-1])


async def test_a_turn_stops_when_a_step_cannot_be_recorded() -> None:
    """It would be unknown after a crash."""

    def lose(_: Step) -> Step:
        raise OSError("the disk is full")

    model = ScriptedSpy(ToolCall("send", {"letter": "x"}))

    with pytest.raises(OSError, match="the disk is full"):
        await Turn(model, send, record=lose).take()

    assert trio.current_time() == 0


async def test_a_turn_stops_when_its_steps_cannot_be_made_durable() -> None:
    async def lose() -> None:
        await trio.lowlevel.checkpoint()
        raise OSError("the disk is full")

    model = ScriptedSpy("42")

    with pytest.raises(OSError, match="the disk is full"):
        await Turn(model, ready=lose).take()

    assert model.requests == []


def doubles_some(transcript: Transcript) -> str | ToolCall | list[ToolCall]:
    received = [message.text for message in transcript if isinstance(message, ToolMessage)]
    match len(received):
        case 0:
            return ToolCall("double", {"number": 1})
        case 1:
            return [ToolCall("double", {"number": n}) for n in (2, 3, 4)]
        case _:
            return " ".join(received)


async def test_a_turn_resumes_from_each_of_its_steps() -> None:
    """Wherever a crash leaves it, it comes to the same answer by the same steps."""
    model = ScriptedModel.always(doubles_some)
    whole = Turn(model, double)
    answer = await whole.take()

    assert answer == "2 4 6 8"
    for kept in range(len(whole.steps) + 1):
        resumed = Turn(model, double, transcript=[GO, *whole.steps[:kept]])
        assert await resumed.take() == answer
        assert [*whole.steps[:kept], *resumed.steps] == whole.steps


async def test_a_turn_goes_on_after_it_was_cancelled_at_any_time() -> None:
    model = ScriptedModel.always(doubles_some)
    steps: list[Step] = []
    answer = ""
    for _ in range(6):
        turn = Turn(model, double, transcript=[GO, *steps])
        with trio.move_on_after(2.5 + len(steps) / 2):
            answer = await turn.take()
        steps += turn.steps

    assert answer == "2 4 6 8"
    assert unanswered_calls(steps) == []


async def test_a_recorded_final_answer_needs_no_model() -> None:
    turn = Turn(ScriptedModel([]), transcript=[GO, AssistantMessage("42")])

    with trio.testing.assert_checkpoints():
        assert await turn.take() == "42"
    assert turn.steps == []


async def test_a_broken_off_call_is_not_made_again() -> None:
    """It is unknown whether the letter was sent, and the model reads just that."""
    model = ScriptedSpy("then I will ask")
    turn = Turn(model, send, transcript=[GO, SENDS_TWICE, ToolMessage(SECOND.id, "sent")])

    assert await turn.take() == "then I will ask"
    assert trio.current_time() == 0
    broken_off = turn.steps[0]
    assert isinstance(broken_off, ToolMessage)
    assert (broken_off.call, broken_off.failed) == (FIRST.id, True)
    assert broken_off.text.startswith("broken off: ")
    assert model.requests[0].transcript[-1] == broken_off


async def test_a_broken_off_call_that_may_be_repeated_is() -> None:
    number = ToolCall("double", {"number": 2}, id=CallId("c"))
    turn = Turn(
        ScriptedModel(["done"]),
        send,
        double,
        transcript=[GO, AssistantMessage(calls=(FIRST, number))],
    )

    await turn.take()

    answers = {step.call: step for step in turn.steps if isinstance(step, ToolMessage)}
    assert answers[FIRST.id].failed
    assert answers[number.id] == ToolMessage(number.id, "4")


async def test_a_broken_off_call_of_a_removed_tool_is_answered() -> None:
    turn = Turn(ScriptedModel(["done"]), transcript=[GO, SENDS_TWICE])

    assert await turn.take() == "done"
    assert [step.text[:10] for step in turn.steps] == ["broken off", "broken off", "done"]


async def test_a_call_that_an_earlier_turn_left_open_is_closed() -> None:
    """A turn may end in the midst of a call, and providers take no transcript with open ones."""
    model = ScriptedSpy("here I am")
    again = UserMessage("are you there?")

    await Turn(model, send, transcript=[GO, SENDS_TWICE, again]).take()

    *before, last = model.requests[0].transcript
    assert before[:2] == [GO, SENDS_TWICE]
    assert unanswered_calls(before) == []
    assert last == again


@pytest.mark.parametrize(
    ("limits", "limit"), [(Limits(tokens=50), "50 tokens"), (Limits(usd=0.001), "$0.001")]
)
async def test_a_turn_is_limited_in_tokens_and_money(limits: Limits, limit: str) -> None:
    price = Price(input=10, output=10)
    steps = [ToolCall("double", {"number": number}) for number in range(50)]
    turn = Turn(ScriptedModel(steps, price=price), double, limits=limits)

    with pytest.raises(LimitExceededError) as caught:
        await turn.take()

    assert caught.value.limit == limit
    assert 2 <= len(turn.steps) < 50


async def test_the_same_call_with_the_same_answer_is_refused_in_the_end() -> None:
    """A model that repeats itself reads so, and does not go on for ever."""
    runs: list[int] = []

    @tool
    async def look() -> str:
        await trio.lowlevel.checkpoint()
        runs.append(1)
        return "nothing new"

    model = ScriptedSpy(*[ToolCall("look")] * 7, "given up")

    assert await Turn(model, look, limits=Limits(repeats=3)).take() == "given up"
    assert len(runs) == 3
    assert "this very call 3 times" in model.requests[-1].transcript[-1].text


async def test_a_call_with_changing_answers_may_be_repeated() -> None:
    runs: list[int] = []

    @tool
    async def count() -> int:
        await trio.lowlevel.checkpoint()
        runs.append(1)
        return len(runs)

    model = ScriptedSpy(*[ToolCall("count")] * 7, "done")

    await Turn(model, count, limits=Limits(repeats=3)).take()

    assert len(runs) == 7


async def test_an_answer_that_cannot_be_read_is_asked_for_once_more() -> None:
    model = ScriptedSpy("[1, 2", "[1, 2]")
    turn = Turn(model)
    turn.agent = Agent("lister", model=model, output=list[int])

    assert await turn.take() == "[1, 2]"
    assert "Your answer could not be read" in model.requests[-1].transcript[-1].text
    assert [type(step) for step in turn.steps] == [AssistantMessage, AssistantMessage]


async def test_an_answer_that_cannot_be_read_twice_fails() -> None:
    turn = Turn(ScriptedSpy("no", "still no"))
    turn.agent = Agent("lister", model=turn.model, output=list[int])

    with pytest.raises(OutputError, match="is not the list"):
        await turn.take()


async def test_a_repair_goes_on_after_a_crash() -> None:
    """The complaint is not kept: it follows from the answer that is."""
    model = ScriptedSpy("[1]")
    turn = Turn(model, transcript=[GO, AssistantMessage("no")])
    turn.agent = Agent("lister", model=model, output=list[int])

    assert await turn.take() == "[1]"
    assert "could not be read" in model.requests[0].transcript[-1].text


async def test_instructions_may_depend_on_the_occasion() -> None:
    model = ScriptedSpy("ja")
    turn = Turn(model)
    turn.agent = Agent(
        "poet",
        instructions=lambda occasion: f"{occasion.agent} does: {occasion.goal}",
        language="German",
        model=model,
    )

    await turn.take()

    assert model.requests[0].instructions == f"poet does: {GO.text}\n\nAnswer in German."


async def test_a_complaint_stands_while_the_repair_uses_tools() -> None:
    model = ScriptedSpy("no", ToolCall("double", {"number": 1}), "[1]")
    turn = Turn(model, double)
    turn.agent = Agent("lister", model=model, output=list[int])

    assert await turn.take() == "[1]"
    assert "could not be read" in model.requests[-1].transcript[-1].text


async def test_a_call_for_the_client_ends_the_turn() -> None:
    """Its neighbours are run and answered first; the client answers it."""
    theirs = attrs.evolve(double, name="theirs", runs_at_caller=True)
    calls = [ToolCall("theirs", {"number": 1}), ToolCall("double", {"number": 21})]
    turn = Turn(ScriptedSpy(calls), double, theirs)

    assert await turn.take() == ""

    asked, answered = turn.steps
    assert isinstance(asked, AssistantMessage)
    assert answered == ToolMessage(asked.calls[1].id, "42")
    assert unanswered_calls([GO, asked, answered]) == [asked.calls[0]]


async def test_extra_instructions_follow_the_instructions_of_the_agent() -> None:
    for own, events in (("Edit.", "Edit.\n\nBe brief."), ("", "Be brief.")):
        model = ScriptedSpy("42")
        await take_turn(
            Agent("editor", instructions=own, model=model),
            [GO],
            model=model,
            tools=[],
            host=MemoryHost(),
            extra_instructions="Be brief.",
        )

        assert model.requests[0].instructions == events
