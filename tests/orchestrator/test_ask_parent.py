"""A child asks its parent: one model call beside the parent's turn, paid for by the child."""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest
import trio
import trio.testing

from orchestrator import MemoryJournal, Run, delegate, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Budget,
    DefinitionError,
    Failure,
    Hooks,
    Message,
    ModelError,
    ModelRequest,
    ModelSettings,
    ScriptedModel,
    TaskContext,
    TextDelta,
    ToolCall,
    ToolMessage,
    Transcript,
    Usage,
    UserMessage,
    agent,
    tool,
    unanswered_calls,
)
from orchestrator.agents.models.wrappers.retry import with_retries
from orchestrator.delegation import Cause
from orchestrator.delegation.events import (
    ModelCalled,
    ModelFailed,
    ModelFailure,
    SessionOpened,
    TaskSettled,
    ToolAnswered,
    TurnStarted,
)
from orchestrator.delegation.tools.ask_parent import MAX_QUESTION
from orchestrator.products.history.replay.run import replay_sync
from orchestrator.simulation import SimulationSettings, simulate
from orchestrator.testing import GatedModel, Harness, SpyModel
from tests.kit import FunctionModel, facts, hand_on, last_text, run, tool_answers

T = TypeVar("T")
ASK = ToolCall("ask_parent", {"question": "Which year?"})
USED = Usage(calls=1, input_tokens=40, output_tokens=7, unpriced=1)


def is_asked(transcript: Transcript | tuple[Message, ...]) -> bool:
    return "asks you a question" in transcript[-1].text


def child_on(model: Any, **options: Any) -> Agent:
    return Agent("clerk", model=model, asks_parent=True, **options)


def asking_child(**options: Any) -> Agent:
    return child_on(ScriptedModel([ASK, last_text]), **options)


def parent_on(*steps: Any, child: Agent, answer: Any = "1999", **options: Any) -> Agent:
    """Return an agent that follows its steps in its own turns, and answers questions."""

    def step(transcript: Transcript) -> Any:
        if is_asked(transcript):
            return answer
        said = steps[sum(isinstance(it, AssistantMessage) for it in transcript)]
        return said(transcript) if callable(said) else said

    model = SpyModel(ScriptedModel.always(step))
    return Agent("boss", model=model, delegates=[child], **options)


def spy(parent: Agent) -> SpyModel:
    assert isinstance(parent.model, SpyModel)
    return parent.model


def questions(entries: Any) -> list[ModelFailed]:
    return [it for it in facts(entries, ModelFailed) if it.reason is ModelFailure.QUESTION]


async def test_a_joined_child_asks_the_parent_that_waits_for_it() -> None:
    boss = parent_on(
        hand_on("count the books"),
        last_text,
        child=asking_child(),
        instructions="Be brief.",
        language="German",
        settings=ModelSettings(temperature=0.5, tool_choice="required"),
    )
    done = await run(boss, "the books of 1999, please")

    (answer,) = json.loads(done.output)["results"]
    asked = spy(boss).requests[1]
    assert (answer["status"], answer["output"]) == ("succeeded", "1999")
    assert asked.tools == ()
    assert asked.instructions == "Be brief.\n\nAnswer in German."
    assert asked.settings == ModelSettings(temperature=0.5)
    goal, call, result, question = asked.transcript
    assert goal.text == "the books of 1999, please"
    assert isinstance(call, AssistantMessage)
    assert isinstance(result, ToolMessage)
    assert result.call == call.calls[0].id
    assert isinstance(question, UserMessage)
    assert "/boss/clerk[1]" in question.text
    assert "Which year?" in question.text
    assert not unanswered_calls(asked.transcript)


async def test_a_question_to_the_parent_stays_out_of_its_transcript() -> None:
    model = SpyModel(ScriptedModel([ASK, "done"]))
    boss = parent_on(hand_on("count"), "done", child=child_on(model))
    await run(boss)

    assert not any("Which year?" in text for text in spy(boss).texts[-1])
    kinds = [type(it) for it in model.requests[-1].transcript]
    assert kinds == [UserMessage, AssistantMessage, ToolMessage]
    assert tool_answers(model.requests[-1].transcript) == ["1999"]


async def test_a_detached_child_asks_when_the_turn_of_its_parent_has_ended() -> None:
    gate = GatedModel(ScriptedModel([ASK, last_text]))
    boss = parent_on(hand_on("count"), "begun", last_text, child=child_on(gate))
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(boss) as session:
            first = await session.ask("go")
            gate.release()
            second = await session.replies.receive()

    assert first.text == "begun"
    assert "1999" in second.text
    asked = next(it for it in spy(boss).requests if is_asked(tuple(it.transcript)))
    assert asked.transcript[-2].text == "begun", "it knows what it has said since"


