"""A lent turn survives the loss of its worker, its writer or its messages at a named point.

The oracle is outside: a list of the effects that tools have had.
"""

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from orchestrator import ClosedError, JournalInUseError, Machine, Workers, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallKey,
    DefinitionError,
    ModelRequest,
    ScriptedModel,
    Tool,
    ToolCall,
    agent,
    raising_one_error,
    tool,
)
from orchestrator.agents.tools.context import current_tool_context
from orchestrator.agents.tools.tool import CURRENT_CALL_KEY
from orchestrator.delegation import Cause, Ending, Outcome
from orchestrator.delegation.events import CallPlaced, Entry, TaskStarted, ToolAnswered, TurnResumed
from orchestrator.products.cluster.lending import lent_turn
from orchestrator.products.cluster.lending.lender import STOP_SECONDS
from orchestrator.products.cluster.lending.lent_turn import KEEP_SECONDS
from orchestrator.products.cluster.work import Request
from orchestrator.products.cluster.worker import turn as worker_turn
from orchestrator.products.cluster.worker import wire
from orchestrator.products.cluster.worker.context import WorkerContexts
from orchestrator.products.cluster.worker.turn import SILENT_SECONDS
from orchestrator.products.cluster.worker.wire import (
    CallEnded,
    Calls,
    Next,
    Question,
    Stopped,
    encoded,
    question_in,
    reply_in,
)
from orchestrator.products.history.replay.run import replay_sync
from orchestrator.simulation import SimulationSettings, simulate
from orchestrator.testing import assert_laws
from orchestrator.testing.crashing_journal import CrashedError
from tests.workers.memory import MemoryWriterMailbox
from tests.workers.places import FIRST, LEASE, PLACE, Places


class Pilot:
    """A model that thinks for a while, calls a tool so many times, and answers what that said."""

    name = "pilot"

    def __init__(self, calls: int, seconds: float) -> None:
        self._calls = calls
        self._seconds = seconds

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.sleep(self._seconds)
        transcript = request.transcript
        if len(transcript) < 2 * self._calls:
            return AssistantMessage("", calls=(ToolCall("launch"),))
        return AssistantMessage(" ".join(it.text for it in transcript[2::2]) or "none")


class Flights:
    """A house with an agent at a place, whose tool has state there, and the log of what it did."""

    def __init__(
        self, *, calls: int = 2, seconds: float = 0, thinks: float = 0, **options: Any
    ) -> None:
        self.effects: list[CallKey] = []
        self.begun = trio.Event()
        self._state: Counter[int] = Counter()

        @tool
        async def launch() -> str:
            """Launch, and count the launches from this machine in this turn."""
            self.effects.append(CURRENT_CALL_KEY.get())
            machine = id(current_tool_context().seen_files)
            self._state[machine] += 1
            self.begun.set()
            await trio.sleep(seconds)
            return f"{self._state[machine]}"

        self.tool: Tool = launch
        self.agent = Agent(
            "pilot", model=Pilot(calls, thinks), tools=[launch], place=PLACE, **options
        )
        self.places = Places([self.agent])

    async def run(self, *resumed: trio.Event, workers: int = 2) -> Outcome:
        """Run the agent once; then let what stood still go on, which must not matter."""
        with trio.fail_after(24 * 3600):
            async with self.places.open(workers=workers) as orchestrator:
                run = await orchestrator.run(self.agent, "go")
                for event in resumed:
                    event.set()
                await trio.sleep(60)
        assert_laws(self.places.entries)
        return run.outcome


@pytest.mark.parametrize("point", ["before call is asked", "next is answered"])
async def test_a_lost_worker_takes_the_turn_with_it(point: str) -> None:
    """As by SIGSTOP past its lease and SIGCONT; without the latter as by `kill -9`."""
    flights = Flights()
    resumed = flights.places.faults.add(FIRST, point)

    outcome = await flights.run(resumed)

    assert outcome.ending is Ending.LOST
    assert outcome.cause is Cause.WORKER_LOST
    assert outcome.error.startswith(f"/pilot has lost its worker at {PLACE!r} (w")
    assert "Broken off, with an unknown effect: launch." in outcome.error
    assert len(flights.effects) == (point == "before call is asked"), "never twice"


