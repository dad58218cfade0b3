"""Any sequence of calls keeps the limits, the shares and the promises of a limiter."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from orchestrator.agents.models.call_order import (
    POLICIES,
    STRETCH,
    WIDE,
    WIDE_STRETCH,
    Call,
    RunWork,
)
from orchestrator.agents.models.call_queue import OVERDUE_EVERY
from orchestrator.models import Limiter

IN_FLIGHT = 2
PER_MINUTE = 30


class Arrival(NamedTuple):
    """A call of one of several runs."""

    run: int
    seconds: float


class Sent(NamedTuple):
    """A call that was sent, and the calls that had waited longer than this instant."""

    call: Call
    at: float
    waited: bool
    others: Sequence[Call]


class Provider:
    """A real limiter, and a record of the calls that it lets through."""

    def __init__(self, limiter: Limiter) -> None:
        self.limiter = limiter
        self.sent: list[Sent] = []
        self.peak = 0
        self._waiting: dict[Call, float] = {}

    async def use(self, call: Call, seconds: float, scope: trio.CancelScope | None = None) -> None:
        arrived = self._waiting[call] = trio.current_time()
        with scope or trio.CancelScope():
            try:
                await self.limiter.wait_admitted(1, call)
            finally:
                del self._waiting[call]
                now = trio.current_time()
                if call.waits_in is None and call.run.in_flight:
                    others = [it for it, since in self._waiting.items() if since < now]
                    self.sent.append(Sent(call, now, arrived < now, others))
            self.peak = max(self.peak, self.limiter.in_flight)
            try:
                await trio.sleep(seconds)
            finally:
                call.end(trio.current_time())
                self.limiter.end_call(call)
        call.end(trio.current_time())


def run_of(
    unseen: float = 0.0, *, owner: str = "", key: str = "", share: float = 1.0, back: bool = False
) -> RunWork:
    run = RunWork(owner=owner, begun=trio.current_time(), background=back)
    run.unseen, run.key, run.share, run.call_seconds = unseen, key, share, 1.0
    return run


class LimiterMachine(RuleBasedStateMachine):
    """Calls come, are cancelled and end; the whole sequence is played on a jumping clock."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = "shortest"
        self.steps: list[Arrival | int | float] = []

    @initialize(policy=st.sampled_from(sorted(POLICIES)))
    def choose(self, policy: str) -> None:
        self.policy = policy

    @rule(run=st.integers(0, 7), seconds=st.floats(0.1, 9), times=st.integers(1, 6))
    def arrive(self, run: int, seconds: float, times: int) -> None:
        self.steps += [Arrival(run, seconds)] * times

    @precondition(lambda self: self.steps)
    @rule(which=st.integers(0, 60))
    def cancel(self, which: int) -> None:
        self.steps.append(which)

    @rule(seconds=st.floats(0.1, 20))
    def pass_time(self, seconds: float) -> None:
        self.steps.append(seconds)

    def teardown(self) -> None:
        clock = trio.testing.MockClock(autojump_threshold=0)
        trio.run(_play, self.steps, self.policy, clock=clock)