async def test_a_root_has_no_parent_to_ask() -> None:
    model = SpyModel("alone")
    child = child_on(model)
    await run(child)
    await run(parent_on(hand_on("count"), "done", child=child))

    as_root, as_child = ([it.name for it in request.tools] for request in model.requests)
    assert as_root == []
    assert as_child == ["ask_parent"]


async def test_a_program_cannot_be_asked_and_the_child_goes_on() -> None:
    child = asking_child()

    @agent
    async def boss(goal: str) -> str:
        return await delegate(child, goal)

    journal = MemoryJournal()
    done = await run_on(journal, boss)

    assert "is a program, which answers no questions" in done.output
    (answer,) = facts(journal.entries, ToolAnswered)
    assert answer.message.failed
    assert not questions(journal.entries)


async def run_on(journal: MemoryJournal, root: Agent[Any]) -> Any:
    async with open_orchestrator(journal) as orchestrator:
        return await orchestrator.run(root, "go")


@pytest.mark.parametrize(
    ("question", "problem"),
    [("  ", "ask something"), ("x" * (MAX_QUESTION + 1), "ask a shorter one")],
)
async def test_a_question_has_a_length(question: str, problem: str) -> None:
    script: list[Any] = [ToolCall("ask_parent", {"question": question}), last_text]
    boss = parent_on(hand_on("count"), last_text, child=child_on(ScriptedModel(script)))
    done = await run(boss)

    assert problem in done.output
    assert len(spy(boss).requests) == 2


async def test_a_secret_in_a_question_is_not_sent() -> None:
    secret = "sk-ant-api03-" + "Ab3dE6gH9j" * 9
    script: list[Any] = [ToolCall("ask_parent", {"question": f"Is it {secret}?"}), last_text]
    boss = parent_on(hand_on("count"), "done", child=child_on(ScriptedModel(script)))
    await run(boss)

    (_, asked, _) = spy(boss).texts
    assert "Is it " in asked[-1]
    assert secret not in asked[-1]


async def test_a_parent_that_fails_or_is_silent_does_not_end_the_child() -> None:
    for answer, problem in (
        (ModelError("down"), "could not be asked: down"),
        (" ", "gave no answer"),
    ):
        boss = parent_on(hand_on("count"), last_text, child=asking_child(), answer=answer)
        done = await run(boss)

        assert problem in done.output
        assert done.tree.counts() == {"succeeded": 2}


async def test_the_hooks_of_the_parent_apply_to_questions_of_its_child() -> None:
    seen: list[tuple[str, str]] = []

    def before(context: TaskContext[Any], request: ModelRequest) -> ModelRequest:
        seen.append((context.path, request.transcript[-1].text))
        return request

    boss = parent_on(
        hand_on("count"), "done", child=asking_child(), hooks=[Hooks(before_model=before)]
    )
    await run(boss)

    assert [path for path, text in seen if "Which year?" in text] == ["/boss"]


async def test_dynamic_instructions_of_the_parent_apply_to_questions() -> None:
    made: list[str] = []

    def instructions(context: TaskContext[Any]) -> str:
        made.append(context.path)
        return f"You are {context.path}."

    boss = parent_on(hand_on("count"), "done", child=asking_child(), instructions=instructions)
    await run(boss)

    assert made == ["/boss"], "it is made once in a turn"
    assert spy(boss).requests[1].instructions == "You are /boss."


# What it costs.


async def answer_at_cost(request: ModelRequest) -> AssistantMessage:
    await trio.lowlevel.checkpoint()
    if is_asked(tuple(request.transcript)):
        return AssistantMessage("1999", usage=USED)
    calls = () if len(request.transcript) > 1 else (hand_on("count"),)
    return AssistantMessage("done", calls=calls, usage=Usage(calls=1))


def boss_at_cost(child: Agent, **options: Any) -> Agent:
    model = FunctionModel(answer_at_cost)
    return Agent("boss", model=model, delegates=[child], **options)