async def test_a_restarting_agent_starts_afresh_at_another_worker() -> None:
    flights = Flights(on_restart="restart")
    resumed = flights.places.faults.add(FIRST, "before call is asked")

    outcome = await flights.run(resumed)

    assert outcome == Outcome(Ending.SUCCEEDED, "1 2")
    assert len(set(flights.effects)) == 3, "another beginning has other keys"
    (began,) = flights.places.facts(TurnResumed)
    assert began.afresh


async def test_a_child_starts_afresh_at_another_worker() -> None:
    flights = Flights(on_restart="restart")
    call = ToolCall("delegate_task", {"goal": "go", "agent": "pilot"})
    boss = Agent(
        "boss",
        model=ScriptedModel([call, lambda transcript: transcript[-1].text]),
        delegates=[flights.agent],
    )
    flights.places.agents["boss"] = boss
    flights.places.faults.add(FIRST, "before call is asked")

    with trio.fail_after(3600):
        async with flights.places.open(workers=2) as orchestrator:
            run = await orchestrator.run(boss, "go")

    assert "1 2" in run.outcome.output
    assert [it.afresh for it in flights.places.facts(TaskStarted)] == [False, True]
    assert_laws(flights.places.entries)


async def test_a_task_that_ends_all_its_workers_is_lost_in_the_end() -> None:
    flights = Flights(on_restart="restart")
    for number in range(1, 9):
        flights.places.faults.add(f"w{number}", "before call is asked")

    outcome = await flights.run(workers=8)

    assert outcome.cause is Cause.WORKER_LOST
    assert len(flights.effects) == 4


@pytest.mark.parametrize("point", ["before begin is asked", "begin is asked", "begin is answered"])
async def test_a_turn_that_no_worker_has_run_a_call_of_is_sent_again(point: str) -> None:
    flights = Flights()
    resumed = flights.places.faults.add(FIRST, point)

    assert (await flights.run(resumed)).output == "1 2"
    assert len(flights.effects) == 2


async def test_a_worker_that_is_lost_while_the_model_gives_its_answer_is_not_missed() -> None:
    flights = Flights(calls=1, thinks=60)
    async with (
        flights.places.writing() as orchestrator,
        flights.places.working(1) as (scope,),
        trio.open_nursery() as nursery,
    ):
        outputs: list[str] = []

        @nursery.start_soon
        async def run() -> None:
            ended = await orchestrator.run(flights.agent, "go")
            outputs.append(ended.outcome.output)

        while not flights.places.facts(ToolAnswered):
            await orchestrator.wait_changed(after=orchestrator.read.last_seq)
        scope.cancel()

    assert outputs == ["1"]


