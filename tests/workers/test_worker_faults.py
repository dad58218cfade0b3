"""A lent call survives the loss of its worker, its writer or its messages at a named point.

The oracle is outside: a list of the effects that tools have had.
"""

from collections.abc import Sequence
from contextlib import suppress

import attrs
import pytest
import trio
import trio.testing

from orchestrator import ClosedError, JournalInUseError, Machine, open_orchestrator
from orchestrator.agents import (
    Agent,
    CallKey,
    DefinitionError,
    RefusedBy,
    ScriptedModel,
    ToolCall,
    raising_one_error,
    tool,
)
from orchestrator.agents.tools.tool import CURRENT_CALL_KEY
from orchestrator.delegation.events import CallPlaced, Entry, ToolAnswered
from orchestrator.products.cluster.work import Beat, WorkerId
from orchestrator.products.cluster.worker import wire
from orchestrator.products.cluster.worker.wire import End, Question, Reply, encoded
from orchestrator.products.history.replay.run import replay_sync
from orchestrator.simulation import SimulationSettings, simulate
from orchestrator.testing import assert_laws
from orchestrator.testing.crashing_journal import CrashedError
from tests.workers.places import LEASE, PLACE, Places

BROKEN_OFF = "broken off: the worker that ran it is gone, and its effect is unknown"


class Launches:
    """A house with a tool that must not run twice, or may, and the log of what it did."""

    def __init__(self, *, idempotent: bool = False, seconds: float = 0) -> None:
        self.effects: list[CallKey] = []
        self.begun = trio.Event()

        @tool(place=PLACE, idempotent=idempotent)
        async def launch() -> str:
            """Launch."""
            self.effects.append(CURRENT_CALL_KEY.get())
            self.begun.set()
            await trio.sleep(seconds)
            return f"launched {len(self.effects)}"

        self.agent = Agent(
            "pilot",
            model=ScriptedModel.always(
                lambda transcript: (
                    transcript[-1].text if len(transcript) > 1 else ToolCall("launch")
                )
            ),
            tools=[launch],
        )
        self.places = Places([self.agent])

    async def run(self, workers: int = 2) -> str:
        async with self.places.open(workers=workers) as orchestrator:
            run = await orchestrator.run(self.agent, "go")
            # What stood still goes on, and whatever it says is fenced.
            for resumed in list(self.resumed):
                resumed.set()
            await trio.sleep(60)
        assert_laws(self.places.entries)
        assert len(self.places.facts(ToolAnswered)) == 1
        return run.outcome.output

    resumed: Sequence[trio.Event] = ()

    def stand_still(self, worker: str, point: str) -> None:
        self.resumed = [*self.resumed, self.places.faults.add(worker, point)]


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize(
    "point",
    [
        "before begin is asked",
        "begin is asked",
        "begin is answered",
        "before end is asked",
        "end is asked",
    ],
)
async def test_a_worker_is_lost_and_comes_back_too_late(point: str, idempotent: bool) -> None:
    """As by SIGSTOP past its lease and SIGCONT; without the latter as by `kill -9`."""
    launches = Launches(idempotent=idempotent)
    for worker in ("w1", "w2"):
        # Whichever is first: the other one finds nothing in its way.
        launches.stand_still(worker, point)
    launches.places.faults.reached = reached = trio.Event()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def spare_the_other() -> None:
            await reached.wait()
            launches.places.faults.points.clear()

        output = await launches.run()

    never_began = point == "before begin is asked"
    has_said = point == "end is asked"
    if never_began or has_said:
        assert output == "launched 1"
        assert len(launches.effects) == 1
    elif idempotent:
        ran = 2 if point == "before end is asked" else 1
        assert output == f"launched {ran}"
        assert len(launches.effects) == ran
        assert len(set(launches.effects)) == 1, "a call has the same key in every run"
    else:
        assert output == BROKEN_OFF
        assert len(launches.effects) == (point == "before end is asked")
        (answered,) = launches.places.facts(ToolAnswered)
        assert answered.message.refused_by is RefusedBy.CRASH


async def test_the_second_delivery_of_a_dispatch_is_refused() -> None:
    launches = Launches(seconds=30)
    places = launches.places
    async with places.open(workers=3) as orchestrator, trio.open_nursery() as nursery:

        @nursery.start_soon
        async def redeliver() -> None:
            await launches.begun.wait()
            for _ in range(3):
                await trio.sleep(5)
                places.exchange.queue.redeliver()

        run = await orchestrator.run(launches.agent, "go")

    assert run.outcome.output == "launched 1"
    assert len(launches.effects) == 1
    assert len(places.facts(CallPlaced)) == 1