async def _play(steps: Sequence[Arrival | int | float], policy: str) -> None:
    limiter = Limiter(PER_MINUTE, in_flight=IN_FLIGHT, policy=policy)
    provider = Provider(limiter)
    runs = [
        run_of(number * 3.0, owner="ab"[number % 2], key="xy"[number // 2 % 2], back=number > 5)
        for number in range(8)
    ]
    scopes: list[trio.CancelScope] = []
    async with trio.open_nursery() as nursery:
        for step in steps:
            if isinstance(step, Arrival):
                scopes.append(trio.CancelScope())
                call = Call(runs[step.run], path=step.seconds)
                nursery.start_soon(provider.use, call, step.seconds, scopes[-1])
            elif isinstance(step, int):
                if scopes:
                    scopes[step % len(scopes)].cancel()
            else:
                await trio.sleep(step)
    # The limits were kept.
    assert provider.peak <= IN_FLIGHT
    times = [it.at for it in provider.sent]
    for first, begun in enumerate(times):
        for count, ended in enumerate(times[first:], 1):
            assert count <= PER_MINUTE * (1 + (ended - begun) / 60) + 1e-6
    # All calls were sent or cancelled, and left nothing behind.
    assert limiter.waiting == limiter.in_flight == 0
    assert all(run.open == run.in_flight == 0 for run in runs)
    queue = limiter.queue
    assert not queue._runs
    assert not len(queue._owners.waiting)
    _require_callers_first(provider.sent, policy)


def _require_callers_first(sent: Sequence[Sent], policy: str) -> None:
    """Of the calls of a key, the background is sent if no caller waits, or if it is overdue."""
    if policy == "fifo":
        return
    passed: dict[tuple[str, str], int] = defaultdict(int)
    for it in sent:
        run = it.call.run
        key = (run.owner, run.key)
        callers = [c for c in it.others if (c.run.owner, c.run.key) == key and not c.run.background]
        if run.background and it.waited and callers:
            assert policy == "shortest"
            assert passed[key] >= OVERDUE_EVERY - 1
            passed[key] = 0
        else:
            passed[key] += 1


TestLimiterMachine = LimiterMachine.TestCase
TestLimiterMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@settings(max_examples=25, deadline=None)
@given(
    policy=st.sampled_from(["shortest", "fair"]),
    shares=st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=2, max_size=4),
    by_key=st.booleans(),
    sizes=st.lists(st.floats(0.2, 5), min_size=4, max_size=4),
)
def test_members_that_wait_are_served_by_their_shares(
    policy: str, shares: list[float], by_key: bool, sizes: list[float]
) -> None:
    """Of two owners, or two keys, the service differs by at most the largest call of each."""

    async def main() -> None:
        provider = Provider(Limiter(in_flight=1, policy=policy))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(provider.use, Call(run_of()), 1.0)
            await trio.testing.wait_all_tasks_blocked()
            for number, share in enumerate(shares):
                name = str(number)
                for _ in range(30):
                    run = run_of(share=share)
                    run.owner, run.key = ("", name) if by_key else (name, "")
                    run.call_seconds = sizes[number]
                    nursery.start_soon(provider.use, Call(run), 1.0)
        served = dict.fromkeys(range(len(shares)), 0.0)
        left = dict.fromkeys(range(len(shares)), 30)
        for it in provider.sent[1:]:
            if not all(left.values()):
                break
            number = int(it.call.run.key if by_key else it.call.run.owner)
            served[number] += sizes[number] / shares[number]
            left[number] -= 1
            for one in served:
                for other in served:
                    most = sizes[one] / shares[one] + sizes[other] / shares[other]
                    assert served[one] - served[other] <= most + 1e-6

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@settings(max_examples=25, deadline=None)
@given(gap=st.floats(0.7, 1.5), calls=st.integers(1, 8), runs=st.integers(1, 3), back=st.booleans())
def test_no_stream_of_short_runs_starves_a_long_one(
    gap: float, calls: int, runs: int, back: bool
) -> None:
    """A run takes the promised times as long as first come, first served; overdue runs share."""

    async def main() -> None:
        provider = Provider(Limiter(in_flight=1))
        has_ended = trio.Event()

        async def arrive() -> None:
            while not has_ended.is_set():
                nursery.start_soon(provider.use, Call(run_of(), path=1.0), 1.0)
                await trio.sleep(gap)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(arrive)
            await trio.sleep(30)
            begun, backlog = trio.current_time(), provider.limiter.waiting
            async with trio.open_nursery() as long:
                for _ in range(runs):
                    run = run_of(1_000.0, back=back)
                    for _ in range(calls):
                        long.start_soon(provider.use, Call(run, path=1.0), 1.0)
            seconds = trio.current_time() - begun
            has_ended.set()
            nursery.cancel_scope.cancel()
        fifo = backlog + runs * calls + 2
        promised = (STRETCH if calls < WIDE else WIDE_STRETCH) * fifo
        assert seconds <= promised + OVERDUE_EVERY * runs * calls + OVERDUE_EVERY

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
