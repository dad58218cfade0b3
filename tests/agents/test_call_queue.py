"""The queue of model calls keeps the order of its policy, its limit and its shares."""

import math
import sys
from collections.abc import Sequence

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orchestrator.agents import AssistantMessage, DefinitionError, ModelRequest
from orchestrator.agents.models.call_order import POLICIES, Call, RunWork, policy_named
from orchestrator.agents.models.call_queue import CallQueue
from orchestrator.agents.models.keyed_heap import FEW
from orchestrator.models import Limiter, with_rate_limit


class Place:
    """A provider that takes a number of calls at once, and notes the order of the calls."""

    def __init__(self, policy: str, in_flight: int = 1) -> None:
        self.queue = CallQueue(policy_named(policy), self._ready_at)
        self.sent: list[str] = []
        self.in_flight = 0
        self.peak = 0
        self._most = in_flight

    def _ready_at(self, call: Call) -> float:
        del call
        return -math.inf if self.in_flight < self._most else math.inf

    async def use(self, name: str, call: Call, seconds: float = 1.0) -> None:
        await self.queue.wait_turn(call, lambda: self._begin(name, call))
        try:
            await trio.sleep(seconds)
        finally:
            self.in_flight -= 1
            call.end(trio.current_time())
            self.queue.changed(call.run)

    def _begin(self, name: str, call: Call) -> None:
        self.sent.append(name)
        call.send(trio.current_time())
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)


def run_of(unseen: float | None = None, *, owner: str = "", background: bool = False) -> RunWork:
    run = RunWork(owner=owner, background=background)
    run.unseen = unseen
    return run


async def sent_by(policy: str, calls: Sequence[tuple[str, Call]]) -> str:
    """Return the order of calls that all wait behind one that is under way."""
    place = Place(policy)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(place.use, "", Call(run_of()))
        await trio.testing.wait_all_tasks_blocked()
        for name, call in calls:
            nursery.start_soon(place.use, name, call)
            await trio.testing.wait_all_tasks_blocked()
    return "".join(place.sent)


@pytest.mark.parametrize(("policy", "order"), [("shortest", "cab"), ("fifo", "abc")])
async def test_the_run_with_the_least_predicted_work_is_first(policy: str, order: str) -> None:
    calls = [(name, Call(run_of(work))) for name, work in zip("abc", (20, 90, 3), strict=True)]

    assert await sent_by(policy, calls) == order


async def test_the_run_with_the_fewest_calls_under_way_is_first_in_fair() -> None:
    busy, idle = run_of(), run_of()
    busy.in_flight = 2

    assert await sent_by("fair", [("a", Call(busy)), ("b", Call(idle))]) == "ba"


async def test_without_history_a_run_that_has_used_much_is_later() -> None:
    long, new = run_of(), run_of()
    long.consumed = 100.0

    assert await sent_by("shortest", [("a", Call(long)), ("b", Call(new))]) == "ba"


async def test_the_longest_path_of_a_run_is_first_and_then_the_task_that_ends_soonest() -> None:
    run = run_of(0)
    calls = [
        ("a", Call(run, path=2)),
        ("b", Call(run, path=30, left=9)),
        ("c", Call(run, path=30.1, left=3)),
    ]

    assert await sent_by("shortest", calls) == "cba"


async def test_a_caller_precedes_the_background() -> None:
    calls = [("a", Call(run_of(1, background=True))), ("b", Call(run_of(50)))]

    assert await sent_by("shortest", calls) == "ba"


async def test_owners_get_equal_shares() -> None:
    """One owner has fifty short runs, the other five long ones: they alternate."""
    calls = [(f"m{number} ", Call(run_of(1, owner="many"))) for number in range(50)]
    calls += [(f"f{number} ", Call(run_of(99, owner="few"))) for number in range(5)]

    first = (await sent_by("shortest", calls)).split()[:10]

    assert sum(name.startswith("f") for name in first) == 5