async def test_a_worker_keeps_a_turn_while_its_model_thinks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The writer says from time to time that it is there."""
    monkeypatch.setattr(lent_turn, "KEEP_SECONDS", KEEP_SECONDS / 10)
    monkeypatch.setattr(worker_turn, "SILENT_SECONDS", SILENT_SECONDS / 10)
    flights = Flights(thinks=SILENT_SECONDS / 2)

    assert (await flights.run()).output == "1 2"


async def killed_during_call(flights: Flights) -> str:
    """Kill the writer while the second call runs, and return the id of the run."""
    places = flights.places
    run = ""
    async with places.writing() as orchestrator:
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(orchestrator.run, flights.agent, "go")
                while len(flights.effects) < 2:
                    flights.begun = trio.Event()
                    await flights.begun.wait()
                run = orchestrator.runs[0]
                await places.kill_writer(orchestrator)
    return run


@pytest.mark.parametrize("later", [0, 10, 100])
async def test_the_next_writer_goes_on_with_the_turn_at_the_same_worker(later: float) -> None:
    flights = Flights(calls=3, seconds=30)
    places = flights.places
    async with places.working(2):
        run = await killed_during_call(flights)
        await trio.sleep(later / 2)
        async with places.writing() as orchestrator:
            await trio.sleep(later / 2)
            resumed = await orchestrator.resume(flights.agent, run)

    assert resumed.outcome.output == "1 2 3"
    assert len(set(flights.effects)) == len(flights.effects) == 3
    assert len(places.facts(CallPlaced)) == 1
    assert_laws(places.entries)


async def test_the_next_writer_gives_a_call_that_its_worker_has_not_got() -> None:
    """The one before was killed between its journal and its letter."""
    flights = Flights(calls=2)
    places = flights.places
    run = ""
    async with places.working(1):
        with suppress(CrashedError):
            async with places.writing() as orchestrator:

                def die_when_accepted(entry: Entry, _: object) -> None:
                    if isinstance(entry.event, CallPlaced) and entry.event.execution:
                        places.journal.is_dead = True

                with orchestrator.read.subscribe(die_when_accepted):
                    await orchestrator.run(flights.agent, "go")
        run = places.entries[-1].session
        assert flights.effects == []
        async with places.writing() as orchestrator:
            await trio.sleep(5)
            resumed = await orchestrator.resume(flights.agent, run)

    assert resumed.outcome.output == "1 2"
    assert len(flights.effects) == 2


async def test_the_next_writer_finds_that_the_worker_is_gone() -> None:
    flights = Flights(calls=2, seconds=30)
    places = flights.places
    async with places.working(1) as (scope,):
        run = await killed_during_call(flights)
        places.faults.still[next(iter(places.exchange.presence._seen))] = trio.Event()
        scope.cancel()
    await trio.sleep(60)
    async with places.open() as orchestrator:
        resumed = await orchestrator.resume(flights.agent, run)

    assert resumed.outcome.cause is Cause.WORKER_LOST
    assert len(flights.effects) == 2


async def test_a_worker_frees_its_slot_when_no_writer_comes_back() -> None:
    flights = Flights(calls=2, seconds=30)
    places = flights.places
    async with places.working(1):
        await killed_during_call(flights)
        await trio.sleep(SILENT_SECONDS + 60)
        async with places.writing() as orchestrator:
            run = await orchestrator.run(flights.agent, "go")

    assert run.outcome.output == "1 2"


async def test_a_writer_that_closes_leaves_turns_of_conversations_to_the_next() -> None:
    flights = Flights(seconds=30)
    places = flights.places
    async with places.working(1):
        async with (
            trio.open_nursery() as nursery,
            places.writing() as orchestrator,
            orchestrator.open_session(flights.agent) as session,
        ):

            @nursery.start_soon
            async def ask_until_closed() -> None:
                with suppress(ClosedError):
                    await session.ask("go")

            await flights.begun.wait()
        await trio.sleep(5)
        async with places.writing() as orchestrator:
            async with orchestrator.open_session(flights.agent, session=session.id) as again:
                reply = await again.replies.receive()

    assert reply.outcome.output == "1 2"
    assert len(flights.effects) == 2


async def test_each_turn_of_a_conversation_begins_with_new_state() -> None:
    flights = Flights(calls=1)
    model = ScriptedModel([ToolCall("launch"), "one", ToolCall("launch"), "two"])
    flights.agent = attrs.evolve(flights.agent, model=model)
    flights.places.agents["pilot"] = flights.agent
    async with (
        flights.places.open() as orchestrator,
        orchestrator.open_session(flights.agent) as session,
    ):
        await session.ask("go")
        await session.ask("again")

    texts = [it.message.text for it in flights.places.facts(ToolAnswered)]
    assert texts == ["1", "1"]


async def test_a_fenced_writer_has_no_effect() -> None:
    """It stood still past its lease; the turn that the next writer has adopted goes on."""
    flights = Flights(seconds=30)
    places = flights.places
    run = ""
    async with places.working(1):
        with pytest.raises(JournalInUseError):  # noqa: PT012 (the whole writer ends)
            async with places.writing() as orchestrator, trio.open_nursery() as nursery:
                nursery.start_soon(orchestrator.run, flights.agent, "go")
                await flights.begun.wait()
                run = orchestrator.runs[0]
                places.exchange.take_over("shard-1")
                await trio.sleep_forever()
        # Its journal would have fenced it, too: what it posted on its way out is not there.
        while not isinstance(places.entries[-1].event, CallPlaced):
            places.journal.entries.pop()
        async with places.writing() as orchestrator:
            resumed = await orchestrator.resume(flights.agent, run)

    assert resumed.outcome.output == "1 2"
    assert len(flights.effects) == 2


async def test_dispatches_that_come_twice_and_letters_that_are_lost_do_no_harm() -> None:
    flights = Flights(calls=3, seconds=30)
    places = flights.places
    async with places.open(workers=3) as orchestrator, trio.open_nursery() as nursery:

        @nursery.start_soon
        async def lose() -> None:
            await flights.begun.wait()
            for _ in range(30):
                await trio.sleep(3)
                places.exchange.queue.redeliver()
                places.exchange.lose_letters()

        run = await orchestrator.run(flights.agent, "go")

    assert run.outcome.output == "1 2 3"
    assert len(flights.effects) == 3
    assert len(places.facts(CallPlaced)) == 1


async def test_a_turn_without_a_worker_waits_and_is_shown() -> None:
    flights = Flights()
    places = flights.places
    async with places.writing() as orchestrator, trio.open_nursery() as nursery:
        outputs: list[str] = []

        @nursery.start_soon
        async def run() -> None:
            ended = await orchestrator.run(flights.agent, "go")
            outputs.append(ended.outcome.output)

        await trio.sleep(3600)
        (waiting,) = places.facts(CallPlaced)
        assert (waiting.place, waiting.worker, waiting.turn) == (PLACE, "", True)
        assert orchestrator.read.awaited_place(orchestrator.runs[0]) == PLACE
        assert orchestrator.read.waiting_calls() == {PLACE: 1}
        async with places.working(1):
            await flights.begun.wait()
            await trio.sleep(5)

    assert outputs == ["1 2"]


async def test_a_call_that_no_worker_takes_in_time_is_not_run() -> None:
    flights = Flights(calls=2, thinks=100)
    flights.agent = attrs.evolve(flights.agent, tools=[attrs.evolve(flights.tool, timeout=60)])
    places = flights.places
    places.agents["pilot"] = flights.agent
    async with places.writing() as orchestrator, trio.open_nursery() as nursery:
        outputs: list[str] = []

        @nursery.start_soon
        async def run() -> None:
            ended = await orchestrator.run(flights.agent, "go")
            outputs.append(ended.outcome.output)

        await trio.sleep(200)
        assert not orchestrator.read.awaited_place(orchestrator.runs[0]), "it thinks"
        async with places.working(1):
            await trio.sleep(300)

    assert outputs == [
        f"launch did not answer within 60 seconds: no worker at {PLACE!r} has taken it, so it was"
        " not run 1"
    ]
    assert len(flights.effects) == 1


async def test_an_agent_that_calls_no_tool_needs_no_worker() -> None:
    flights = Flights(calls=0)

    assert (await flights.run(workers=0)).succeeded


async def test_a_worker_with_another_version_refuses_and_others_take_the_turn() -> None:
    flights = Flights()
    places = flights.places
    other = attrs.evolve(flights.agent, instructions="Fly low.")
    elsewhere = attrs.evolve(flights.agent, place="cpu")
    stranger = Agent("stranger", model=ScriptedModel.always("x"))
    async with places.writing() as orchestrator:
        async with (
            places.working(1, agents=[other]),
            places.working(1, agents=[elsewhere]),
            places.working(1, agents=[stranger]),
            trio.open_nursery() as nursery,
        ):
            outputs: list[str] = []

            @nursery.start_soon
            async def run() -> None:
                ended = await orchestrator.run(flights.agent, "go")
                outputs.append(ended.outcome.output)
                nursery.cancel_scope.cancel()

            await trio.sleep(3600)
            assert not flights.effects
            assert len(places.told) == 3, "each says once why it does not"
            wanted = places.facts(CallPlaced)[-1].wants
            async with places.working(1):
                await trio.sleep(3600)

    assert outputs == ["1 2"]
    assert "is wanted" in wanted or "not the agent" in wanted


async def test_a_worker_without_the_folder_of_the_agent_refuses_the_turn() -> None:
    flights = Flights(workspace=Path("../not here"))
    flights.places.agents["pilot"] = flights.agent
    async with flights.places.open() as orchestrator, trio.open_nursery() as nursery:
        nursery.start_soon(orchestrator.run, flights.agent, "go")
        await trio.sleep(60)
        wanted = flights.places.facts(CallPlaced)[-1].wants
        nursery.cancel_scope.cancel()

    assert "not here" in wanted
    assert not flights.effects


async def test_an_error_of_a_worker_that_opens_a_turn_ends_its_task_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flights = Flights()
    opened = WorkerContexts.open_turn
    errors = [OSError("too many files")]

    def open_turn(self: WorkerContexts, *args: Any) -> Any:
        if errors:
            raise errors.pop()
        return opened(self, *args)

    monkeypatch.setattr(WorkerContexts, "open_turn", open_turn)
    with trio.fail_after(3600):
        async with flights.places.open(workers=1) as orchestrator:
            failed = await orchestrator.run(flights.agent, "go")
            again = await orchestrator.run(flights.agent, "go")

    assert failed.outcome.cause is Cause.ERROR
    assert "too many files" in failed.outcome.error
    assert again.outcome.output == "1 2"
    assert_laws(flights.places.entries)


async def test_a_call_that_ends_after_it_was_given_up_is_acknowledged() -> None:
    """Else its worker would name it with every question, and the writer keep its answer."""
    begun: list[int] = []
    opened = 0

    @tool(timeout=1)
    async def launch() -> str:
        nonlocal opened
        opened += 1
        if opened == 1:
            with trio.CancelScope(shield=True):
                await trio.sleep(60)
        await trio.sleep(0.5)
        questions = (question_in(it.request.body) for it in places.exchange.letters.values())
        begun.extend(len(it.begun) for it in questions if isinstance(it, Next))
        return "launched"

    pilot = Agent("pilot", model=Pilot(2, 100), tools=[launch], place=PLACE)
    places = Places([pilot])
    with trio.fail_after(3600):
        async with places.open(workers=1) as orchestrator:
            run = await orchestrator.run(pilot, "go")

    assert run.outcome.output.endswith("launched")
    assert begun[-1] == 1
    assert_laws(places.entries)


async def test_the_writer_forgets_calls_that_their_run_has_received(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: dict[int, bytes] = {}
    most = 0

    def answer(self: MemoryWriterMailbox, request: Request, body: bytes) -> None:
        nonlocal most
        given(self, request, body)
        if isinstance(reply_in(body), Calls):
            kept[request.number] = body
        most = max(most, len(kept))

    def drop_answer(self: MemoryWriterMailbox, request: Request) -> None:
        dropped(self, request)
        kept.pop(request.number, None)

    given, dropped = MemoryWriterMailbox.answer, MemoryWriterMailbox.drop_answer
    monkeypatch.setattr(MemoryWriterMailbox, "answer", answer)
    monkeypatch.setattr(MemoryWriterMailbox, "drop_answer", drop_answer)

    await Flights(calls=5).run(workers=1)

    assert most == 1


async def test_a_malformed_end_of_a_worker_does_not_delay_the_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flights = Flights()

    def rubbish(question: Question) -> bytes:
        return b"\xff" if isinstance(question, Stopped) else encoded(question)

    monkeypatch.setattr(wire, "encoded", rubbish)
    async with flights.places.open(workers=1) as orchestrator:
        began = trio.current_time()
        run = await orchestrator.run(flights.agent, "go")
        assert trio.current_time() < began + STOP_SECONDS
    assert run.outcome.output == "1 2"
    assert_laws(flights.places.entries)


async def test_a_worker_that_answers_rubbish_ends_one_turn() -> None:
    flights = Flights()
    places = flights.places

    def rubbish(question: Question) -> bytes:
        if isinstance(question, CallEnded):
            return b"\xff\x00rubbish"
        return encoded(question)

    async with places.open() as orchestrator:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wire, "encoded", rubbish)
            run = await orchestrator.run(flights.agent, "go")
        again = await orchestrator.run(flights.agent, "go")

    assert run.outcome.cause is Cause.WORKER_LOST
    assert "cannot be read" in run.outcome.error
    assert again.outcome.output == "1 2"


async def test_a_stopping_worker_ends_its_turns() -> None:
    flights = Flights(seconds=3600)
    places = flights.places
    async with (
        places.writing() as orchestrator,
        places.working(1) as (scope,),
        trio.open_nursery() as nursery,
    ):
        outcomes: list[Outcome] = []

        @nursery.start_soon
        async def run() -> None:
            ended = await orchestrator.run(flights.agent, "go")
            outcomes.append(ended.outcome)

        await flights.begun.wait()
        began = trio.current_time()
        scope.cancel()

    (outcome,) = outcomes
    assert outcome.cause is Cause.WORKER_LOST
    assert "it was stopped during the turn" in outcome.error
    assert trio.current_time() - began < LEASE, "the worker says so itself"


async def test_an_ended_turn_leaves_no_state_at_its_worker() -> None:
    flights = Flights()
    places = flights.places
    async with places.working(1):
        async with places.writing() as orchestrator:
            await orchestrator.run(flights.agent, "go")
        await trio.sleep(2 * LEASE)
        (seen,) = await places.exchange.presence.workers()

    assert seen.beat.executions == frozenset()
    assert not places.exchange.letters


def test_a_replay_and_a_simulation_send_no_dispatch() -> None:
    flights = Flights()

    async def record() -> None:
        async with flights.places.open() as orchestrator:
            await orchestrator.run(flights.agent, "go")

    trio.run(record, clock=trio.testing.MockClock(autojump_threshold=0))
    replayed = replay_sync(flights.places.entries, flights.agent)
    simulate(flights.agent, "go", SimulationSettings(seeds=1))

    assert replayed.difference is None
    assert len(flights.effects) == 2


async def test_a_place_of_an_agent_needs_a_journal_that_workers_reach() -> None:
    flights = Flights()
    async with open_orchestrator(":memory:", machine=Machine(environ={})) as orchestrator:
        with pytest.raises(
            DefinitionError, match=r"it runs at workers of the place 'gpu'.*ORCHESTRATOR_HERE=gpu"
        ):
            await orchestrator.run(flights.agent, "go")
    async with open_orchestrator(
        ":memory:", machine=Machine(environ={}), workers=Workers(here=[PLACE])
    ) as orchestrator:
        run = await orchestrator.run(flights.agent, "go")

    assert run.outcome.output == "1 2"


LEAF = Agent("leaf", model=ScriptedModel.always("x"))


@tool(place="cpu")
def count() -> str:
    """Count."""
    return "1"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"delegates": [LEAF]}, "may delegate: whole turns run at workers for leaves"),
        ({"copies": True}, "may delegate"),
        ({"tools": [count]}, "its tool 'count' has 'cpu'"),
        ({"workspace": "worktree"}, "works in a worktree"),
        ({"place": "G P U"}, "'G P U' cannot be the name of a place"),
        ({"place": 3}, "3 cannot be the name of a place"),
    ],
)
def test_an_agent_with_a_place_is_a_leaf(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        Agent("pilot", **{"model": "x", "place": PLACE, **options})


def test_a_pipeline_has_no_place() -> None:
    with pytest.raises(DefinitionError, match="may delegate"):

        @agent(place=PLACE)  # type: ignore[call-overload, untyped-decorator]
        async def pilot(goal: str) -> str:
            await trio.lowlevel.checkpoint()
            return goal
