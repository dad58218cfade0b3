"""`task` and `cancel`: looking after work that was handed on, one's own and nobody else's."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from agents import (
    Agent,
    AssistantMessage,
    ModelRequest,
    Price,
    ScriptedModel,
    Tool,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
    tool,
)
from delegation import Ending, Mode, Rules, TaskId
from delegation.events import (
    CancelRequested,
    Entry,
    MessageReceived,
    SessionOpened,
    TaskRequested,
    TaskSettled,
    ToolAnswered,
    TurnEnded,
    TurnStarted,
)
from orchestrator import (
    MemoryJournal,
    Orchestrator,
    Run,
    Session,
    budget,
    open_orchestrator,
)
from tests.kit import facts, hand_on, worker


def control(action: str, *ids: str, **more: Any) -> ToolCall:
    """Return the call by which a model looks after its tasks."""
    named = {"ids": list(ids)} if ids else {}
    return ToolCall("task", {"action": action, **named, **more})


def answers(transcript: Transcript) -> list[Any]:
    """Return what tools have answered; what they refused as plain text."""
    return [
        said.text if said.failed else json.loads(said.text)
        for said in transcript
        if isinstance(said, ToolMessage)
    ]


def dispatched(transcript: Transcript) -> list[str]:
    """Return the ids of all tasks that were handed on in the background."""
    return [
        task["task_id"]
        for answer in answers(transcript)
        if isinstance(answer, dict) and answer.get("status") == "dispatched"
        for task in answer["tasks"]
    ]


class Lead:
    """A model that plays a script of functions, and remembers what it has read."""

    name = "lead"

    def __init__(self, *steps: Any) -> None:
        self._model = ScriptedModel([*steps, *["end"] * 5])
        self.read: list[Any] = []
        """The answers of its tools."""
        self.told: list[str] = []
        """What it was told by anybody but its tools."""

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.read = answers(request.transcript)
        self.told = [
            said.text for said in request.transcript if isinstance(said, UserMessage)
        ]
        return await self._model.answer(request)

    @property
    def news(self) -> list[str]:
        return [text for text in self.told if text.startswith("A task that you")]


def on_each(action: str, **more: Any) -> Any:
    """Return a step that looks after all tasks that were handed on so far."""
    return lambda transcript: control(action, *dispatched(transcript), **more)


def on_the(number: int, action: str, **more: Any) -> Any:
    """Return a step that looks after one of the tasks that were handed on so far."""
    return lambda transcript: control(action, dispatched(transcript)[number], **more)


def paused(name: str, *pauses: float, says: str = "done") -> Agent:
    """Return an agent that takes its time, the longer the later its goal comes."""

    class Slow:
        name = "slow"

        async def answer(self, request: ModelRequest) -> AssistantMessage:
            await trio.sleep(float(request.transcript[0].text))
            return AssistantMessage(f"{says} {request.transcript[0].text}")

    return Agent(name, model=Slow())


async def hold(lead: Agent, journal: MemoryJournal | None = None) -> Session:
    """Ask a session once, and wait until all is quiet."""
    async with open_orchestrator(
        MemoryJournal() if journal is None else journal
    ) as orchestrator:
        async with orchestrator.open_session(lead) as session:
            await session.ask("go")
            await session.wait_idle()
    return session


def background(*goals: str, agent: str = "") -> ToolCall:
    return hand_on(*goals, agent=agent, background=True)


def told_by(entries: Sequence[Entry]) -> Counter[int]:
    """Return how often each piece of mail was read, be it in a turn or in an answer."""
    return Counter(
        seq
        for entry in entries
        if isinstance(entry.event, TurnStarted | ToolAnswered)
        for seq in entry.event.mail
    )


def mail_in(entries: Sequence[Entry]) -> Counter[int]:
    """Return everything that a session must be told."""
    detached = {
        fact.request.id
        for fact in facts(entries, TaskRequested)
        if fact.mode is Mode.DETACHED
    }
    return Counter(
        entry.seq
        for entry in entries
        if isinstance(entry.event, MessageReceived)
        or (isinstance(entry.event, TaskSettled) and entry.event.task in detached)
    )


def statuses(orchestrator: Orchestrator, session: str) -> dict[str, str]:
    tree = orchestrator.tree(session)
    return {tree[task]["path"]: tree[task]["status"] for task in tree.graph}


# What the verbs say.


async def test_a_list_says_what_each_task_does() -> None:
    lead = Lead(background("10", "20"), control("list"))
    await hold(Agent("lead", model=lead, delegates=[paused("worker")]))
    listed = lead.read[1]["tasks"]

    assert [task["path"] for task in listed] == ["/lead/worker[1]", "/lead/worker[2]"]
    assert [task["goal"] for task in listed] == ["10", "20"]
    assert {task["mode"] for task in listed} == {"detached"}
    assert {task["status"] for task in listed} <= {"queued", "running"}
    assert all(task["seconds"] >= 0 and task["tokens"] == 0 for task in listed)


async def test_a_list_shows_what_runs_first_and_then_what_has_ended() -> None:
    lead = Lead(
        background("10", "50"), control("wait", mode="any"), control("list"), "on it"
    )
    await hold(Agent("lead", model=lead, delegates=[paused("worker")]))
    listed = lead.read[2]["tasks"]

    assert [(task["goal"], task["status"]) for task in listed] == [
        ("50", "running"),
        ("10", "succeeded"),
    ]


async def test_a_list_of_nothing_is_empty() -> None:
    lead = Lead(control("list"))
    await hold(Agent("lead", model=lead, delegates=[worker()]))

    assert lead.read == [{"tasks": []}]


async def test_a_list_shows_a_hundred_and_says_how_many_more_there_are() -> None:
    goals = ["10"] * 60
    lead = Lead([background(*goals), background(*goals)], control("list"))
    await hold(Agent("lead", model=lead, delegates=[paused("worker")]))

    assert len(lead.read[2]["tasks"]) == 100
    assert lead.read[2]["note"] == "20 more are not shown."


async def test_waiting_for_all_brings_every_result_in_order() -> None:
    lead = Lead(background("20", "10"), on_each("wait"))
    session = await hold(Agent("lead", model=lead, delegates=[paused("worker")]))
    answer = lead.read[1]

    assert answer["status"] == "completed"
    assert [result["output"] for result in answer["results"]] == ["done 20", "done 10"]
    assert "running" not in answer
    assert lead.news == []
    assert session.tree.counts() == {"succeeded": 3}
    assert trio.current_time() == pytest.approx(20)


async def test_waiting_for_any_brings_the_first_and_says_what_still_runs() -> None:
    journal = MemoryJournal()
    lead = Lead(background("20", "10"), on_each("wait", mode="any"), "one is there")
    await hold(Agent("lead", model=lead, delegates=[paused("worker")]), journal)
    answer = lead.read[1]

    assert answer["status"] == "still_running"
    assert [result["output"] for result in answer["results"]] == ["done 10"]
    assert [task["goal"] for task in answer["running"]] == ["20"]
    # What was not waited for still wakes the session, and only that.
    assert len(lead.news) == 1
    assert "done 20" in lead.news[0]
    assert told_by(journal.entries) == mail_in(journal.entries)


async def test_waiting_takes_no_longer_than_it_says() -> None:
    lead = Lead(background("100"), on_each("wait", seconds=7), "later then")
    agent = Agent("lead", model=lead, delegates=[paused("worker")])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            assert trio.current_time() == pytest.approx(7)
            await session.wait_idle()

    assert lead.read[1]["status"] == "still_running"
    assert lead.read[1]["results"] == []
    assert len(lead.news) == 1


async def test_waiting_without_a_name_is_for_all_that_run() -> None:
    lead = Lead(background("20", "10", "5"), control("wait"))
    await hold(Agent("lead", model=lead, delegates=[paused("worker")]))

    assert [result["output"] for result in lead.read[1]["results"]] == [
        "done 20",
        "done 10",
        "done 5",
    ]


@pytest.mark.parametrize("mode", ["any", "all"])
async def test_waiting_for_nothing_is_over_at_once(mode: str) -> None:
    lead = Lead(control("wait", mode=mode))
    agent = Agent("lead", model=lead, delegates=[worker()])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            with trio.fail_after(1000):
                await session.ask("go")

    assert lead.read == [{"status": "completed", "results": []}]
    assert trio.current_time() == 0


@pytest.mark.parametrize("mode", ["any", "all"])
async def test_waiting_for_what_has_ended_is_over_at_once(mode: str) -> None:
    lead = Lead(background("10"), on_each("wait"), on_each("wait", mode=mode))
    await hold(Agent("lead", model=lead, delegates=[paused("worker")]))

    assert lead.read[2] == lead.read[1]
    assert trio.current_time() == pytest.approx(10)


async def test_a_result_is_read_on_page_by_page_without_loss() -> None:
    text = "".join(f"line {number}\n" for number in range(15_000))

    def next_page(transcript: Transcript) -> Any:
        shown = answers(transcript)[1:]
        output = shown[-1]["results"][0]["output"]
        if "[" not in output:
            return "end"
        offset = int(output.rpartition("offset=")[2].partition(")")[0])
        return control("result", *dispatched(transcript), offset=offset)

    lead = Lead(background("a"), on_each("wait"), *[next_page] * 4)
    helper = worker(says=text)
    await hold(Agent("lead", model=lead, delegates=[helper]))
    pages = [
        answer["results"][0]["output"].partition("\n[")[0] for answer in lead.read[1:]
    ]

    assert len(pages) == -(-len(text) // 50_000)
    assert "".join(pages) == text
    assert f"of {len(text)} characters are left out here" in json.dumps(lead.read[1])


async def test_reading_behind_the_end_of_a_result_gives_nothing() -> None:
    lead = Lead(background("a"), on_each("wait"), on_each("result", offset=999))
    await hold(Agent("lead", model=lead, delegates=[worker()]))

    assert lead.read[2]["results"][0]["output"] == ""


async def test_waiting_for_what_never_begins_is_over_when_that_is_known() -> None:
    batch = ToolCall(
        "delegate_task",
        {
            "tasks": [
                {"goal": "no number", "label": "one"},
                {"goal": "10", "label": "two", "depends_on": ["one"]},
            ],
            "background": True,
        },
    )
    lead = Lead(batch, on_each("wait"))
    await hold(Agent("lead", model=lead, delegates=[paused("worker")]))
    results = {result["label"]: result for result in lead.read[1]["results"]}

    assert results["one"]["status"] == "failed"
    assert results["two"]["status"] == "refused"
    assert "it needs 'one'" in results["two"]["error"]
    assert lead.news == []


async def test_looking_after_tasks_counts_as_no_task_and_needs_no_room() -> None:
    lead = Lead(
        background("10", "20"),
        background("30"),
        control("list"),
        on_the(0, "wait"),
        on_the(1, "cancel"),
    )
    agent = Agent("lead", model=lead, delegates=[paused("worker")])
    rules = Rules(live_tasks=1, live_children=1, detached=1, queue=1)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        with budget(tasks=2):
            async with orchestrator.open_session(agent) as session:
                await session.ask("go")
                await session.wait_idle()

    assert "allows 2 tasks" in lead.read[1]
    assert len(lead.read[2]["tasks"]) == 2
    assert lead.read[3]["results"][0]["output"] == "done 10"
    assert lead.read[4]["results"][0]["status"] == "cancelled"


async def test_the_result_of_what_runs_is_that_it_runs() -> None:
    lead = Lead(background("10"), on_each("result"), "later then")
    await hold(Agent("lead", model=lead, delegates=[paused("worker")]))

    assert lead.read[1]["status"] == "still_running"
    assert lead.read[1]["results"] == []
    assert [task["goal"] for task in lead.read[1]["running"]] == ["10"]
    assert len(lead.news) == 1


async def test_a_result_can_be_read_as_often_as_one_likes() -> None:
    journal = MemoryJournal()
    lead = Lead(background("10"), on_each("wait"), *[on_each("result")] * 3)
    agent = Agent("lead", model=lead, delegates=[paused("worker")])
    await hold(agent, journal)

    assert lead.read[1:] == [lead.read[1]] * 4
    assert told_by(journal.entries) == mail_in(journal.entries)


async def test_a_result_of_a_turn_long_ago_can_still_be_read() -> None:
    lead = Lead(background("10"), "later", "news", on_each("result"))
    agent = Agent("lead", model=lead, delegates=[paused("worker")])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()
            await session.ask("what was it?")

    assert lead.read[-1]["results"][0]["output"] == "done 10"


@pytest.mark.parametrize("action", ["result", "steer", "cancel"])
async def test_who_is_meant_must_be_said(action: str) -> None:
    lead = Lead(background("10"), control(action, message="hello"), "sorry")
    await hold(Agent("lead", model=lead, delegates=[paused("worker")]))

    assert lead.read[1] == f"{action}: say which tasks are meant, in `ids`"


@pytest.mark.parametrize(
    "arguments",
    [
        {"action": "explode"},
        {"action": "wait", "seconds": -1},
        {"action": "wait", "mode": "some"},
        {"action": "result", "ids": "t_1"},
        {"action": "result", "ids": ["t_1"], "offset": -1},
        {"action": "list", "session": "other"},
        {},
    ],
)
async def test_what_makes_no_sense_is_answered_and_harms_nobody(
    arguments: dict[str, Any],
) -> None:
    lead = Lead(ToolCall("task", arguments))
    session = await hold(Agent("lead", model=lead, delegates=[worker()]))

    assert isinstance(lead.read[0], str)
    assert session.tree.counts() == {"succeeded": 1}


async def test_who_hands_nothing_on_has_nothing_to_look_after() -> None:
    names: list[list[str]] = []

    class Curious:
        name = "curious"

        async def answer(self, request: ModelRequest) -> AssistantMessage:
            await trio.lowlevel.checkpoint()
            names.append([tool.name for tool in request.tools])
            return AssistantMessage("ok")

    async with open_orchestrator(":memory:") as orchestrator:
        await orchestrator.run(Agent("alone", model=Curious()), "go")
        team = Agent("lead", model=Curious(), delegates=[worker()])
        await orchestrator.run(team, "go")

    assert names == [[], ["delegate_task", "task"]]


# Told once.


async def test_what_a_wait_has_told_is_not_told_again() -> None:
    journal = MemoryJournal()
    lead = Lead(background("10", "20"), on_each("wait"))
    agent = Agent("lead", model=lead, delegates=[paused("worker")])
    await hold(agent, journal)

    assert len(facts(journal.entries, TurnStarted)) == 1
    assert lead.news == []
    assert told_by(journal.entries) == mail_in(journal.entries)


async def test_what_ended_meanwhile_and_was_read_as_a_result_is_not_told_again() -> (
    None
):
    @tool
    async def think() -> str:
        await trio.sleep(100)
        return "thought"

    journal = MemoryJournal()
    lead = Lead(background("10", "20"), ToolCall("think"), on_the(0, "result"))
    lead_agent = Agent(
        "lead", model=Readable(lead), delegates=[paused("worker")], tools=[think]
    )
    await hold(lead_agent, journal)

    # The other one was not read, and wakes the session.
    assert len(lead.news) == 1
    assert "done 20" in lead.news[0]
    assert told_by(journal.entries) == mail_in(journal.entries)


class Readable:
    """A model that reads answers of tools which are no JSON."""

    name = "readable"

    def __init__(self, lead: Lead) -> None:
        self._lead = lead

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        lead = self._lead
        lead.told = [
            said.text for said in request.transcript if isinstance(said, UserMessage)
        ]
        shown = [
            said
            for said in request.transcript
            if not isinstance(said, ToolMessage) or said.text.startswith("{")
        ]
        lead.read = answers(shown)
        return await lead._model.answer(
            ModelRequest(
                instructions=request.instructions,
                transcript=shown,
                tools=request.tools,
                tell=request.tell,
            )
        )


async def test_what_is_only_listed_is_still_told() -> None:
    journal = MemoryJournal()
    lead = Lead(
        background("10", "20"),
        on_the(1, "wait"),
        control("list"),
        "seen the list",
    )
    await hold(Agent("lead", model=lead, delegates=[paused("worker")]), journal)
    listed = {task["goal"]: task["status"] for task in lead.read[2]["tasks"]}

    assert listed == {"10": "succeeded", "20": "succeeded"}
    assert len(lead.news) == 1
    assert "done 10" in lead.news[0]
    assert told_by(journal.entries) == mail_in(journal.entries)


async def test_two_calls_at_once_may_ask_for_the_same_result() -> None:
    journal = MemoryJournal()

    def both(transcript: Transcript) -> Any:
        ids = dispatched(transcript)
        return [control("wait", *ids), control("wait", *ids), control("result", *ids)]

    lead = Lead(background("10"), both)
    await hold(Agent("lead", model=lead, delegates=[paused("worker")]), journal)

    assert sorted(str(answer["status"]) for answer in lead.read[1:]) == [
        "completed",
        "completed",
        "still_running",
    ]
    assert lead.news == []
    assert told_by(journal.entries) == mail_in(journal.entries)


async def test_a_wait_that_is_cancelled_has_told_nothing() -> None:
    journal = MemoryJournal()
    lead = Lead(background("10", "100"), on_each("wait"), "news")
    agent = Agent("lead", model=lead, delegates=[paused("worker")])
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(50)
                await orchestrator.cancel(session.id)
            await session.wait_idle()

    assert len(lead.news) == 2
    assert told_by(journal.entries) == mail_in(journal.entries)


async def test_what_is_said_during_a_wait_makes_the_next_turn() -> None:
    journal = MemoryJournal()
    lead = Lead(background("10"), on_each("wait"), "there it is", "and hello")
    agent = Agent("lead", model=lead, delegates=[paused("worker")])
    replies: list[str] = []
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:

            async def ask(text: str) -> None:
                replies.append((await session.ask(text)).text)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, "go")
                await trio.sleep(5)
                nursery.start_soon(ask, "hello?")

    assert replies == ["there it is", "and hello"]
    assert told_by(journal.entries) == mail_in(journal.entries)


def careful_team() -> Agent:
    """Return a lead that waits for one, reads one, cancels one, and is woken by one.

    It is a function of the transcript, so that it goes on wherever a crash left it.
    """

    def lead(transcript: Transcript) -> Any:
        last = transcript[-1]
        if isinstance(last, UserMessage) and last.text != "go":
            return "woken"
        done = answers(transcript)
        ids = dispatched(transcript)
        steps: list[Callable[[], Any]] = [
            lambda: background("2", "4", "1000", "9"),
            lambda: control("wait", *ids[:2], mode="any"),
            lambda: control("wait", ids[1], seconds=1),
            lambda: control("result", ids[0], ids[1]),
            lambda: control("cancel", ids[2]),
            lambda: control("list"),
            lambda: "on it",
        ]
        return steps[len(done)]()

    middle = paused("middle")
    return Agent("lead", model=ScriptedModel.always(lead, 0.5), delegates=[middle])


async def finish(entries: Sequence[Entry], lead: Agent) -> list[Entry]:
    """Open a journal, say the message unless it was said, and wait until all is quiet."""
    journal = MemoryJournal(entries)
    opened = facts(entries, SessionOpened)
    session_id = opened[0].session if opened else None
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(lead, session=session_id) as session:
            if not facts(entries, MessageReceived):
                await session.ask("go")
            await session.wait_idle()
            with suppress(trio.WouldBlock):
                while True:
                    session.replies.receive_nowait()
    return journal.entries


async def test_a_crash_after_any_entry_tells_each_end_exactly_once() -> None:
    whole = await finish([], careful_team())
    assert len(whole) > 30
    assert sum(len(fact.mail) for fact in facts(whole, ToolAnswered)) == 3
    for length in range(1, len(whole)):
        entries = await finish(whole[:length], careful_team())

        assert told_by(entries) == mail_in(entries), length
        settled = Counter(fact.task for fact in facts(entries, TaskSettled))
        asked = Counter(fact.request.id for fact in facts(entries, TaskRequested))
        assert settled == asked, length
        assert len(asked) == 4, length
        endings = Counter(fact.outcome.ending for fact in facts(entries, TaskSettled))
        assert endings == {Ending.SUCCEEDED: 3, Ending.CANCELLED: 1}, length
        turns = facts(entries, TurnEnded)
        assert all(turn.outcome.succeeded for turn in turns), length


async def test_crash_upon_crash_tells_each_end_exactly_once() -> None:
    entries = await finish([], careful_team())
    for length in range(3, len(entries), 5):
        cut = await finish(entries[:length], careful_team())
        entries = await finish(cut[: length + 4], careful_team())

        assert told_by(entries) == mail_in(entries), length


async def test_a_turn_that_begins_anew_is_told_anew() -> None:
    """A result that was read by what is forgotten has not been told to anybody."""

    def lead(shown: list[str]) -> Agent:
        def say(transcript: Transcript) -> Any:
            shown.append("".join(said.text for said in transcript))
            if not isinstance(transcript[-1], ToolMessage):
                return "woken" if len(transcript) > 1 else background("2")
            if len(answers(transcript)) == 2:
                return "done"
            return on_each("wait")(transcript)

        return Agent(
            "lead",
            model=ScriptedModel.always(say, 1),
            delegates=[paused("worker")],
            on_restart="restart",
        )

    whole = await finish([], lead([]))
    (told,) = (
        index
        for index, entry in enumerate(whole)
        if isinstance(entry.event, ToolAnswered) and entry.event.mail
    )
    (first,) = facts(whole, TaskSettled)
    shown: list[str] = []
    entries = await finish(whole[: told + 1], lead(shown))

    assert all(turn.outcome.succeeded for turn in facts(entries, TurnEnded))
    assert any(first.task in text for text in shown)


# Whose tasks they are.


VERBS: list[dict[str, Any]] = [
    {"action": "list"},
    {"action": "wait"},
    {"action": "result"},
    {"action": "steer", "message": "stop it"},
    {"action": "cancel"},
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: str(verb["action"]))
async def test_the_task_of_another_session_is_no_task(verb: dict[str, Any]) -> None:
    journal = MemoryJournal()
    victim = Agent(
        "lead", model=Lead(background("100")), delegates=[paused("worker", says="ok")]
    )
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(victim) as theirs:
            await theirs.ask("go")
            (task,) = theirs.tree.children(theirs.tree.root)
            for foreign in (task, theirs.id, "t_none", ""):
                lead = Lead(
                    background("10"),
                    lambda transcript, foreign=foreign: ToolCall(
                        "task", verb | {"ids": [*dispatched(transcript), foreign]}
                    ),
                )
                agent = Agent("lead", model=lead, delegates=[paused("worker")])
                async with orchestrator.open_session(agent) as mine:
                    await mine.ask("go")
                    await mine.wait_idle()

                    assert lead.read[1] == (
                        f"there is no such task: {foreign!r}; nothing was done"
                    )
                    # Not even to the one that is its own.
                    assert mine.tree.counts() == {"succeeded": 2}
            assert theirs.tree[task]["status"] == "running"
            await theirs.wait_idle()

    assert facts(journal.entries, CancelRequested) == []
    assert {fact.outcome.ending for fact in facts(journal.entries, TaskSettled)} == {
        Ending.SUCCEEDED
    }


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: str(verb["action"]))
async def test_a_child_reaches_neither_its_parent_nor_its_siblings_nor_itself(
    verb: dict[str, Any],
) -> None:
    ids: dict[str, str] = {}
    read: list[str] = []

    def meddle(transcript: Transcript) -> Any:
        tried = answers(transcript)
        read[:] = tried
        if len(tried) == len(ids):
            return "gave up"
        return ToolCall("task", verb | {"ids": [list(ids.values())[len(tried)]]})

    meddler = Agent(
        "meddler", model=ScriptedModel.always(meddle, 5), delegates=[worker("leaf")]
    )
    lead = Lead([background("a", agent="meddler"), background("100", agent="other")])
    agent = Agent("lead", model=lead, delegates=[meddler, paused("other")])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            first, second = session.tree.children(session.tree.root)
            ids |= {"parent": session.id, "itself": first, "sibling": second}
            await session.wait_idle()

            assert session.tree.counts() == {"succeeded": 3}
    assert read == [
        f"there is no such task: {id_!r}; nothing was done" for id_ in ids.values()
    ]


async def test_a_child_looks_after_its_own_descendants_only() -> None:
    listed: list[Any] = []

    def look(transcript: Transcript) -> Any:
        done = answers(transcript)
        if len(done) == 2:
            listed.extend(task["path"] for task in done[1]["tasks"])
            return "done"
        return control("list") if done else hand_on("x", "y")

    middle = Agent(
        "middle", model=ScriptedModel.always(look), delegates=[worker("leaf")]
    )
    lead = Lead([background("a", agent="middle"), background("50", agent="other")])
    agent = Agent("lead", model=lead, delegates=[middle, paused("other")])
    session = await hold(agent)

    mine = next(
        session.tree[task]["path"]
        for task in session.tree.graph
        if session.tree[task]["agent"] == "middle"
    )
    assert sorted(listed) == [f"{mine}/leaf[1]", f"{mine}/leaf[2]"]


async def test_a_session_reaches_its_grandchildren() -> None:
    middle = Agent(
        "middle",
        model=ScriptedModel([hand_on("100", "20"), "both have ended"]),
        delegates=[paused("leaf")],
    )

    def cancel_first_leaf(transcript: Transcript) -> Any:
        tasks = answers(transcript)[-1]["tasks"]
        (leaf,) = (task for task in tasks if task["goal"] == "100")
        return control("cancel", leaf["task_id"])

    lead = Lead(
        background("a"),
        control("wait", seconds=5),
        control("list"),
        cancel_first_leaf,
        on_each("wait"),
    )
    session = await hold(Agent("lead", model=lead, delegates=[middle]))

    assert lead.read[3]["results"][0]["status"] == "cancelled"
    assert lead.read[4]["results"][0]["output"] == "both have ended"
    assert trio.current_time() == pytest.approx(20)
    assert session.tree.counts() == {"succeeded": 3, "cancelled": 1}


@pytest.mark.realtime
async def test_after_a_restart_everybody_reaches_the_same_tasks(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    helper = Agent("worker", model=Forever())

    def agent(model: Any) -> Agent:
        return Agent("lead", model=model, delegates=[helper])

    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(agent(Lead(background("a")))) as mine:
            await mine.ask("go")
        async with orchestrator.open_session(agent(Lead(background("b")))) as theirs:
            await theirs.ask("go")
    (own,) = mine.tree.children(mine.tree.root)
    (foreign,) = theirs.tree.children(theirs.tree.root)

    lead = Lead(control("list"), control("cancel", foreign), control("cancel", own))
    async with open_orchestrator(path) as orchestrator:
        opened = orchestrator.open_session(agent(lead), session=mine.id)
        async with opened as again:
            await again.ask("stop it")
            await again.wait_idle()
        now = orchestrator.tree(theirs.id)[TaskId(foreign)]["status"]

    assert [task["task_id"] for task in lead.read[1]["tasks"]] == [own]
    assert lead.read[2] == f"there is no such task: {foreign!r}; nothing was done"
    assert lead.read[3]["results"][0]["status"] == "cancelled"
    assert lead.news == []
    assert now == "interrupted"


class Forever:
    """A model that never answers."""

    name = "forever"

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.sleep_forever()
        return AssistantMessage("never")


@pytest.mark.realtime
async def test_a_wait_that_a_restart_interrupted_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"

    def say(transcript: Transcript) -> Any:
        done = answers(transcript)
        if len(done) == 2:
            return done[1]["results"][0]["output"]
        return on_each("wait")(transcript) if done else background("a")

    def agent(helper: Agent) -> Agent:
        return Agent("lead", model=ScriptedModel.always(say), delegates=[helper])

    with trio.move_on_after(0.3):
        async with open_orchestrator(path) as orchestrator:
            stuck = agent(Agent("worker", model=Forever()))
            async with orchestrator.open_session(stuck) as session:
                await session.ask("go")
    async with open_orchestrator(path) as orchestrator:
        quick = agent(worker(says="found"))
        async with orchestrator.open_session(quick, session=session.id) as again:
            reply = await again.replies.receive()
            await again.wait_idle()

    assert (reply.turn, reply.text) == (1, "found")
    assert again.tree.counts() == {"succeeded": 2}


# Cancel.


def untidy(seconds: float, log: list[str], name: str = "tidy") -> Tool:
    """Return a tool that never ends, and takes its time to tidy up."""

    @tool(name=name)
    async def run() -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(seconds)
            log.append(name)
        return "never"

    return run


async def test_cancelling_a_turn_ends_what_it_waits_for_and_nothing_else() -> None:
    lead = Lead(background("50"), hand_on("100", background=False), "news")
    agent = Agent("lead", model=lead, delegates=[paused("worker")])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(10)
                await orchestrator.cancel(session.id)

                assert statuses(orchestrator, session.id) == {
                    "/lead": "waiting",
                    "/lead/worker[1]": "running",
                    "/lead/worker[2]": "cancelled",
                }
                assert trio.current_time() == pytest.approx(10)
            await session.wait_idle()

            assert session.replies.receive_nowait().text == "news"
    assert len(lead.news) == 1
    assert "done 50" in lead.news[0]


async def test_cancelling_a_turn_leaves_its_detached_tasks_free_to_act_meanwhile() -> (
    None
):
    """Its joined child takes long to tidy up; what is detached knows nothing of that."""
    log: list[str] = []
    joined = Agent(
        "joined", model=ScriptedModel([ToolCall("tidy")]), tools=[untidy(100, log)]
    )

    @tool
    async def think() -> str:
        await trio.sleep(50)
        return "thought"

    detached = Agent(
        "detached",
        model=ScriptedModel([ToolCall("think"), hand_on("leaf"), "did it all"]),
        tools=[think],
        delegates=[worker("leaf", seconds=10)],
    )
    lead = Lead(
        background("a", agent="detached"),
        hand_on("b", agent="joined", background=False),
        "news",
    )
    agent = Agent("lead", model=lead, delegates=[joined, detached])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(10)
                await orchestrator.cancel(session.id)
            await session.wait_idle()
            ended = statuses(orchestrator, session.id)

    assert log == ["tidy"]
    assert ended["/lead/joined[1]"] == "cancelled"
    assert ended["/lead/detached[1]"] == "succeeded"
    assert ended.get("/lead/detached[1]/leaf[1]") == "succeeded"


async def test_cancelling_a_turn_lets_its_detached_tasks_begin_meanwhile() -> None:
    log: list[str] = []
    joined = Agent(
        "joined", model=ScriptedModel([ToolCall("tidy")]), tools=[untidy(100, log)]
    )
    lead = Lead(
        background("20", "30", agent="detached"),
        hand_on("b", agent="joined", background=False),
        "news",
        "more news",
    )
    agent = Agent("lead", model=lead, delegates=[joined, paused("detached")])
    rules = Rules(detached=1)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(10)
                await orchestrator.cancel(session.id)
            await session.wait_idle()
            ended = statuses(orchestrator, session.id)

    assert ended["/lead/detached[1]"] == "succeeded"
    assert ended["/lead/detached[2]"] == "succeeded"


async def test_cancelling_a_turn_does_not_change_how_a_detached_task_ends() -> None:
    """How a task ended is what happened to it, not what happened to somebody else."""
    log: list[str] = []
    joined = Agent(
        "joined", model=ScriptedModel([ToolCall("tidy")]), tools=[untidy(100, log)]
    )
    broken = Agent("broken", model=ScriptedModel([ValueError("a bug")], 50))
    lead = Lead(
        background("a", agent="broken"),
        hand_on("b", agent="joined", background=False),
        "news",
    )
    agent = Agent("lead", model=lead, delegates=[joined, broken])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(10)
                await orchestrator.cancel(session.id)
            await session.wait_idle()
            ended = statuses(orchestrator, session.id)

    assert ended["/lead/broken[1]"] == "failed"


async def test_cancelling_the_tree_of_a_session_ends_everything() -> None:
    middle = Agent(
        "middle",
        model=ScriptedModel.always(hand_on("100", "200")),
        delegates=[paused("leaf")],
    )
    lead = Lead(background("a", "b"), hand_on("c", background=False), "news")
    agent = Agent("lead", model=lead, delegates=[middle])
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await trio.sleep(10)
                await orchestrator.cancel(session.id, tree=True)

                below = [*statuses(orchestrator, session.id).values()][1:]
                assert below == ["cancelled"] * 9
                assert trio.current_time() == pytest.approx(10)
            await session.wait_idle()

    # It is told what became of them all, once.
    assert len(lead.news) == 2
    assert told_by(journal.entries) == mail_in(journal.entries)


async def test_cancelling_the_tree_of_a_session_between_two_turns() -> None:
    lead = Lead(background("100", "200"), "later", "news")
    agent = Agent("lead", model=lead, delegates=[paused("worker")])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await orchestrator.cancel(session.id)
            assert session.tree.counts() == {"waiting": 1, "running": 2}
            await orchestrator.cancel(session.id, tree=True)
            await session.wait_idle()

    assert session.tree.counts() == {"succeeded": 1, "cancelled": 2}
    assert len(lead.news) == 2


async def test_cancel_returns_when_the_cleanup_of_every_descendant_is_over() -> None:
    log: list[str] = []
    deepest = Agent(
        "deepest",
        model=ScriptedModel.always(ToolCall("slow")),
        tools=[untidy(7, log, "slow")],
    )
    middle = Agent(
        "middle",
        model=ScriptedModel([[hand_on("x"), ToolCall("quick")]]),
        tools=[untidy(3, log, "quick")],
        delegates=[deepest],
    )
    lead = Lead(background("a"), "later", "news")
    agent = Agent("lead", model=lead, delegates=[middle])
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await trio.sleep(10)
            (task,) = session.tree.children(session.tree.root)
            async with trio.open_nursery() as nursery:
                # Whoever asks as well waits as long.
                nursery.start_soon(orchestrator.cancel, task)
                await orchestrator.cancel(task)

            assert log == ["quick", "slow"]
            assert trio.current_time() == pytest.approx(17)
            assert [*statuses(orchestrator, session.id).values()][1:] == [
                "cancelled",
                "cancelled",
            ]


async def test_a_model_that_cancels_reads_what_was_said_and_spent_by_then() -> None:
    @tool
    async def wait() -> str:
        await trio.sleep_forever()
        return "never"

    class Talkative(ScriptedModel):
        async def answer(self, request: ModelRequest) -> AssistantMessage:
            answer = await super().answer(request)
            return AssistantMessage(
                "half of it", answer.calls, answer.usage, answer.model
            )

    half = Talkative([ToolCall("wait")], price=Price(output=1_000))
    helper = Agent("helper", model=half, tools=[wait])
    lead = Lead(
        [background("a", agent="helper"), background("50", agent="other")],
        control("wait", seconds=5),
        lambda transcript: control(
            "cancel",
            *(
                task["task_id"]
                for task in answers(transcript)[-1]["running"]
                if "/helper" in task["path"]
            ),
        ),
        "stopped it",
    )
    journal = MemoryJournal()
    agent = Agent("lead", model=lead, delegates=[helper, paused("other")])
    session = await hold(agent, journal)
    (result,) = lead.read[3]["results"]

    assert result["status"] == "cancelled"
    assert result["output"] == "half of it"
    assert result["tokens"] > 0
    assert result["cost_usd"] > 0
    # Its sibling lives on, and is the only one that the session is told of.
    assert session.tree.counts() == {"succeeded": 2, "cancelled": 1}
    assert len(lead.news) == 1
    assert "done 50" in lead.news[0]
    assert told_by(journal.entries) == mail_in(journal.entries)


async def test_a_model_that_cancels_waits_for_the_cleanup_too() -> None:
    log: list[str] = []
    helper = Agent(
        "helper",
        model=ScriptedModel.always(ToolCall("tidy")),
        tools=[untidy(7, log)],
    )
    lead = Lead(background("a"), control("wait", seconds=5), on_each("cancel"))
    await hold(Agent("lead", model=lead, delegates=[helper]))

    assert log == ["tidy"]
    assert lead.read[2]["results"][0]["status"] == "cancelled"
    assert trio.current_time() == pytest.approx(12)


async def test_cancelling_what_has_ended_changes_nothing() -> None:
    journal = MemoryJournal()
    lead = Lead(background("10"), on_each("wait"), on_each("cancel"))
    await hold(Agent("lead", model=lead, delegates=[paused("worker")]), journal)

    assert lead.read[2]["results"][0]["status"] == "succeeded"
    assert facts(journal.entries, CancelRequested) == []


async def test_a_run_that_is_cancelled_returns_with_what_it_has() -> None:
    runs: list[Run[str]] = []
    model = ScriptedModel([hand_on("100"), "never"], price=Price(output=1_000))
    agent = Agent("lead", model=model, delegates=[paused("worker")])
    async with open_orchestrator(":memory:") as orchestrator:

        async def run() -> None:
            runs.append(await orchestrator.run(agent, "go"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await trio.sleep(10)
            await orchestrator.cancel(orchestrator.runs[-1])
            assert trio.current_time() == pytest.approx(10)

    assert runs[0].outcome.ending is Ending.CANCELLED
    assert runs[0].tree.counts() == {"cancelled": 2}
    assert runs[0].usage.cost > 0


async def test_cancelling_a_parent_ends_its_children_that_wait_in_line() -> None:
    middle = Agent(
        "middle",
        model=ScriptedModel.always(hand_on("100", "100", "100")),
        delegates=[paused("leaf")],
    )
    lead = Lead(background("a"), control("wait", seconds=5), on_each("cancel"))
    agent = Agent("lead", model=lead, delegates=[middle])
    rules = Rules(live_children=1)
    async with open_orchestrator(":memory:", rules=rules) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()

    assert session.tree.counts() == {"succeeded": 1, "cancelled": 4}
    assert trio.current_time() == pytest.approx(5)


async def test_what_waits_in_line_can_be_cancelled_and_never_begins() -> None:
    lead = Lead(background("50", "60", "70"), on_the(1, "cancel"), on_each("wait"))
    agent = Agent("lead", model=lead, delegates=[paused("worker")])
    journal = MemoryJournal()
    rules = Rules(detached=1)
    async with open_orchestrator(journal, rules=rules) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            await session.wait_idle()

    assert lead.read[1]["results"][0]["status"] == "cancelled"
    assert [result["status"] for result in lead.read[2]["results"]] == [
        "succeeded",
        "cancelled",
        "succeeded",
    ]
    assert trio.current_time() == pytest.approx(120)
    assert told_by(journal.entries) == mail_in(journal.entries)


@pytest.mark.realtime
async def test_after_a_restart_what_has_ended_can_be_cancelled_as_before(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    model = ScriptedModel([hand_on("a"), "end"])
    agent = Agent("lead", model=model, delegates=[worker()])
    async with open_orchestrator(path) as orchestrator:
        run = await orchestrator.run(agent, "go")
        for task in run.tree.graph:
            await orchestrator.cancel(task)
    async with open_orchestrator(path) as orchestrator:
        assert orchestrator.runs == [run.id]
        for task in run.tree.graph:
            await orchestrator.cancel(task)
        await orchestrator.cancel(run.id, tree=True)


@pytest.mark.parametrize("ticks", range(8))
async def test_a_cancel_and_an_end_in_the_same_moment_make_one_settlement(
    ticks: int,
) -> None:
    journal = MemoryJournal()
    lead = Lead(background("10"), "later", "news")
    agent = Agent("lead", model=lead, delegates=[paused("worker")])
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            (task,) = session.tree.children(session.tree.root)
            await trio.sleep(10 - trio.current_time())
            for _ in range(ticks):
                await trio.lowlevel.checkpoint()
            await orchestrator.cancel(task)
            await session.wait_idle()

    assert len(facts(journal.entries, TaskSettled)) == 1
    assert len(lead.news) == 1
    assert told_by(journal.entries) == mail_in(journal.entries)