async def test_an_owner_who_comes_back_has_saved_no_share() -> None:
    place = Place("shortest")
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(place.use, "a", Call(run_of(1, owner="a")))
        await trio.sleep(10.5)
        for _ in range(6):
            nursery.start_soon(place.use, "b", Call(run_of(1, owner="b")))

    assert "".join(place.sent[11:17]).count("b") == 3


def test_an_unknown_policy_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(DefinitionError, match=r"no policy 'shortes'.* did you mean 'shortest'"):
        Limiter(policy="shortes")


async def test_ten_thousand_waiting_calls_take_logarithmic_work() -> None:
    """The steps of the heap grow with the logarithm of the calls, so all end in one pass."""
    compared = 0

    class Counted(float):
        def __lt__(self, other: float) -> bool:
            nonlocal compared
            compared += 1
            return float(self) < float(other)

    class Policy:
        name = "counted"
        behind = "smaller ones"
        shares_owners = False
        prefers_path = False

        def stretch(self, widest: int) -> float:
            del widest
            return math.inf

        def order(self, run: RunWork, oldest: int) -> float:
            del oldest
            return Counted(run.unseen or 0)

    async def compared_by(calls: int) -> int:
        nonlocal compared
        place = Place("fifo")
        place.queue.policy = Policy()
        async with trio.open_nursery() as nursery:
            for number in range(calls):
                nursery.start_soon(place.use, "", Call(run_of(number * 7919 % calls)))
            await trio.testing.wait_all_tasks_blocked()
            compared = 0
        return compared

    few, many = await compared_by(500), await compared_by(10_000)

    assert many / few < 20 * math.log(10_000) / math.log(500) * 1.2


async def test_ten_thousand_waiting_calls_of_the_default_policy_take_logarithmic_work() -> None:
    """Python's own calls are counted: a step that looked at all calls would make 20 times as many
    for each of them.
    """

    async def counted_by(calls: int) -> float:
        place, counted = Place("shortest"), 0

        def count(frame: object, event: str, arg: object) -> None:
            nonlocal counted
            del frame, arg
            counted += event in {"call", "c_call"}

        async with trio.open_nursery() as nursery:
            for number in range(calls):
                work = run_of(float(number * 7919 % calls))
                nursery.start_soon(place.use, "", Call(work, path=1.0))
            await trio.testing.wait_all_tasks_blocked()
            sys.setprofile(count)
        sys.setprofile(None)
        return counted / calls

    few, many = await counted_by(500), await counted_by(10_000)

    assert many / few < 1.5