async def test_letters_that_a_crash_of_the_database_loses_are_written_again() -> None:
    launches = Launches(seconds=30)
    places = launches.places
    async with places.open() as orchestrator, trio.open_nursery() as nursery:

        @nursery.start_soon
        async def lose() -> None:
            await launches.begun.wait()
            for _ in range(12):
                await trio.sleep(3)
                places.exchange.lose_letters()

        run = await orchestrator.run(launches.agent, "go")

    assert run.outcome.output == "launched 1"
    assert len(launches.effects) == 1


async def killed_during_call(launches: Launches) -> str:
    """Kill the writer while a call runs, and return the id of the run."""
    places = launches.places
    run = ""
    async with places.writing() as orchestrator:
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(orchestrator.run, launches.agent, "go")
                await launches.begun.wait()
                run = orchestrator.runs[0]
                await places.kill_writer(orchestrator)
    return run


@pytest.mark.parametrize("later", [0, 10, 100])
async def test_the_next_writer_adopts_the_call_of_a_live_worker(later: float) -> None:
    launches = Launches(seconds=30)
    places = launches.places
    async with places.working(1):
        run = await killed_during_call(launches)
        await trio.sleep(later / 2)
        async with places.writing() as orchestrator:
            await trio.sleep(later / 2)
            resumed = await orchestrator.resume(launches.agent, run)

    assert resumed.outcome.output == "launched 1"
    assert len(launches.effects) == 1
    assert len(places.facts(ToolAnswered)) == 1
    assert_laws(places.entries)


@pytest.mark.parametrize("later", [1, 60])
async def test_a_run_that_awaits_resume_is_not_lost_with_the_memory_of_its_session(
    later: float,
) -> None:
    """It is not in memory when its worker is looked at, nor when that says how it ended."""
    launches = Launches(seconds=30)
    other = Launches()
    places = launches.places
    places.agents["other"] = attrs.evolve(other.agent, name="other")
    async with places.working(2, slots=2):
        run = await killed_during_call(launches)
        async with places.writing() as orchestrator:
            orchestrator._engine.book.cache.evict_resting()
            await orchestrator.run(places.agents["other"], "go")
            await trio.sleep(later)
            resumed = await orchestrator.resume(launches.agent, run)

    assert resumed.outcome.output == "launched 1"
    assert len(launches.effects) == 1
    assert_laws(places.entries)


async def test_the_next_writer_starts_a_call_that_an_earlier_one_accepted() -> None:
    """The run asks again before its task is resumed, and is answered when it is."""
    launches = Launches()
    places = launches.places
    run = ""
    async with places.working(1):
        with suppress(CrashedError):
            async with places.writing() as orchestrator:

                def die_when_accepted(entry: Entry, _: object) -> None:
                    if isinstance(entry.event, CallPlaced) and entry.event.execution:
                        places.journal.is_dead = True

                with orchestrator.read.subscribe(die_when_accepted):
                    await orchestrator.run(launches.agent, "go")
        run = places.entries[-1].session
        assert launches.effects == []
        async with places.writing() as orchestrator:
            await trio.sleep(5)
            resumed = await orchestrator.resume(launches.agent, run)

    assert resumed.outcome.output == "launched 1"
    assert len(launches.effects) == 1
    assert_laws(places.entries)


async def test_the_next_writer_breaks_off_the_call_of_a_dead_worker() -> None:
    launches = Launches(seconds=30)
    places = launches.places
    places.faults.add("w1", "before end is asked")
    async with places.working(1):
        run = await killed_during_call(launches)
        await trio.sleep(60)
        async with places.writing() as orchestrator:
            resumed = await orchestrator.resume(launches.agent, run)

    assert resumed.outcome.output == BROKEN_OFF
    assert len(launches.effects) == 1


async def test_a_call_that_no_worker_has_begun_is_sent_by_the_next_writer() -> None:
    """It must not run twice, and has not run once."""
    launches = Launches()
    places = launches.places
    run = ""
    async with places.writing() as orchestrator:
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(orchestrator.run, launches.agent, "go")
                await trio.sleep(10)
                run = orchestrator.runs[0]
                await places.kill_writer(orchestrator)

    async with places.open() as orchestrator:
        resumed = await orchestrator.resume(launches.agent, run)

    assert resumed.outcome.output == "launched 1"
    assert len(launches.effects) == 1


async def test_a_writer_that_closes_leaves_calls_of_conversations_to_the_next() -> None:
    launches = Launches(seconds=30)
    places = launches.places
    async with places.working(1):
        async with (
            trio.open_nursery() as nursery,
            places.writing() as orchestrator,
            orchestrator.open_session(launches.agent) as session,
        ):

            @nursery.start_soon
            async def ask_until_closed() -> None:
                with suppress(ClosedError):
                    await session.ask("go")

            await launches.begun.wait()
            began = trio.current_time()
        assert trio.current_time() - began < 5, "it does not wait for the worker"
        await trio.sleep(5)
        async with places.writing() as orchestrator:
            async with orchestrator.open_session(launches.agent, session=session.id) as again:
                reply = await again.replies.receive()

    assert reply.outcome.output == "launched 1"
    assert len(launches.effects) == 1