@pytest.mark.parametrize("budget", [None, Budget(calls=4, tokens=1_000_000)])
async def test_the_child_pays_for_its_question(budget: Budget | None) -> None:
    async def work(request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        calls = (ASK,) if len(request.transcript) == 1 else ()
        return AssistantMessage("ok", calls=calls, usage=Usage(calls=1))

    harness = Harness()
    boss = boss_at_cost(child_on(FunctionModel(work), budget=budget))
    done = await harness.run(boss, "go")

    (booked,) = questions(harness.entries)
    root, child = done.tree
    assert booked.task == child
    assert (booked.usage, booked.text, booked.charged) == (USED, "", None)
    assert done.tree[child].usage == USED + Usage(calls=2, unpriced=2)
    assert done.tree[root].usage == Usage(calls=2, unpriced=2)
    assert len(harness.facts(ModelCalled)) == (3 if budget else 0)
    harness.assert_laws()


async def test_a_question_that_no_budget_pays_for_is_not_asked() -> None:
    harness = Harness()
    child = child_on(ScriptedModel([ASK, last_text]), budget=Budget(calls=1))
    boss = parent_on(hand_on("count"), last_text, child=child)
    done = await harness.run(boss, "go")

    assert not any(is_asked(tuple(it.transcript)) for it in spy(boss).requests)
    (settled,) = harness.facts(TaskSettled)
    assert settled.outcome.cause is Cause.BUDGET, "nor is its own next call"
    (answer,) = (it.message for it in harness.facts(ToolAnswered)[:1])
    assert "your budget cannot pay for it" in answer.text
    assert done.output
    harness.assert_laws()


async def test_questions_of_one_answer_are_asked_one_after_another() -> None:
    """A task has one call at a time, so its budget knows the reservation."""
    both = [
        ToolCall("ask_parent", {"question": "One?"}),
        ToolCall("ask_parent", {"question": "Two?"}),
    ]
    running: Counter[str] = Counter()

    async def answer(request: ModelRequest) -> AssistantMessage:
        if not is_asked(tuple(request.transcript)):
            return await answer_at_cost(request)
        running["now"] += 1
        running["most"] = max(running["most"], running["now"])
        await trio.sleep(5)
        running["now"] -= 1
        return AssistantMessage("yes", usage=USED)

    harness = Harness()
    child = child_on(ScriptedModel([both, last_text]), budget=Budget(calls=4))
    boss = Agent("boss", model=FunctionModel(answer), delegates=[child])
    done = await harness.run(boss, "go")

    assert done.tree.counts() == {"succeeded": 2}
    assert running["most"] == 1
    assert len(questions(harness.entries)) == 2
    harness.assert_laws()


# Cancel, crash and replay.


def work(transcript: Transcript) -> Any:
    return last_text(transcript) if len(transcript) > 1 else ASK


def team(asked: Counter[str], **options: Any) -> Agent:
    """Return a team on models that are functions of the transcript, and count questions."""

    def lead(transcript: Transcript) -> Any:
        if is_asked(transcript):
            asked["questions"] += 1
            return "1999"
        return hand_on("count") if len(transcript) == 1 else "done"

    child = child_on(ScriptedModel.always(work), **options)
    return Agent("boss", model=ScriptedModel.always(lead), delegates=[child])


def in_trio(function: Callable[..., Awaitable[T]], *args: object) -> T:
    """Run a function in a loop of its own: a replay has another."""
    return trio.run(function, *args, clock=trio.testing.MockClock(autojump_threshold=0))


BUDGETS: list[dict[str, Any]] = [{}, {"budget": Budget(calls=9, tokens=200_000)}]


@pytest.mark.parametrize("options", BUDGETS)
def test_a_child_that_is_cancelled_asks_no_longer_and_has_paid(options: Any) -> None:
    harness, asked = Harness(), trio.Event()

    async def answer(request: ModelRequest) -> AssistantMessage:
        if is_asked(tuple(request.transcript)):
            request.tell(TextDelta("It was"))
            asked.set()
            await trio.sleep_forever()
        return await answer_at_cost(request)

    boss = Agent("boss", model=FunctionModel(answer), delegates=[asking_child(**options)])

    async def cancel() -> tuple[str, Sequence[Message]]:
        async with harness.open() as orchestrator, orchestrator.open_session(boss) as session:
            await session.ask("go")
            await asked.wait()
            (child,) = session.tree.children(session.tree.root)
            await orchestrator.cancel(child)
            status = session.tree[child].status
            await session.replies.receive()
            return status, await orchestrator.read.transcript(child)

    status, transcript = in_trio(cancel)

    assert status == "cancelled"
    last = transcript[-1]
    assert isinstance(last, AssistantMessage), "nothing that the parent said"
    assert last.calls
    (booked,) = questions(harness.entries)
    assert (booked.usage.calls, booked.usage.estimated, booked.text) == (1, 1, "")
    harness.assert_laws()
    assert replay_sync(harness.entries, boss).difference is None


@pytest.mark.parametrize("options", BUDGETS)
def test_a_crash_after_any_entry_loses_no_answer(options: Any) -> None:
    whole = Harness()
    in_trio(whole.run, team(Counter(), **options), "go")
    first = next(it.seq for it in whole.entries if isinstance(it.event, TurnStarted))
    for length in range(first, len(whole.entries)):
        harness = Harness()
        done, known, asked = in_trio(crash_and_resume, harness, length, options)

        assert done.output == "done", length
        (settled,) = harness.facts(TaskSettled)
        assert settled.outcome.output == "1999"
        assert asked == 1 - known, "what was recorded is not asked again"
        harness.assert_laws()
        replayed = replay_sync(harness.entries, team(Counter(), **options))
        assert replayed.difference is None, length


async def crash_and_resume(
    harness: Harness, length: int, options: dict[str, Any]
) -> tuple[Run[str], int, int]:
    """Return the run, how many answers the crash has left, and how many questions came then."""
    async with harness.open(crash_after=length) as orchestrator:
        await orchestrator.run(team(Counter(), **options), "go")
    (opened,) = harness.facts(SessionOpened)
    answers = [it.message.text for it in harness.facts(ToolAnswered)]
    again = Counter[str]()
    async with harness.open() as orchestrator:
        done = await orchestrator.resume(team(again, **options), opened.session)
    return done, answers.count("1999"), again["questions"]


@pytest.mark.parametrize("options", [*BUDGETS, {"budget": Budget(calls=2)}])
def test_a_replay_reads_the_answer_of_the_parent_and_books_its_cost(options: Any) -> None:
    """The result of `delegate_task` has the tokens; a budget of two has none left for a third."""
    harness, asked = Harness(), Counter[str]()
    in_trio(harness.run, team(asked, **options), "go")
    replayed = replay_sync(harness.entries, team(asked, **options))

    assert asked["questions"] == 1
    assert replayed.difference is None


def test_a_retried_question_does_not_count_as_an_attempt_of_the_child() -> None:
    tries = Counter[str]()

    async def answer(request: ModelRequest) -> AssistantMessage:
        if is_asked(tuple(request.transcript)):
            tries["all"] += 1
            if tries["all"] == 1:
                raise ModelError("busy", kind=Failure.OVERLOADED)
        return await answer_at_cost(request)

    harness = Harness()
    model = with_retries(FunctionModel(answer))
    child = child_on(ScriptedModel.always(work), **BUDGETS[1])
    boss = Agent("boss", model=model, delegates=[child])
    in_trio(harness.run, boss, "go")

    assert [it.reason for it in harness.facts(ModelFailed)] == [ModelFailure.QUESTION] * 2
    harness.assert_laws()
    assert replay_sync(harness.entries, boss).difference is None
    assert tries["all"] == 2


async def test_a_fork_after_the_answer_does_not_ask_again() -> None:
    harness, asked = Harness(), Counter[str]()
    first = child_on(ScriptedModel.always(work))
    later = Agent("later", model=ScriptedModel.always("late"))
    steps = (hand_on("count", agent="clerk"), hand_on("go on", agent="later"), "done")

    def lead(transcript: Transcript) -> Any:
        if is_asked(transcript):
            asked["questions"] += 1
            return "1999"
        return steps[sum(isinstance(it, AssistantMessage) for it in transcript)]

    boss = Agent("boss", model=ScriptedModel.always(lead), delegates=[first, later])
    done = await harness.run(boss, "go")
    async with harness.open() as orchestrator:
        forked = await orchestrator.fork(boss, done.id, task="/boss/later[1]")

    assert forked.output == "done"
    assert asked["questions"] == 1
    assert len(questions(harness.entries)) == 1, "a fork pays for none of its calls"


def test_a_simulation_asks_no_model() -> None:
    asked = Counter[str]()
    simulate(team(asked), settings=SimulationSettings(seeds=3, tool_calls=2))

    assert not asked


def test_an_agent_that_cannot_ask_is_refused_at_definition() -> None:
    @tool
    def ask_parent() -> str:
        """Ask."""
        return ""

    with pytest.raises(DefinitionError, match="a tool of its own called 'ask_parent'"):
        child_on(ScriptedModel.always("x"), tools=[ask_parent])
    with pytest.raises(DefinitionError, match="workers cannot reach"):
        child_on(ScriptedModel.always("x"), place="lab")