class QueueMachine(RuleBasedStateMachine):
    """Calls come, are cancelled and end, in virtual steps: after each, the queue is consistent."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = "shortest"
        self.script: list[tuple[str, int, float]] = []

    @rule(run=st.integers(0, 3), seconds=st.floats(0.1, 5))
    def arrive(self, run: int, seconds: float) -> None:
        self.script.append(("arrive", run, seconds))

    @precondition(lambda self: self.script)
    @rule(which=st.integers(0, 40))
    def cancel(self, which: int) -> None:
        self.script.append(("cancel", which, 0))

    @rule(seconds=st.floats(0.1, 10))
    def sleep(self, seconds: float) -> None:
        self.script.append(("sleep", 0, seconds))

    @rule(policy=st.sampled_from(sorted(POLICIES)))
    def choose(self, policy: str) -> None:
        self.policy = policy

    @invariant()
    def every_call_is_sent_or_cancelled_and_nothing_is_left(self) -> None:
        clock = trio.testing.MockClock(autojump_threshold=0)
        trio.run(_play, self.policy, tuple(self.script), clock=clock)


async def _play(policy: str, script: Sequence[tuple[str, int, float]]) -> None:
    place = Place(policy, in_flight=2)
    runs = [run_of(number * 5.0, owner="ab"[number % 2]) for number in range(4)]
    scopes: list[trio.CancelScope] = []
    ended: list[bool] = []

    async def call(this: Call, seconds: float, scope: trio.CancelScope) -> None:
        with scope:
            await place.use("", this, seconds)
        was_sent = this.end(trio.current_time()) is None
        if not was_sent:
            assert this.fifo is None, "a cancelled wait leaves nothing behind"
        ended.append(scope.cancelled_caught)

    async with trio.open_nursery() as nursery:
        for step, number, seconds in script:
            if step == "arrive":
                scopes.append(trio.CancelScope())
                nursery.start_soon(call, Call(runs[number]), seconds, scopes[-1])
            elif step == "cancel" and scopes:
                scopes[number % len(scopes)].cancel()
            else:
                await trio.sleep(seconds)
    queue = place.queue
    assert len(ended) == len(scopes)
    assert place.peak <= 2
    assert place.in_flight == len(queue) == 0
    assert all(run.open == run.in_flight == 0 for run in runs)
    assert not queue._runs
    assert not len(queue._owners.waiting)
    assert len(queue._owners.members) <= 2


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)


@settings(max_examples=20, deadline=None)
@given(
    works=st.lists(st.floats(0, 50), min_size=1, max_size=20), cancelled=st.sets(st.integers(0, 19))
)
def test_cancelled_calls_change_nothing_for_the_others(
    works: list[float], cancelled: set[int]
) -> None:
    """The others are sent in the order in which they would be sent without them."""

    async def main(with_cancelled: bool) -> list[str]:
        place = Place("shortest")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(place.use, "", Call(run_of()))
            await trio.testing.wait_all_tasks_blocked()
            for number, work in enumerate(works):
                if number in cancelled and not with_cancelled:
                    continue
                scope = trio.CancelScope()
                nursery.start_soon(_use_in, place, str(number), Call(run_of(work)), scope)
                await trio.testing.wait_all_tasks_blocked()
                if number in cancelled:
                    scope.cancel()
                    await trio.testing.wait_all_tasks_blocked()
        return place.sent

    def run(*, with_cancelled: bool) -> list[str]:
        clock = trio.testing.MockClock(autojump_threshold=0)
        return trio.run(main, with_cancelled, clock=clock)

    assert run(with_cancelled=True) == run(with_cancelled=False)


async def _use_in(place: Place, name: str, call: Call, scope: trio.CancelScope) -> None:
    with scope:
        await place.use(name, call)


async def test_a_heap_drops_the_entries_of_cancelled_calls() -> None:
    place = Place("shortest")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(place.use, "", Call(run_of()), 1e9)
        await trio.testing.wait_all_tasks_blocked()
        run = run_of(1)
        for _ in range(1_000):
            with trio.move_on_after(0.1):
                await place.use("", Call(run))
        assert len(place.queue) == 0
        assert len(place.queue._owners.waiting._entries) <= FEW + 2
        nursery.cancel_scope.cancel()


async def test_calls_without_a_caller_pass_in_the_order_of_their_arrival() -> None:
    asked: list[str] = []

    class Provider:
        name = "provider"

        async def answer(self, request: ModelRequest) -> AssistantMessage:
            asked.append(request.instructions)
            await trio.sleep(1)
            return AssistantMessage("so")

    model = with_rate_limit(Provider(), Limiter(in_flight=1))
    async with trio.open_nursery() as nursery:
        for number in "12345":
            request = ModelRequest(instructions=number, transcript=(), tools=())
            nursery.start_soon(model.answer, request)
            await trio.testing.wait_all_tasks_blocked()

    assert "".join(asked) == "12345"


async def test_a_waiting_call_knows_its_place() -> None:
    place = Place("shortest")
    calls = [Call(run_of(work)) for work in (30, 2, 9)]
    calls.append(Call(calls[1].run))
    for call in calls:
        call.provider = "openai"
    async with trio.open_nursery() as nursery:
        for call in (Call(run_of()), *calls):
            nursery.start_soon(place.use, "", call)
            await trio.testing.wait_all_tasks_blocked()

        assert [it.wait_text for it in calls] == [
            "waiting for openai: 4th of 4, behind shorter runs",
            "waiting for openai: 1st of 4",
            "waiting for openai: 3rd of 4, behind shorter runs",
            "waiting for openai: 2nd of 4, behind calls of its run",
        ]
        await trio.sleep(1.5)
        assert calls[1].wait_text == ""
        assert calls[0].wait_text == "waiting for openai: 3rd of 3, behind shorter runs"
