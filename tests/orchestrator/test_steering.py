"""Steering: what is said to a task while it works is seen before its next model request, once."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from agents import (
    Agent,
    AssistantMessage,
    Limits,
    Message,
    ModelRequest,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    Usage,
    UserMessage,
    tool,
)
from delegation import Ending, Receipt, Rules, TaskId
from delegation.events import (
    Entry,
    MessageReceived,
    ModelAnswered,
    SessionOpened,
    Steered,
    SteeringSeen,
    TaskSettled,
    TurnEnded,
)
from orchestrator import (
    MemoryJournal,
    Orchestrator,
    Session,
    UnknownIdError,
    open_orchestrator,
)
from tests.kit import facts, hand_on, worker


@tool(idempotent=True)
async def work(step: int) -> str:
    """Do a bit of it."""
    await trio.lowlevel.checkpoint()
    return f"did step {step}"


class Hearing:
    """A model that takes so many steps, and remembers what it was shown before each.

    It is a function of the transcript, so that it goes on wherever a crash left it.
    """

    name = "hearing"

    def __init__(self, steps: int = 3, seconds: float = 10, says: str = "done") -> None:
        self._steps = steps
        self._seconds = seconds
        self._says = says
        self.shown: list[list[Message]] = []

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.shown.append(list(request.transcript))
        await trio.sleep(self._seconds)
        said = sum(isinstance(it, AssistantMessage) for it in request.transcript)
        usage = Usage(calls=1)
        if said + 1 < self._steps:
            call = ToolCall("work", {"step": said}, id=f"call_{said}")  # type: ignore[arg-type]
            return AssistantMessage("", (call,), usage)
        return AssistantMessage(self._says, usage=usage)

    def heard(self) -> list[list[str]]:
        """Return what it was told in the midst of its work, as of each request."""
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


def hearing(model: Hearing, name: str = "worker", **options: Any) -> Agent:
    return Agent(name, model=model, tools=[work], **options)


def answers(transcript: Transcript) -> list[Any]:
    return [
        said.text if said.failed else json.loads(said.text)
        for said in transcript
        if isinstance(said, ToolMessage)
    ]


def dispatched(transcript: Transcript) -> list[str]:
    return [
        task["task_id"]
        for answer in answers(transcript)
        if isinstance(answer, dict) and answer.get("status") == "dispatched"
        for task in answer["tasks"]
    ]


def steer(message: str, *numbers: int, **more: Any) -> Any:
    """Return a step that says something to tasks that were handed on so far."""

    def step(transcript: Transcript) -> ToolCall:
        ids = dispatched(transcript)
        chosen = [ids[number] for number in numbers] or ids
        arguments = {"action": "steer", "ids": chosen, "message": message, **more}
        return ToolCall("task", arguments)

    return step


def pause(seconds: float) -> ToolCall:
    return ToolCall("task", {"action": "wait", "seconds": seconds})


class Lead:
    """A model that plays a script, and remembers what its tools have answered."""

    name = "lead"

    def __init__(self, *steps: Any) -> None:
        self._model = ScriptedModel([*steps, *["end"] * 5])
        self.read: list[Any] = []

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.read = answers(request.transcript)
        return await self._model.answer(request)

    def receipts(self) -> list[list[str]]:
        return [
            list(answer["receipts"].values())
            for answer in self.read
            if isinstance(answer, dict) and "receipts" in answer
        ]


def background(*goals: str, agent: str = "") -> ToolCall:
    return hand_on(*goals, agent=agent, background=True)


async def hold(
    lead: Lead,
    *delegates: Agent,
    rules: Rules | None = None,
    journal: MemoryJournal | None = None,
) -> Session:
    """Ask a session once, and wait until all is quiet."""
    agent = Agent("lead", model=lead, delegates=delegates)
    async with open_orchestrator(journal or MemoryJournal(), rules=rules) as opened:
        async with opened.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()
    return session


def only_child(session: Session) -> TaskId:
    (task,) = session.tree.children(session.tree.root)
    return task


# What a model says to its tasks.


async def test_a_running_task_sees_it_before_its_next_request_and_once() -> None:
    child = Hearing(3)
    lead = Lead(background("a"), pause(5), steer("use the sea"))
    await hold(lead, hearing(child))
    message = from_lead("use the sea")

    assert lead.receipts() == [["seen before its model call 2"]]
    assert child.heard() == [[], [message], [message]]
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
    await hold(lead, hearing(Hearing(3)))

    assert seen_after == [pytest.approx(10)]


async def test_a_task_that_ends_first_was_told_too_late() -> None:
    child = Hearing(1)
    lead = Lead(background("a"), pause(5), steer("use the sea"))
    session = await hold(lead, hearing(child))

    assert lead.receipts() == [["too late: it ended before it could see this"]]
    assert child.heard() == [[]]
    assert session.tree.counts() == {"succeeded": 2}


async def test_a_task_that_has_ended_is_gone() -> None:
    journal = MemoryJournal()
    lead = Lead(background("a"), pause(50), steer("use the sea"))
    await hold(lead, hearing(Hearing(1)), journal=journal)

    assert lead.receipts() == [["gone: it had ended already"]]
    assert facts(journal.entries, Steered) == []


async def test_who_does_not_wait_is_told_that_it_was_not_seen_yet() -> None:
    child = Hearing(2)
    lead = Lead(background("a"), pause(5), steer("use the sea", seconds=0))
    await hold(lead, hearing(child))

    assert lead.receipts() == [["not seen yet: it will be, before its next model call"]]
    assert child.heard()[1] == [from_lead("use the sea")]


async def test_a_task_in_line_sees_it_before_its_first_request() -> None:
    first, second = Hearing(1), Hearing(1)
    lead = Lead(
        [background("a", agent="first"), background("b", agent="second")],
        steer("use the sea", 0, 1, seconds=0),
        pause(100),
    )
    await hold(
        lead,
        hearing(first, "first"),
        hearing(second, "second"),
        rules=Rules(detached=1),
    )
    late = max(first, second, key=lambda model: len(model.heard()[0]))

    assert late.heard() == [[from_lead("use the sea")]]
    assert late.shown[0][0].text in {"a", "b"}


async def test_a_task_that_needs_another_sees_it_before_its_first_request() -> None:
    child = Hearing(1)
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
    await hold(lead, hearing(child))

    assert child.heard() == [[], [from_lead("use the sea")]]
    assert child.shown[1][0].text.startswith("second")


async def test_several_messages_at_once_are_seen_in_order() -> None:
    child = Hearing(2)

    def both(transcript: Transcript) -> list[ToolCall]:
        return [steer("one")(transcript), steer("two")(transcript)]

    lead = Lead(
        background("a"),
        pause(5),
        steer("zero", seconds=0),
        both,
    )
    await hold(lead, hearing(child))
    first, *others = child.heard()[1]

    assert child.heard()[0] == []
    assert first == from_lead("zero")
    assert sorted(others) == [from_lead("one"), from_lead("two")]
    assert lead.receipts()[1:] == [["seen before its model call 2"]] * 2


async def test_several_tasks_at_once_have_a_receipt_each() -> None:
    quick, late, slow = Hearing(1, 1), Hearing(1, 10), Hearing(2, 10)
    lead = Lead(
        [
            background("a", agent="quick"),
            background("b", agent="late"),
            background("c", agent="slow"),
        ],
        pause(5),
        steer("hello"),
    )
    await hold(
        lead, hearing(quick, "quick"), hearing(late, "late"), hearing(slow, "slow")
    )

    assert sorted(lead.receipts()[0]) == [
        "gone: it had ended already",
        "seen before its model call 2",
        "too late: it ended before it could see this",
    ]
    assert [len(model.heard()[-1]) for model in (quick, late, slow)] == [0, 0, 1]


async def test_a_grandchild_can_be_told_and_its_parent_hears_nothing() -> None:
    leaf = Hearing(3)
    middle_heard: list[list[str]] = []

    def manage(transcript: Transcript) -> Any:
        middle_heard.append(asides(transcript))
        return "up" if isinstance(transcript[-1], ToolMessage) else hand_on("leaf")

    middle = Agent(
        "middle",
        model=ScriptedModel.always(manage),
        delegates=[hearing(leaf, "leaf")],
    )

    def to_the_leaf(transcript: Transcript) -> ToolCall:
        tasks = answers(transcript)[-1]["tasks"]
        (id_,) = (task["task_id"] for task in tasks if task["path"].endswith("leaf[1]"))
        arguments = {"action": "steer", "ids": [id_], "message": "deeper"}
        return ToolCall("task", arguments)

    listing = ToolCall("task", {"action": "list"})
    lead = Lead(background("a"), pause(5), listing, to_the_leaf)
    await hold(lead, middle)

    assert lead.receipts() == [["seen before its model call 2"]]
    assert leaf.heard()[1] == [from_lead("deeper")]
    assert middle_heard == [[], []]


async def test_who_waits_for_its_children_sees_it_when_they_have_ended() -> None:
    shown: list[list[str]] = []

    def manage(transcript: Transcript) -> Any:
        shown.append(asides(transcript))
        return "up" if len(shown) == 2 else hand_on("leaf")

    middle = Agent(
        "middle",
        model=ScriptedModel.always(manage),
        delegates=[worker("leaf", seconds=20)],
    )
    lead = Lead(background("a"), pause(5), steer("how is it?"))
    await hold(lead, middle)

    assert lead.receipts() == [["seen before its model call 2"]]
    assert shown == [[], [from_lead("how is it?")]]


async def test_a_list_shows_what_was_said_and_whether_it_was_seen() -> None:
    lead = Lead(
        background("a"),
        pause(5),
        steer("use the sea", seconds=10),
        steer("and the sky", seconds=0),
        ToolCall("task", {"action": "list"}),
    )
    await hold(lead, hearing(Hearing(3)))

    assert lead.read[4]["tasks"][0]["messages"] == [
        {"text": "use the sea", "seen_at_model_call": 2},
        {"text": "and the sky", "seen_at_model_call": None},
    ]


@pytest.mark.parametrize("message", ["", "  \n"])
async def test_something_must_be_said(message: str) -> None:
    journal = MemoryJournal()
    lead = Lead(background("a"), steer(message))
    await hold(lead, hearing(Hearing(1)), journal=journal)

    assert lead.read[1] == "steer: say something, in `message`"
    assert facts(journal.entries, Steered) == []


async def test_a_foreign_sessions_child_hears_nothing() -> None:
    journal = MemoryJournal()
    child = Hearing(3)
    victim = Agent("lead", model=Lead(background("a")), delegates=[hearing(child)])
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

    assert lead.read == [f"there is no such task: {foreign!r}; nothing was done"]
    assert facts(journal.entries, Steered) == []
    assert child.heard() == [[], [], []]


async def test_a_task_that_is_being_stopped_is_told_too_late() -> None:
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
    child: Hearing,
    *,
    at: float,
    seconds: float,
    journal: MemoryJournal | None = None,
    **options: Any,
) -> tuple[Receipt, Session]:
    """Say something at some time to the only child of a session."""
    agent = Agent(
        "lead", model=Lead(background("a")), delegates=[hearing(child, **options)]
    )
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
async def test_whoever_steers_from_python_has_a_receipt(
    at: float, seconds: float, receipt: Receipt
) -> None:
    child = Hearing(3)
    got, _ = await steered_run(child, at=at, seconds=seconds)
    seen = receipt.seen_at or (2 if receipt.state == "waiting" else 99)

    assert got == receipt
    message = from_outside("use the sea")
    assert child.heard() == [[message] * (call >= seen) for call in (1, 2, 3)]


async def test_steering_what_is_not_there_says_so() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        with pytest.raises(UnknownIdError, match="there is no task 't_none'"):
            await orchestrator.steer("t_none", "hello")


async def test_what_stands_for_no_character_is_replaced() -> None:
    child = Hearing(2)
    agent = Agent("lead", model=Lead(background("a")), delegates=[hearing(child)])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await orchestrator.steer(only_child(session), "caf\udce9")
            await session.wait_idle()

    assert child.heard()[1] == [from_outside("caf?")]


async def test_the_same_words_twice_are_two_messages() -> None:
    child = Hearing(2)
    agent = Agent("lead", model=Lead(background("a")), delegates=[hearing(child)])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await trio.sleep(1)
            for _ in range(2):
                await orchestrator.steer(only_child(session), "hurry")
            await session.wait_idle()

    assert child.heard()[1] == [from_outside("hurry")] * 2


# A session's own turn.


async def test_a_turn_that_runs_can_be_steered_from_outside() -> None:
    model = Hearing(3)
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(hearing(model, "lead")) as session:
            receipts: list[Receipt] = []

            async def talk() -> None:
                await trio.sleep(5)
                receipts.append(
                    await orchestrator.steer(session.id, "use the sea", seconds=100)
                )

            async with trio.open_nursery() as nursery:
                nursery.start_soon(talk)
                reply = await session.ask("go")

    message = from_outside("use the sea")
    assert reply.text == "done"
    assert receipts == [Receipt("seen", 2)]
    assert model.heard() == [[], [message], [message]]


async def test_a_run_can_be_steered_from_outside() -> None:
    model = Hearing(2)
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, hearing(model), "go")
            await trio.sleep(5)
            run = orchestrator.runs[-1]
            receipt = await orchestrator.steer(run, "use the sea", seconds=100)

        assert receipt == Receipt("seen", 2)
        assert await orchestrator.steer(run, "and the sky") == Receipt("gone")


async def test_what_came_too_late_for_a_turn_is_not_seen_in_the_next() -> None:
    """Whoever was told that it came too late has said it again, or has let it be."""
    model = Hearing(1)
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(hearing(model, "lead")) as session:
            receipts: list[Receipt] = []

            async def talk() -> None:
                await trio.sleep(5)
                receipts.append(
                    await orchestrator.steer(session.id, "use the sea", seconds=100)
                )

            async with trio.open_nursery() as nursery:
                nursery.start_soon(talk)
                await session.ask("go")
            await session.ask("again")

    assert receipts == [Receipt("too_late")]
    assert model.heard() == [[], []]


async def test_the_receipt_of_a_turn_says_what_became_of_it_in_that_turn() -> None:
    """Even if the next turn begins in the very moment in which it ends."""
    model = Hearing(1)
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(hearing(model, "lead")) as session:
            receipts: list[Receipt] = []

            async def talk() -> None:
                await trio.sleep(5)
                receipts.append(
                    await orchestrator.steer(session.id, "use the sea", seconds=100)
                )

            async with trio.open_nursery() as nursery:
                nursery.start_soon(talk)
                nursery.start_soon(session.ask, "go")
                await trio.sleep(1)
                nursery.start_soon(session.ask, "again")

    seen = [asides for asides in model.heard() if asides]
    assert len(receipts) == 1
    assert (receipts[0].state == "seen") == bool(seen)


async def test_a_session_between_two_turns_is_gone() -> None:
    model = Hearing(1)
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(hearing(model, "lead")) as session:
            assert await orchestrator.steer(session.id, "early") == Receipt("gone")
            await session.ask("go")
            assert await orchestrator.steer(session.id, "late") == Receipt("gone")
            await session.ask("again")

    assert model.heard() == [[], []]


async def interrupted(agent: Agent) -> tuple[MemoryJournal, Session]:
    """Return a session whose process died in the midst of its turn."""
    journal = MemoryJournal()
    with trio.move_on_after(5):
        async with open_orchestrator(journal) as orchestrator:
            async with orchestrator.open_session(agent) as session:
                await session.ask("go")
    return journal, session


async def test_an_interrupted_task_sees_it_when_it_goes_on() -> None:
    child = Hearing(2)
    agent = Agent(
        "lead",
        model=ScriptedModel([background("a"), pause(100), "x"]),
        delegates=[hearing(child)],
    )
    journal, session = await interrupted(agent)
    async with open_orchestrator(journal) as orchestrator:
        task = only_child(session)
        assert await orchestrator.steer(task, "use the sea") == Receipt("waiting")
        again = Agent(
            "lead", model=ScriptedModel.always("ok"), delegates=[hearing(child)]
        )
        async with orchestrator.open_session(again, session=session.id) as opened:
            await opened.wait_idle()

    assert child.heard()[1] == [from_outside("use the sea")]
    assert len(child.heard()[-1]) == 1


async def test_an_interrupted_turn_can_be_told_something_or_says_that_it_cannot() -> (
    None
):
    agent = hearing(Hearing(2), "lead")
    journal, session = await interrupted(agent)
    async with open_orchestrator(journal) as orchestrator:
        receipt = await orchestrator.steer(session.id, "use the sea")
        model = Hearing(2)
        opened = orchestrator.open_session(hearing(model, "lead"), session=session.id)
        async with opened as again:
            await again.wait_idle()

    assert receipt.state in {"waiting", "gone"}
    assert bool(model.heard()[-1]) == (receipt.state == "waiting")


# What steering does not change.


async def test_steering_gives_a_task_no_more_model_calls() -> None:
    child = Hearing(100)
    agent = Agent(
        "lead",
        model=Lead(background("a")),
        delegates=[hearing(child, limits=Limits(model_calls=4))],
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
    assert session.tree[task]["status"] == "over_budget"
    assert "4 model calls" in session.tree[task]["error"]


async def test_steering_gives_a_typed_answer_no_second_repair() -> None:
    child = Hearing(1, says="no number")
    receipt, session = await steered_run(child, at=5, seconds=100, output=int)
    task = only_child(session)

    assert receipt == Receipt("seen", 2)
    assert len(child.shown) == 2
    assert "could not be read" in child.shown[1][-1].text
    assert session.tree[task]["status"] == "failed"


async def test_steering_between_two_tries_does_not_hide_the_complaint() -> None:
    shown: list[list[Message]] = []

    class Improving:
        name = "improving"

        async def answer(self, request: ModelRequest) -> AssistantMessage:
            shown.append(list(request.transcript))
            await trio.sleep(10)
            mended = any("could not be read" in it.text for it in request.transcript)
            return AssistantMessage("7" if mended else "no number")

    child = Agent("child", model=Improving(), output=int)
    agent = Agent("lead", model=Lead(background("a")), delegates=[child])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await trio.sleep(5)
            await orchestrator.steer(only_child(session), "hurry", seconds=100)
            await session.wait_idle()

    assert session.tree.counts() == {"succeeded": 2}
    assert asides(shown[1]) == [from_outside("hurry")]


# Crash after every entry.


def steered_team(child: Hearing) -> Agent:
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
        done = len(answers(transcript))
        step = steps[min(done, 2) if done < 4 else 3]
        if isinstance(step, list):
            return [each(transcript) for each in step]
        return step(transcript) if callable(step) else step

    return Agent(
        "lead", model=ScriptedModel.always(lead, 0.5), delegates=[hearing(child)]
    )


async def finish(entries: Sequence[Entry], agent: Agent) -> list[Entry]:
    """Open a journal, say the message unless it was said, and wait until all is quiet."""
    journal = MemoryJournal(entries)
    opened = facts(entries, SessionOpened)
    session_id = opened[0].session if opened else None
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent, session=session_id) as session:
            if not facts(entries, MessageReceived):
                await session.ask("go")
            await session.wait_idle()
    return journal.entries


async def test_a_crash_after_any_entry_loses_no_message_and_shows_none_twice() -> None:
    whole = await finish([], steered_team(Hearing(4)))
    assert len(facts(whole, Steered)) == 3
    for length in range(1, len(whole)):
        child = Hearing(4)
        entries = await finish(whole[:length], steered_team(child))

        said = Counter(fact.id for fact in facts(entries, Steered))
        seen = Counter(id_ for fact in facts(entries, SteeringSeen) for id_ in fact.ids)
        assert said == seen, length
        assert sorted(fact.text for fact in facts(entries, Steered)) == [
            "one",
            "three",
            "two",
        ], length
        if child.shown:
            assert sorted(child.heard()[-1]) == [
                from_lead(text) for text in ("one", "three", "two")
            ], length
        (settled,) = facts(entries, TaskSettled)
        assert settled.outcome.succeeded, length
        assert all(turn.outcome.succeeded for turn in facts(entries, TurnEnded)), length


async def test_a_crash_after_any_entry_keeps_what_was_said_from_outside() -> None:
    whole = MemoryJournal()
    await steered_run(Hearing(3), at=5, seconds=100, journal=whole)
    for length in range(1, len(whole.entries)):
        cut = whole.entries[:length]
        child = Hearing(3)
        agent = Agent("lead", model=Going(), delegates=[hearing(child)])
        entries = await finish(cut, agent)

        said = Counter(fact.id for fact in facts(cut, Steered))
        seen = Counter(id_ for fact in facts(entries, SteeringSeen) for id_ in fact.ids)
        assert said == seen, length
        if child.shown:
            assert len(child.heard()[-1]) == sum(said.values()), length


class Going:
    """The model of a lead that hands one task on, wherever a crash left it."""

    name = "going"

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        if any(isinstance(said, AssistantMessage) for said in request.transcript):
            return AssistantMessage("ok")
        call = hand_on("a", background=True)
        named = ToolCall(call.name, call.arguments, id="call_0")  # type: ignore[arg-type]
        return AssistantMessage("", (named,))


async def test_a_crash_after_any_entry_keeps_the_one_repair_of_a_steered_task() -> None:
    """Neither is the complaint forgotten nor is it made a second time."""

    class Improving:
        name = "improving"

        def __init__(self) -> None:
            self.asked = 0

        async def answer(self, request: ModelRequest) -> AssistantMessage:
            self.asked += 1
            await trio.sleep(10)
            mended = any("could not be read" in it.text for it in request.transcript)
            return AssistantMessage("7" if mended else "no number")

    def agent() -> Agent:
        child = Agent("child", model=Improving(), output=int)
        return Agent("lead", model=Going(), delegates=[child])

    whole = MemoryJournal()
    async with open_orchestrator(whole) as orchestrator:
        async with orchestrator.open_session(agent()) as session:
            await session.ask("go")
            await trio.sleep(5)
            await orchestrator.steer(only_child(session), "hurry", seconds=100)
            await session.wait_idle()
    assert len(facts(whole.entries, SteeringSeen)) == 1
    for length in range(1, len(whole.entries)):
        entries = await finish(whole.entries[:length], agent())

        (settled,) = facts(entries, TaskSettled)
        assert settled.outcome.ending is Ending.SUCCEEDED, length
        answered = [
            fact for fact in facts(entries, ModelAnswered) if fact.task == settled.task
        ]
        assert len(answered) == 2, length


async def test_a_task_that_begins_anew_is_told_anew() -> None:
    """It has forgotten all that it did, but not what it was told to do."""
    whole = MemoryJournal()
    child = Hearing(3)
    await steered_run(child, at=5, seconds=100, journal=whole, on_restart="restart")
    for length in range(1, len(whole.entries)):
        cut = whole.entries[:length]
        if facts(cut, TaskSettled):
            break
        again = Hearing(3)
        helper = hearing(again, on_restart="restart")
        await finish(cut, Agent("lead", model=Going(), delegates=[helper]))

        said = [from_outside(fact.text) for fact in facts(cut, Steered)]
        assert again.heard()[-1] == said, length


@pytest.mark.realtime
async def test_after_a_restart_whoever_has_ended_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    model = ScriptedModel([hand_on("a"), "end"])
    async with open_orchestrator(path) as orchestrator:
        agent = Agent("lead", model=model, delegates=[worker()])
        run = await orchestrator.run(agent, "go")
        before = [await orchestrator.steer(task, "hello") for task in run.tree.graph]
    async with open_orchestrator(path) as orchestrator:
        after = [await orchestrator.steer(task, "hello") for task in run.tree.graph]

    assert before == after == [Receipt("gone")] * 2


async def test_the_orchestrator_can_be_closed_while_somebody_waits_for_a_receipt() -> (
    None
):
    child = Hearing(2, 1_000)
    journal = MemoryJournal()
    agent = Agent("lead", model=Lead(background("a")), delegates=[hearing(child)])

    async def talk(orchestrator: Orchestrator, task: TaskId) -> None:
        with trio.move_on_after(50):
            await orchestrator.steer(task, "use the sea", seconds=5_000)

    async with trio.open_nursery() as nursery:
        async with open_orchestrator(journal) as orchestrator:
            async with orchestrator.open_session(agent) as session:
                await session.ask("go")
                nursery.start_soon(talk, orchestrator, only_child(session))
                await trio.sleep(10)
    entries = await finish(journal.entries, agent)

    assert len(facts(entries, SteeringSeen)) == 1
    assert child.heard()[-1] == [from_outside("use the sea")]
