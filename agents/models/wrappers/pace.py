"""Wrapper: all callers of a model slow down together when its provider refuses requests.

A refusal (HTTP 429) holds every call back until the time that the provider names, or for a wait
that doubles. Then one call tries, and each call that the provider begins to answer lets one more
pass, so a storm costs few requests and its end causes no stampede. Calls pass in the order of a
policy; a cancelled wait uses nothing up.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import trio
from msgspec.structs import replace

from orchestrator.agents.errors import Failure, ModelError
from orchestrator.agents.messages import AssistantMessage, Usage
from orchestrator.agents.models.call_order import (
    Allowance,
    AllowedUnit,
    Call,
    Policy,
    RunWork,
    policy_named,
)
from orchestrator.agents.models.call_queue import CallQueue
from orchestrator.agents.models.model import Delta, Model, ModelEvent, ModelRequest, Queued
from orchestrator.agents.models.token_estimate import OUTPUT_ALLOWANCE
from orchestrator.agents.models.wrappers.allowed_amount import AllowedAmount
from orchestrator.agents.models.wrappers.queued_model import QueuedModel
from orchestrator.agents.models.wrappers.retry import LONGEST_RETRY_AFTER
from orchestrator.agents.models.wrappers.shared_hold import SharedHold

FIRST_CALLS: Final = 32
"""How many calls are sent before the provider has begun to answer any of them."""
SMALLEST_THRESHOLD: Final = 4
BASE_SECONDS: Final = 0.5
MAX_SECONDS: Final = 30.0
HOPE_SECONDS: Final = 60.0
"""How long calls wait for a provider that accepts none."""
REFUSAL_SECONDS: Final = 2.0
"""A call that is not refused by then is accepted: models think for minutes before they write."""
SAME_HOLD: Final = 0.01
"""Two clocks, and the time of a file, differ by less: it is the same refusal."""
FEWEST_BY_LATENCY: Final = 8
"""Slow responses alone do not reduce the number of unanswered calls below this."""
LATENCY_SAMPLES: Final = 16
"""The responses after which the mean latency is compared again."""
LATENCY_WEIGHT: Final = 0.1
FORGOTTEN: Final = 1.01
SLOW_FACTOR: Final = 3.0
"""Responses are slow if their mean latency is this many times the best mean."""
IDLE_SECONDS: Final = 300.0
"""The seconds without a call after which the learned limits of a provider expire."""


class Pace:
    """The number of calls that may be sent before the provider begins to answer them.

    A call that it has begun to answer, or has not refused for a while, is accepted and no longer
    counts, however long the answer takes. The number grows with each accepted call, as TCP's window
    does: it doubles in each round trip at first, and grows by one from half of the refused number
    on.
    """

    def __init__(
        self,
        first_calls: int = FIRST_CALLS,
        *,
        policy: str | Policy = "shortest",
        shared: SharedHold | None = None,
    ) -> None:
        self._first_calls = first_calls
        self._shared = shared
        """The refusals that other processes have met."""
        self._allowed: float = first_calls
        self._threshold = math.inf
        """From here on it grows by one in each round trip."""
        self._unanswered = 0
        self._begun: deque[_PacedCall] = deque()
        """The calls that may be unanswered, the oldest first."""
        self._round = 0
        """Rises with each refusal: calls from before it teach nothing about the time after it."""
        self._refused_rounds = 0
        """How many in a row, without an accepted call between them."""
        self._refused_since = math.inf
        self._held_until = -math.inf
        self._last_call = -math.inf
        """Of this process, or the last sign of another one."""
        self._amounts = {AllowedUnit.REQUESTS: AllowedAmount()}
        """The requests, and the tokens that the provider has named in its headers."""
        self._latencies: dict[str, _Latency] = {}
        """By model: a large one takes longer."""
        self.queue: Final = CallQueue(policy_named(policy), self._ready_at)

    @property
    def waiting(self) -> int:
        """How many calls are held back."""
        return len(self.queue)

    async def begin(
        self, model: str, tell: Callable[[ModelEvent], None], call: Call | None = None
    ) -> "_PacedCall":
        """Wait until a call may be sent.

        Args:
            model: its name, for the error.
            tell: is told if the call waits, and when it no longer does. A call that is cancelled
                while it waits was not sent, and nothing says that it was.
            call: describes it to the policy.

        Raises:
            ModelError: the provider refuses calls for longer than a call should wait.
        """
        self._require_short_hold(model)
        if call is None:
            call = Call(RunWork())
        if not self.queue.must_wait(call):
            await trio.lowlevel.checkpoint_if_cancelled()
            begun = self._begun_call(call)
            await trio.lowlevel.cancel_shielded_checkpoint()
            return begun
        tell(Queued(True))
        try:
            begun = await self.queue.wait_turn(
                call, lambda: self._begun_call(call), lambda: self._require_short_hold(model)
            )
        except ModelError:
            tell(Queued(False))
            raise
        tell(Queued(False))
        return begun

    def accepted(self, call: "_PacedCall") -> None:
        """Let more calls pass: the provider has begun to answer one."""
        if call.round == self._round:
            self._refused_rounds = 0
            self._refused_since = math.inf
            is_slow = self._allowed >= self._threshold
            self._allowed += 1 / self._allowed if is_slow else 1

    def refused(self, call: "_PacedCall", retry_after: float | None) -> None:
        """Hold all calls back. The wait grows each time the provider's own wait is too short."""
        seconds = retry_after or 0
        if call.round == self._round:
            self._round += 1
            self._refused_rounds += 1
            self._refused_since = min(self._refused_since, trio.current_time())
            if self._allowed > 1:
                self._threshold = max(SMALLEST_THRESHOLD, self._allowed / 2)
            self._allowed = 1
            if retry_after is None or self._refused_rounds > 1:
                doubled = BASE_SECONDS * 2 ** min(self._refused_rounds - 1, 32)
                seconds = max(seconds, min(doubled, MAX_SECONDS))
        self._held_until = max(self._held_until, trio.current_time() + seconds)
        if self._shared is not None:
            self._shared.extend(self._held_until - trio.current_time())
        self.queue.changed()

    def _follow_others(self, shared: SharedHold) -> None:
        """Hold calls back as long as another process does, and let one try then."""
        until = trio.current_time() + shared.seconds_left()
        if until > max(self._held_until, trio.current_time()) + SAME_HOLD:
            self._held_until = until
            self._last_call = trio.current_time()
            self._round += 1
            self._threshold = max(SMALLEST_THRESHOLD, self._allowed / 2)
            self._allowed = 1

    def note_allowance(self, call: "_PacedCall", allowance: Allowance) -> None:
        """Keep to the amount that the provider allows, as it says with an answer.

        Calls that were sent after this one may not be counted yet.
        """
        unit = allowance.unit
        if (amount := self._amounts.get(unit)) is None:
            amount = self._amounts[unit] = AllowedAmount()
        amount.note(allowance, call.sent.get(unit, amount.sent))
        self.queue.changed()

    def note_latency(self, model: str, seconds: float) -> None:
        """Send fewer calls at once when the responses of a model begin much later than before."""
        if (latency := self._latencies.get(model)) is None:
            latency = self._latencies[model] = _Latency(seconds)
        if latency.is_slow_after(seconds) and self._allowed > FEWEST_BY_LATENCY:
            self._allowed = self._threshold = max(FEWEST_BY_LATENCY, self._allowed / 2)

    def answered(self) -> None:
        """Count one call less that waits for the provider."""
        self._unanswered -= 1
        self.queue.changed()

    def _begun_call(self, queued: Call) -> "_PacedCall":
        now = trio.current_time()
        queued.send(now)
        if now - self._last_call > IDLE_SECONDS and not self._unanswered:
            self._allowed = self._first_calls
            self._threshold = math.inf
            self._refused_rounds = 0
            self._refused_since = math.inf
            self._amounts = {AllowedUnit.REQUESTS: AllowedAmount()}
            self._latencies.clear()
        self._last_call = now
        self._unanswered += 1
        for unit, amount in self._amounts.items():
            amount.take(_amount_of(queued, unit), now)
        sent = {unit: amount.sent for unit, amount in self._amounts.items()}
        call = _PacedCall(self, self._round, now, sent)
        self._begun.append(call)
        return call

    def _ready_at(self, queued: Call) -> float:
        now, begun = trio.current_time(), self._begun
        while begun and (not begun[0].is_open or begun[0].at + REFUSAL_SECONDS <= now):
            call = begun.popleft()
            if call.is_open:
                # Not `accept`: that would ask the queue, which asks here.
                call.is_open = False
                self.accepted(call)
                self._unanswered -= 1
        ready_at = self._held_until
        for unit, amount in self._amounts.items():
            ready_at = max(ready_at, amount.ready_at(_amount_of(queued, unit)))
        # Whole calls: a window of 1.5 is one call.
        if self._unanswered < int(self._allowed):
            return ready_at
        return max(ready_at, begun[0].at + REFUSAL_SECONDS)

    def _require_short_hold(self, model: str) -> None:
        if self._shared is not None:
            self._follow_others(self._shared)
        now = trio.current_time()
        seconds = self._held_until - now
        longest = min(LONGEST_RETRY_AFTER, trio.current_effective_deadline() - now)
        # After a minute of refusals only those go on that try: the others may use another model.
        is_hopeless = self._refused_rounds > 1 and now > self._refused_since + HOPE_SECONDS
        # One that is cancelled already is not stopped by this.
        if seconds > 0 and longest > 0 and (is_hopeless or seconds > longest):
            raise ModelError(
                f"{model} is not asked: it refuses all requests for another {seconds:.0f} s",
                kind=Failure.RATE_LIMIT,
                retry_after=seconds,
                usage=Usage(),
                is_transient=False,
            )