async def test_a_fenced_writer_has_no_effect() -> None:
    """It stood still past its lease; the calls that the next writer has adopted go on."""
    launches = Launches(seconds=30)
    places = launches.places
    run, began = "", 0.0
    async with places.working(1):
        with pytest.raises(JournalInUseError):  # noqa: PT012 (the whole writer ends)
            async with places.writing() as orchestrator, trio.open_nursery() as nursery:
                nursery.start_soon(orchestrator.run, launches.agent, "go")
                await launches.begun.wait()
                run = orchestrator.runs[0]
                places.exchange.take_over("shard-1")
                began = trio.current_time()
                await trio.sleep_forever()
        assert trio.current_time() - began < 5, "it waits for no worker"
        # Its journal would have fenced it, too: what it posted on its way out is not there.
        while not isinstance(places.entries[-1].event, CallPlaced):
            places.journal.entries.pop()
        async with places.writing() as orchestrator:
            resumed = await orchestrator.resume(launches.agent, run)

    assert resumed.outcome.output == "launched 1"
    assert len(launches.effects) == 1


async def test_a_call_without_a_worker_waits_and_is_shown() -> None:
    launches = Launches()
    places = launches.places
    async with places.writing() as orchestrator, trio.open_nursery() as nursery:
        nursery.start_soon(orchestrator.run, launches.agent, "go")
        await trio.sleep(3600)
        (waiting,) = places.facts(CallPlaced)
        assert (waiting.place, waiting.worker) == (PLACE, "")
        async with places.working(1):
            await launches.begun.wait()
            await trio.sleep(5)

    assert len(launches.effects) == 1


async def test_a_call_that_no_worker_takes_in_time_is_not_run() -> None:
    launches = Launches()
    (launch,) = launches.agent.tools
    agent = attrs.evolve(launches.agent, tools=[attrs.evolve(launch, timeout=60)])
    launches.places.agents["pilot"] = agent
    async with launches.places.open(workers=0) as orchestrator:
        run = await orchestrator.run(agent, "go")
        async with launches.places.working(1):
            await trio.sleep(300)

    assert run.outcome.output == (
        f"launch did not answer within 60 seconds: no worker at {PLACE!r} has taken it, so it"
        " was not run"
    )
    assert not launches.effects


async def test_a_worker_with_another_version_refuses_once_and_others_do_the_work() -> None:
    launches = Launches()
    places = launches.places
    other = attrs.evolve(launches.agent, instructions="Fly low.")
    stranger = Agent("stranger", model=ScriptedModel.always("x"))
    async with places.writing() as orchestrator:
        async with (
            places.working(1, agents=[other]),
            places.working(1, agents=[stranger]),
            trio.open_nursery() as nursery,
        ):
            outputs: list[str] = []

            @nursery.start_soon
            async def run() -> None:
                ended = await orchestrator.run(launches.agent, "go")
                outputs.append(ended.outcome.output)
                nursery.cancel_scope.cancel()

            await trio.sleep(3600)
            assert not launches.effects
            assert len(places.told) == 2
            wanted = places.facts(CallPlaced)[-1].wants
            async with places.working(1):
                await trio.sleep(3600)

    assert outputs == ["launched 1"]
    assert len(places.told) == 2, "each says once why it does not"
    assert "is wanted" in wanted or "not the agent" in wanted


async def test_a_worker_that_could_not_beat_during_an_outage_takes_calls_again() -> None:
    """Its writer never missed it, and sends it the calls again that it could not begin."""
    launches = Launches()
    places = launches.places
    faults = places.faults
    async with places.open() as orchestrator:
        answered = faults.add("w1", "begin is answered")
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def outage() -> None:
                await faults.reached.wait()
                back = faults.cut_all_off("w1")
                await trio.sleep(2 * LEASE)
                # The answer arrives before the beat.
                answered.set()
                await trio.testing.wait_all_tasks_blocked()
                back.set()
                faults.still.clear()

            with trio.fail_after(5 * LEASE):
                run = await orchestrator.run(launches.agent, "go")
        with trio.fail_after(LEASE):
            again = await orchestrator.run(launches.agent, "go")

    assert (run.outcome.output, again.outcome.output) == ("launched 1", "launched 2")
    assert not any(it.wants for it in places.facts(CallPlaced))


