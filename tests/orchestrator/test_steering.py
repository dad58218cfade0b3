"""Steering: what is said to a task while it works is seen before its next model request, once."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator import MemoryJournal, Orchestrator, Session, UnknownIdError, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Limits,
    Message,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
    tool,
)
from orchestrator.delegation import Ending, Receipt, Rules, TaskId
from orchestrator.delegation.events import (
    ModelAnswered,
    Steered,
    SteeringSeen,
    TaskSettled,
    TurnEnded,
)
from orchestrator.testing import SpyModel
from tests.kit import continue_session, dispatched, facts, hand_on, tool_answers, worker
from tests.orchestrator.task_control_kit import Lead, background


@tool(idempotent=True)
async def work(step: int) -> str:
    """Do a bit of it."""
    await trio.lowlevel.checkpoint()
    return f"did step {step}"


class StepwiseModel(SpyModel):
    """Takes so many steps, and keeps what it was shown before each.

    It is a function of the transcript, so that it goes on wherever a crash left it.
    """

    def __init__(self, steps: int = 3, seconds: float = 10, says: str = "done") -> None:
        def step(transcript: Transcript) -> str | ToolCall:
            taken = sum(isinstance(it, AssistantMessage) for it in transcript)
            is_last = taken + 1 >= steps
            return says if is_last else ToolCall("work", {"step": taken})

        super().__init__(ScriptedModel.always(step, seconds))

    @property
    def shown(self) -> list[Transcript]:
        """The transcript of each request."""
        return [request.transcript for request in self.requests]

    @property
    def steering(self) -> list[list[str]]:
        """The steering messages in each request."""
        return [asides(shown) for shown in self.shown]


def asides(transcript: Sequence[Message]) -> list[str]:
    return [
        said.text
        for said in transcript
        if isinstance(said, UserMessage) and said.text.startswith("Message from")
    ]


def from_lead(text: str) -> str:
    return f"Message from /lead, while you work:\n{text}"


def from_outside(text: str) -> str:
    return f"Message from outside, while you work:\n{text}"


def working(model: StepwiseModel, name: str = "worker", **options: Any) -> Agent:
    return Agent(name, model=model, tools=[work], **options)


def steer(message: str, *numbers: int, **more: Any) -> Any:
    """Return a step that says something to tasks that were delegated so far."""

    def step(transcript: Transcript) -> ToolCall:
        ids = dispatched(transcript)
        chosen = [ids[number] for number in numbers] or ids
        arguments = {"action": "steer", "ids": chosen, "message": message, **more}
        return ToolCall("task", arguments)

    return step


def pause(seconds: float) -> ToolCall:
    return ToolCall("task", {"action": "wait", "seconds": seconds})


async def hold(
    lead: Lead, *delegates: Agent, rules: Rules | None = None, journal: MemoryJournal | None = None
) -> Session:
    """Ask a session once, and wait until all is quiet."""
    agent = Agent("lead", model=lead, delegates=delegates)
    async with open_orchestrator(journal or MemoryJournal(), rules=rules) as opened:
        async with opened.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()
    return session


def delegating() -> ScriptedModel:
    """Return the model of a lead that delegates one task, wherever a crash left it."""

    def step(transcript: Transcript) -> str | ToolCall:
        has_answered = any(isinstance(it, AssistantMessage) for it in transcript)
        return "ok" if has_answered else background("a")

    return ScriptedModel.always(step)


def only_child(session: Session) -> TaskId:
    (task,) = session.tree.children(session.tree.root)
    return task


# What a model says to its tasks.


async def test_a_running_task_sees_it_before_its_next_request_and_once() -> None:
    child = StepwiseModel(3)
    lead = Lead(background("a"), pause(5), steer("use the sea"))
    await hold(lead, working(child))
    message = from_lead("use the sea")

    assert lead.receipts == [["seen before its model call 2"]]
    assert child.steering == [[], [message], [message]]
    # It comes behind the answers of the tools, and every call has an answer.
    assert [type(said) for said in child.shown[1]] == [
        UserMessage,
        AssistantMessage,
        ToolMessage,
        UserMessage,
    ]


async def test_the_receipt_comes_as_soon_as_it_is_seen() -> None:
    seen_after: list[float] = []

    def look(_: Transcript) -> str:
        seen_after.append(trio.current_time())
        return "end"

    lead = Lead(background("a"), pause(5), steer("hurry", seconds=300), look)
    await hold(lead, working(StepwiseModel(3)))

    assert seen_after == [pytest.approx(10)]


async def test_a_task_that_ends_first_was_told_too_late() -> None:
    child = StepwiseModel(1)
    lead = Lead(background("a"), pause(5), steer("use the sea"))
    session = await hold(lead, working(child))

    assert lead.receipts == [["too late: it ended before it could see this"]]
    assert child.steering == [[]]
    assert session.tree.counts() == {"succeeded": 2}


async def test_steering_an_ended_task_returns_gone() -> None:
    journal = MemoryJournal()
    lead = Lead(background("a"), pause(50), steer("use the sea"))
    await hold(lead, working(StepwiseModel(1)), journal=journal)

    assert lead.receipts == [["gone: it had ended already"]]
    assert facts(journal.entries, Steered) == []


async def test_steering_without_waiting_returns_not_seen_yet() -> None:
    child = StepwiseModel(2)
    lead = Lead(background("a"), pause(5), steer("use the sea", seconds=0))
    await hold(lead, working(child))

    assert lead.receipts == [["not seen yet: it will be, before its next model call"]]
    assert child.steering[1] == [from_lead("use the sea")]


async def test_a_task_in_line_sees_it_before_its_first_request() -> None:
    first, second = StepwiseModel(1), StepwiseModel(1)
    lead = Lead(
        [background("a", agent="first"), background("b", agent="second")],
        steer("use the sea", 0, 1, seconds=0),
        pause(100),
    )
    await hold(lead, working(first, "first"), working(second, "second"), rules=Rules(detached=1))
    late = max(first, second, key=lambda model: len(model.steering[0]))

    assert late.steering == [[from_lead("use the sea")]]
    assert late.shown[0][0].text in {"a", "b"}


async def test_a_task_that_needs_another_sees_it_before_its_first_request() -> None:
    child = StepwiseModel(1)
    batch = ToolCall(
        "delegate_task",
        {
            "tasks": [
                {"goal": "first", "label": "one"},
                {"goal": "second", "label": "two", "depends_on": ["one"]},
            ],
            "background": True,
        },
    )
    lead = Lead(batch, steer("use the sea", 1, seconds=0), pause(100))
    await hold(lead, working(child))

    assert child.steering == [[], [from_lead("use the sea")]]
    assert child.shown[1][0].text.startswith("second")


async def test_several_messages_at_once_are_seen_in_order() -> None:
    child = StepwiseModel(2)

    def both(transcript: Transcript) -> list[ToolCall]:
        return [steer("one")(transcript), steer("two")(transcript)]

    lead = Lead(background("a"), pause(5), steer("zero", seconds=0), both)
    await hold(lead, working(child))
    first, *others = child.steering[1]

    assert child.steering[0] == []
    assert first == from_lead("zero")
    assert sorted(others) == [from_lead("one"), from_lead("two")]
    assert lead.receipts[1:] == [["seen before its model call 2"]] * 2


async def test_several_tasks_at_once_have_a_receipt_each() -> None:
    quick, late, slow = StepwiseModel(1, 1), StepwiseModel(1, 10), StepwiseModel(2, 10)
    lead = Lead(
        [
            background("a", agent="quick"),
            background("b", agent="late"),
            background("c", agent="slow"),
        ],
        pause(5),
        steer("hello"),
    )
    await hold(lead, working(quick, "quick"), working(late, "late"), working(slow, "slow"))

    assert sorted(lead.receipts[0]) == [
        "gone: it had ended already",
        "seen before its model call 2",
        "too late: it ended before it could see this",
    ]
    assert [len(model.steering[-1]) for model in (quick, late, slow)] == [0, 0, 1]


async def test_a_grandchild_can_be_steered_past_its_parent() -> None:
    leaf = StepwiseModel(3)
    middle_heard: list[list[str]] = []

    def manage(transcript: Transcript) -> Any:
        middle_heard.append(asides(transcript))
        return "up" if isinstance(transcript[-1], ToolMessage) else hand_on("leaf")

    middle = Agent("middle", model=ScriptedModel.always(manage), delegates=[working(leaf, "leaf")])

    def to_the_leaf(transcript: Transcript) -> ToolCall:
        tasks = tool_answers(transcript)[-1]["tasks"]
        (id_,) = (task["task_id"] for task in tasks if task["path"].endswith("leaf[1]"))
        arguments = {"action": "steer", "ids": [id_], "message": "deeper"}
        return ToolCall("task", arguments)

    listing = ToolCall("task", {"action": "list"})
    lead = Lead(background("a"), pause(5), listing, to_the_leaf)
    await hold(lead, middle)

    assert lead.receipts == [["seen before its model call 2"]]
    assert leaf.steering[1] == [from_lead("deeper")]
    assert middle_heard == [[], []]


async def test_a_task_that_waits_for_children_sees_steering_after_they_end() -> None:
    shown: list[list[str]] = []

    def manage(transcript: Transcript) -> Any:
        shown.append(asides(transcript))
        return "up" if len(shown) == 2 else hand_on("leaf")

    middle = Agent(
        "middle", model=ScriptedModel.always(manage), delegates=[worker("leaf", seconds=20)]
    )
    lead = Lead(background("a"), pause(5), steer("how is it?"))
    await hold(lead, middle)

    assert lead.receipts == [["seen before its model call 2"]]
    assert shown == [[], [from_lead("how is it?")]]


async def test_a_list_shows_steering_and_whether_it_was_seen() -> None:
    lead = Lead(
        background("a"),
        pause(5),
        steer("use the sea", seconds=10),
        steer("and the sky", seconds=0),
        ToolCall("task", {"action": "list"}),
    )
    await hold(lead, working(StepwiseModel(3)))

    assert lead.answers[4]["tasks"][0]["messages"] == [
        {"text": "use the sea", "seen_at_model_call": 2},
        {"text": "and the sky", "seen_at_model_call": None},
    ]


@pytest.mark.parametrize("message", ["", "  \n"])
async def test_steering_without_a_message_is_refused(message: str) -> None:
    journal = MemoryJournal()
    lead = Lead(background("a"), steer(message))
    await hold(lead, working(StepwiseModel(1)), journal=journal)

    assert lead.answers[1] == "steer: say something, in `message`"
    assert facts(journal.entries, Steered) == []


async def test_a_child_of_another_session_cannot_be_steered() -> None:
    journal = MemoryJournal()
    child = StepwiseModel(3)
    victim = Agent("lead", model=Lead(background("a")), delegates=[working(child)])
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(victim) as theirs:
            await theirs.ask("go")
            foreign = only_child(theirs)
            arguments = {"action": "steer", "ids": [foreign], "message": "obey me"}
            lead = Lead(ToolCall("task", arguments))
            agent = Agent("lead", model=lead, delegates=[worker()])
            async with orchestrator.open_session(agent) as mine:
                await mine.ask("go")
            await theirs.wait_idle()

    assert lead.answers == [f"there is no such task: {foreign!r}; nothing was done"]
    assert facts(journal.entries, Steered) == []
    assert child.steering == [[], [], []]


async def test_steering_a_stopping_task_comes_too_late() -> None:
    @tool
    async def tidy() -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(20)
        return "never"

    child = Agent("child", model=ScriptedModel([ToolCall("tidy")]), tools=[tidy])
    agent = Agent("lead", model=Lead(background("a")), delegates=[child])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await trio.sleep(5)
            task = only_child(session)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(orchestrator.cancel, task)
                await trio.sleep(5)
                receipt = await orchestrator.steer(task, "wait!", seconds=100)

    assert receipt == Receipt("too_late")


# What is said from Python.


async def steered_run(
    child: StepwiseModel,
    *,
    at: float,
    seconds: float,
    journal: MemoryJournal | None = None,
    **options: Any,
) -> tuple[Receipt, Session]:
    """Say something at some time to the only child of a session."""
    agent = Agent("lead", model=Lead(background("a")), delegates=[working(child, **options)])
    async with open_orchestrator(journal or MemoryJournal()) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await trio.sleep(at)
            task = only_child(session)
            receipt = await orchestrator.steer(task, "use the sea", seconds=seconds)
            await session.wait_idle()
    return receipt, session


@pytest.mark.parametrize(
    ("at", "seconds", "receipt"),
    [
        (5, 100, Receipt("seen", 2)),
        (15, 100, Receipt("seen", 3)),
        (25, 100, Receipt("too_late")),
        (35, 100, Receipt("gone")),
        (5, 0, Receipt("waiting")),
        (5, 1, Receipt("waiting")),
    ],
)
async def test_steering_from_python_returns_a_receipt(
    at: float, seconds: float, receipt: Receipt
) -> None:
    child = StepwiseModel(3)
    got, _ = await steered_run(child, at=at, seconds=seconds)
    seen = receipt.seen_at or (2 if receipt.state == "waiting" else 99)

    assert got == receipt
    message = from_outside("use the sea")
    assert child.steering == [[message] * (call >= seen) for call in (1, 2, 3)]


async def test_steering_an_unknown_task_raises() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        with pytest.raises(UnknownIdError, match="there is no task 't_none'"):
            await orchestrator.steer("t_none", "hello")


async def test_a_lone_surrogate_in_steering_is_replaced() -> None:
    child = StepwiseModel(2)
    agent = Agent("lead", model=Lead(background("a")), delegates=[working(child)])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await orchestrator.steer(only_child(session), "caf\udce9")
            await session.wait_idle()

    assert child.steering[1] == [from_outside("caf?")]


async def test_the_same_words_twice_are_two_messages() -> None:
    child = StepwiseModel(2)
    agent = Agent("lead", model=Lead(background("a")), delegates=[working(child)])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await trio.sleep(1)
            for _ in range(2):
                await orchestrator.steer(only_child(session), "hurry")
            await session.wait_idle()

    assert child.steering[1] == [from_outside("hurry")] * 2


# A session's own turn.


async def test_a_turn_that_runs_can_be_steered_from_outside() -> None:
    model = StepwiseModel(3)
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(working(model, "lead")) as session:
            receipts: list[Receipt] = []

            async def talk() -> None:
                await trio.sleep(5)
                receipts.append(await orchestrator.steer(session.id, "use the sea", seconds=100))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(talk)
                reply = await session.ask("go")

    message = from_outside("use the sea")
    assert reply.text == "done"
    assert receipts == [Receipt("seen", 2)]
    assert model.steering == [[], [message], [message]]


async def test_a_run_can_be_steered_from_outside() -> None:
    model = StepwiseModel(2)
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, working(model), "go")
            await trio.sleep(5)
            run = orchestrator.runs[-1]
            receipt = await orchestrator.steer(run, "use the sea", seconds=100)

        assert receipt == Receipt("seen", 2)
        assert await orchestrator.steer(run, "and the sky") == Receipt("gone")


async def test_steering_that_came_too_late_is_not_seen_in_the_next_turn() -> None:
    """A client that was told that it came too late may have sent it again."""
    model = StepwiseModel(1)
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(working(model, "lead")) as session:
            receipts: list[Receipt] = []

            async def talk() -> None:
                await trio.sleep(5)
                receipts.append(await orchestrator.steer(session.id, "use the sea", seconds=100))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(talk)
                await session.ask("go")
            await session.ask("again")

    assert receipts == [Receipt("too_late")]
    assert model.steering == [[], []]


async def test_a_steering_receipt_reports_its_own_turn() -> None:
    model = StepwiseModel(1)
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(working(model, "lead")) as session:
            receipts: list[Receipt] = []

            async def talk() -> None:
                await trio.sleep(5)
                receipts.append(await orchestrator.steer(session.id, "use the sea", seconds=100))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(talk)
                nursery.start_soon(session.ask, "go")
                await trio.sleep(1)
                nursery.start_soon(session.ask, "again")

    seen = [asides for asides in model.steering if asides]
    assert len(receipts) == 1
    assert (receipts[0].state == "seen") == bool(seen)


async def test_steering_a_session_between_turns_returns_gone() -> None:
    model = StepwiseModel(1)
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(working(model, "lead")) as session:
            assert await orchestrator.steer(session.id, "early") == Receipt("gone")
            await session.ask("go")
            assert await orchestrator.steer(session.id, "late") == Receipt("gone")
            await session.ask("again")

    assert model.steering == [[], []]


async def interrupted(agent: Agent) -> tuple[MemoryJournal, Session]:
    """Return a session whose process died in the midst of its turn."""
    journal = MemoryJournal()
    with trio.move_on_after(5):
        async with open_orchestrator(journal) as orchestrator:
            async with orchestrator.open_session(agent) as session:
                await session.ask("go")
    return journal, session


async def test_an_interrupted_task_sees_it_when_it_goes_on() -> None:
    child = StepwiseModel(2)
    agent = Agent(
        "lead", model=ScriptedModel([background("a"), pause(100), "x"]), delegates=[working(child)]
    )
    journal, session = await interrupted(agent)
    async with open_orchestrator(journal) as orchestrator:
        task = only_child(session)
        assert await orchestrator.steer(task, "use the sea") == Receipt("waiting")
        again = Agent("lead", model=ScriptedModel.always("ok"), delegates=[working(child)])
        async with orchestrator.open_session(again, session=session.id) as opened:
            await opened.wait_idle()

    assert child.steering[1] == [from_outside("use the sea")]
    assert len(child.steering[-1]) == 1


async def test_steering_an_interrupted_turn_returns_waiting_or_gone() -> None:
    agent = working(StepwiseModel(2), "lead")
    journal, session = await interrupted(agent)
    async with open_orchestrator(journal) as orchestrator:
        receipt = await orchestrator.steer(session.id, "use the sea")
        model = StepwiseModel(2)
        opened = orchestrator.open_session(working(model, "lead"), session=session.id)
        async with opened as again:
            await again.wait_idle()

    assert receipt.state in {"waiting", "gone"}
    assert bool(model.steering[-1]) == (receipt.state == "waiting")


# What steering does not change.


async def test_steering_gives_a_task_no_more_model_calls() -> None:
    child = StepwiseModel(100)
    agent = Agent(
        "lead", model=Lead(background("a")), delegates=[working(child, limits=Limits(calls=4))]
    )
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            task = only_child(session)
            await trio.sleep(5)
            for _ in range(3):
                await orchestrator.steer(task, "more!", seconds=100)
            await session.wait_idle()

    assert len(child.shown) == 4
    assert session.tree[task].status == "over_budget"
    assert "4 model calls" in session.tree[task].error


async def test_steering_gives_a_typed_answer_no_second_repair() -> None:
    child = StepwiseModel(1, says="no number")
    receipt, session = await steered_run(child, at=5, seconds=100, output=int)
    task = only_child(session)

    assert receipt == Receipt("seen", 2)
    assert len(child.shown) == 2
    assert "could not be read" in child.shown[1][-1].text
    assert session.tree[task].status == "failed"


def improved(transcript: Transcript) -> str:
    """Answer with a number once the first answer was complained about."""
    is_second = any("could not be read" in it.text for it in transcript)
    return "7" if is_second else "no number"


async def test_steering_between_two_tries_does_not_hide_the_complaint() -> None:
    model = SpyModel(ScriptedModel.always(improved, 10))
    child = Agent("child", model=model, output=int)
    agent = Agent("lead", model=Lead(background("a")), delegates=[child])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await trio.sleep(5)
            await orchestrator.steer(only_child(session), "hurry", seconds=100)
            await session.wait_idle()

    assert session.tree.counts() == {"succeeded": 2}
    assert asides(model.requests[1].transcript) == [from_outside("hurry")]


# Crash after every entry.


def steered_team(child: StepwiseModel) -> Agent:
    """Return a lead that steers its task twice, as a function of the transcript."""

    def lead(transcript: Transcript) -> Any:
        last = transcript[-1]
        if isinstance(last, UserMessage) and last.text != "go":
            return "woken"
        steps: list[Any] = [
            background("a"),
            steer("one", seconds=1),
            [steer("two"), steer("three", seconds=0)],
            "on it",
        ]
        done = len(tool_answers(transcript))
        step = steps[min(done, 2) if done < 4 else 3]
        if isinstance(step, list):
            return [each(transcript) for each in step]
        return step(transcript) if callable(step) else step

    return Agent("lead", model=ScriptedModel.always(lead, 0.5), delegates=[working(child)])


async def test_a_crash_after_any_entry_loses_and_repeats_no_steering() -> None:
    whole = await continue_session(steered_team(StepwiseModel(4)), [])
    assert len(facts(whole, Steered)) == 3
    for length in range(1, len(whole)):
        child = StepwiseModel(4)
        entries = await continue_session(steered_team(child), whole[:length])

        said = Counter(fact.id for fact in facts(entries, Steered))
        seen = Counter(id_ for fact in facts(entries, SteeringSeen) for id_ in fact.ids)
        assert said == seen, length
        assert sorted(fact.text for fact in facts(entries, Steered)) == ["one", "three", "two"], (
            length
        )
        if child.shown:
            assert sorted(child.steering[-1]) == [
                from_lead(text) for text in ("one", "three", "two")
            ], length
        (settled,) = facts(entries, TaskSettled)
        assert settled.outcome.succeeded, length
        assert all(turn.outcome.succeeded for turn in facts(entries, TurnEnded)), length


async def test_a_crash_after_any_entry_keeps_steering_from_outside() -> None:
    whole = MemoryJournal()
    await steered_run(StepwiseModel(3), at=5, seconds=100, journal=whole)
    for length in range(1, len(whole.entries)):
        cut = whole.entries[:length]
        child = StepwiseModel(3)
        agent = Agent("lead", model=delegating(), delegates=[working(child)])
        entries = await continue_session(agent, cut)

        said = Counter(fact.id for fact in facts(cut, Steered))
        seen = Counter(id_ for fact in facts(entries, SteeringSeen) for id_ in fact.ids)
        assert said == seen, length
        if child.shown:
            assert len(child.steering[-1]) == sum(said.values()), length


async def test_a_crash_after_any_entry_keeps_the_one_repair_of_a_steered_task() -> None:
    def agent() -> Agent:
        model = ScriptedModel.always(improved, 10)
        child = Agent("child", model=model, output=int)
        return Agent("lead", model=delegating(), delegates=[child])

    whole = MemoryJournal()
    async with open_orchestrator(whole) as orchestrator:
        async with orchestrator.open_session(agent()) as session:
            await session.ask("go")
            await trio.sleep(5)
            await orchestrator.steer(only_child(session), "hurry", seconds=100)
            await session.wait_idle()
    assert len(facts(whole.entries, SteeringSeen)) == 1
    for length in range(1, len(whole.entries)):
        entries = await continue_session(agent(), whole.entries[:length])

        (settled,) = facts(entries, TaskSettled)
        assert settled.outcome.ending is Ending.SUCCEEDED, length
        answered = [fact for fact in facts(entries, ModelAnswered) if fact.task == settled.task]
        assert len(answered) == 2, length


async def test_a_task_that_starts_afresh_sees_its_steering_again() -> None:
    whole = MemoryJournal()
    child = StepwiseModel(3)
    await steered_run(child, at=5, seconds=100, journal=whole, on_restart="restart")
    for length in range(1, len(whole.entries)):
        cut = whole.entries[:length]
        if facts(cut, TaskSettled):
            break
        again = StepwiseModel(3)
        helper = working(again, on_restart="restart")
        await continue_session(Agent("lead", model=delegating(), delegates=[helper]), cut)

        said = [from_outside(fact.text) for fact in facts(cut, Steered)]
        assert again.steering[-1] == said, length


@pytest.mark.realtime
async def test_an_ended_task_is_gone_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    model = ScriptedModel([hand_on("a"), "end"])
    async with open_orchestrator(path) as orchestrator:
        agent = Agent("lead", model=model, delegates=[worker()])
        run = await orchestrator.run(agent, "go")
        before = [await orchestrator.steer(task, "hello") for task in run.tree]
    async with open_orchestrator(path) as orchestrator:
        after = [await orchestrator.steer(task, "hello") for task in run.tree]

    assert before == after == [Receipt("gone")] * 2


async def test_the_orchestrator_can_close_during_a_wait_for_a_receipt() -> None:
    child = StepwiseModel(2, 1_000)
    journal = MemoryJournal()
    agent = Agent("lead", model=Lead(background("a")), delegates=[working(child)])

    async def talk(orchestrator: Orchestrator, task: TaskId) -> None:
        with trio.move_on_after(50):
            await orchestrator.steer(task, "use the sea", seconds=5_000)

    async with trio.open_nursery() as nursery:
        async with open_orchestrator(journal) as orchestrator:
            async with orchestrator.open_session(agent) as session:
                await session.ask("go")
                nursery.start_soon(talk, orchestrator, only_child(session))
                await trio.sleep(10)
    entries = await continue_session(agent, journal.entries)

    assert len(facts(entries, SteeringSeen)) == 1
    assert child.steering[-1] == [from_outside("use the sea")]