def _amount_of(call: Call, unit: AllowedUnit) -> int:
    if unit is AllowedUnit.REQUESTS:
        return 1
    # The length of an answer is not known before.
    return OUTPUT_ALLOWANCE if unit is AllowedUnit.OUTPUT_TOKENS else call.tokens


class _Latency:
    """The seconds until a response of one model begins."""

    __slots__ = ("_best", "_mean", "_samples")

    def __init__(self, seconds: float) -> None:
        self._mean = self._best = seconds
        self._samples = 0

    def is_slow_after(self, seconds: float) -> bool:
        """Note a response, and return whether responses have become slow; then count anew."""
        self._samples += 1
        self._mean += (seconds - self._mean) * LATENCY_WEIGHT
        # The best mean is forgotten slowly: the model may have become slower for good.
        self._best = min(self._best * FORGOTTEN, self._mean)
        if self._samples < LATENCY_SAMPLES or self._mean < SLOW_FACTOR * self._best:
            return False
        self._samples = 0
        return True


class _PacedCall:
    """One call, until the provider has begun to answer it."""

    def __init__(self, pace: Pace, round_: int, at: float, sent: Mapping[AllowedUnit, int]) -> None:
        self.sent = sent
        """The amounts of all calls up to this one."""
        self.round = round_
        self.at = at
        self.is_open = True
        self._pace = pace

    def accept(self) -> None:
        if self.is_open:
            self._pace.accepted(self)
            self.end()

    def refuse(self, retry_after: float | None) -> None:
        self._pace.refused(self, retry_after)
        self.end()

    def end(self) -> None:
        if self.is_open:
            self.is_open = False
            self._pace.answered()


def with_pace(model: Model, pace: Pace) -> Model:
    """Return a model whose calls are held back while its provider refuses them."""
    return _PacedModel(model, pace)


class _PacedModel(QueuedModel):
    def __init__(self, model: Model, pace: Pace) -> None:
        super().__init__(model, pace.queue)
        self._pace = pace

    async def answer_call(self, request: ModelRequest, call: Call) -> AssistantMessage:
        pace = self._pace
        paced = await pace.begin(self.name, request.tell, call)
        call.note_allowance = partial(pace.note_allowance, paced)
        has_begun = False

        def tell(event: ModelEvent) -> None:
            nonlocal has_begun
            if not has_begun and isinstance(event, Delta):
                has_begun = True
                paced.accept()
                pace.note_latency(self.name, trio.current_time() - paced.at)
            request.tell(event)

        try:
            answer = await self._model.answer(replace(request, tell=tell))
        except ModelError as exc:
            # A server that is overloaded and names a time means all callers, too.
            if exc.kind is Failure.RATE_LIMIT or (
                exc.kind is Failure.OVERLOADED and exc.retry_after is not None
            ):
                paced.refuse(exc.retry_after)
            raise
        else:
            paced.accept()
            return answer
        finally:
            paced.end()