async def test_a_worker_of_another_version_does_not_delay_the_others() -> None:
    """It has more room than they, and gets each call first."""
    launches = Launches()
    places = launches.places
    other = attrs.evolve(launches.agent, instructions="Fly low.")
    calls = 40
    async with (
        places.writing() as orchestrator,
        places.working(1, slots=8, agents=[other]),
        places.working(1, slots=2),
    ):
        began = trio.current_time()
        for _ in range(calls):
            await orchestrator.run(launches.agent, "go")
        seconds = trio.current_time() - began

    assert len(launches.effects) == calls
    assert seconds < calls / 4, "a call hardly waits"
    assert len(places.told) == 1


async def test_a_call_that_waits_is_sent_once() -> None:
    launches = Launches()
    places = launches.places
    async with places.writing() as orchestrator, trio.open_nursery() as nursery:
        nursery.start_soon(orchestrator.run, launches.agent, "go")
        # It looks idle, and takes nothing.
        beat = Beat(worker=WorkerId("w9"), host="test", place=PLACE, slots=9, version="")
        for _ in range(100):
            await places.exchange.presence.beat(beat, seconds=60)
            await trio.sleep(40)
        assert places.exchange.queue.sent == 1
        nursery.cancel_scope.cancel()


async def test_a_call_with_a_lost_dispatch_is_sent_again() -> None:
    launches = Launches()
    places = launches.places
    async with places.writing() as orchestrator, trio.open_nursery() as nursery:
        nursery.start_soon(orchestrator.run, launches.agent, "go")
        await trio.sleep(5)
        places.exchange.queue.lose()
        async with places.working(1):
            await launches.begun.wait()
            await trio.sleep(5)

    assert len(launches.effects) == 1


async def test_a_worker_that_answers_rubbish_breaks_one_call() -> None:
    launches = Launches()
    places = launches.places

    def rubbish(value: Question | Reply) -> bytes:
        return b"\xff\x00rubbish" if isinstance(value, End) else encoded(value)

    async with places.open() as orchestrator:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wire, "encoded", rubbish)
            run = await orchestrator.run(launches.agent, "go")
        again = await orchestrator.run(launches.agent, "go")

    assert "cannot be read" in run.outcome.output
    assert again.outcome.output == "launched 2"


async def test_a_place_needs_a_journal_that_workers_reach() -> None:
    launches = Launches()
    async with open_orchestrator(":memory:", machine=Machine(environ={})) as orchestrator:
        with pytest.raises(
            DefinitionError, match=r"--journal postgresql://.*ORCHESTRATOR_HERE=gpu"
        ):
            await orchestrator.run(launches.agent, "go")
    environ = {"ORCHESTRATOR_HERE": f"cpu,{PLACE}"}
    async with open_orchestrator(":memory:", machine=Machine(environ=environ)) as orchestrator:
        run = await orchestrator.run(launches.agent, "go")

    assert run.outcome.output == "launched 1"


async def test_a_call_that_is_too_large_is_not_sent() -> None:
    @tool(place=PLACE)
    async def fill(text: str) -> str:
        """Fill."""
        await trio.lowlevel.checkpoint()
        return text

    agent = Agent(
        "painter",
        model=ScriptedModel(
            [ToolCall("fill", {"text": "x" * 9_000_000}), lambda transcript: transcript[-1].text]
        ),
        tools=[fill],
    )
    async with Places([agent]).open() as orchestrator:
        run = await orchestrator.run(agent, "go")

    assert "9,000,0" in run.outcome.output


async def test_a_stopping_worker_ends_its_calls() -> None:
    launches = Launches(seconds=3600)
    places = launches.places
    async with (
        places.writing() as orchestrator,
        places.working(1) as (scope,),
        trio.open_nursery() as nursery,
    ):
        outputs: list[str] = []

        @nursery.start_soon
        async def run() -> None:
            ended = await orchestrator.run(launches.agent, "go")
            outputs.append(ended.outcome.output)

        await launches.begun.wait()
        scope.cancel()

    assert "its worker was stopped during this call" in outputs[0]
    assert len(launches.effects) == 1


async def test_a_closing_writer_has_acknowledged_its_recorded_ends() -> None:
    """Or else its workers would offer the ends for ever."""
    launches = Launches()
    places = launches.places
    async with places.working(1):
        async with places.writing() as orchestrator:
            await orchestrator.run(launches.agent, "go")
        await trio.sleep(2 * LEASE)
        (seen,) = await places.exchange.presence.workers()

    assert seen.beat.executions == frozenset()


def test_a_replay_and_a_simulation_send_no_dispatch() -> None:
    """They have no workers, and need none."""
    launches = Launches()

    async def record() -> None:
        async with launches.places.open() as orchestrator:
            await orchestrator.run(launches.agent, "go")

    trio.run(record, clock=trio.testing.MockClock(autojump_threshold=0))
    replayed = replay_sync(launches.places.entries, launches.agent)
    simulate(launches.agent, "go", SimulationSettings(seeds=1))

    assert replayed.difference is None
    assert len(launches.effects) == 1
