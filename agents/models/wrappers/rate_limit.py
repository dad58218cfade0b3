"""Wrapper: limits requests and tokens per minute, for all models of a provider together.

One bucket for requests and one for tokens hold a minute's worth each and fill steadily. Within any
time window, at most a full bucket and its inflow pass, which is how providers count. Calls pass in
the order of a policy; a cancelled wait uses nothing up. A limiter belongs to one process: several
processes with one provider account divide its limits.
"""

from collections.abc import Callable
from typing import Final

import trio

from orchestrator.agents.errors import DefinitionError, Failure, ModelError
from orchestrator.agents.messages import AssistantMessage
from orchestrator.agents.models.call_order import Call, Policy, RunWork, policy_named
from orchestrator.agents.models.call_queue import CallQueue
from orchestrator.agents.models.model import Model, ModelEvent, ModelRequest, Queued, ignore_event
from orchestrator.agents.models.token_estimate import estimated_tokens
from orchestrator.agents.models.wrappers.queued_model import QueuedModel


class Limiter:
    """A rate limit, shared by all models of a provider."""

    def __init__(
        self,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        in_flight: int | None = None,
        *,
        servers: int = 1,
        policy: str | Policy = "shortest",
    ) -> None:
        """Limit the calls of this process.

        Args:
            requests_per_minute: what the provider allows.
            tokens_per_minute: the same of tokens.
            in_flight: how many calls may be under way at once.
            servers: how many processes share these limits, each with an equal part of them.
            policy: the order of waiting calls: `"shortest"` sends the run with the least predicted
                work first, `"fair"` the run with the fewest calls under way, and `"fifo"` the call
                that came first.
        """
        if servers < 1:
            raise DefinitionError(f"servers cannot be {servers}")
        limits = {
            name: _part(name, allowed, servers)
            for name, allowed in (
                ("requests_per_minute", requests_per_minute),
                ("tokens_per_minute", tokens_per_minute),
                ("in_flight", in_flight),
            )
        }
        self._closed_by = next((name for name in limits if limits[name] == 0), None)
        self._requests = _Bucket(limits["requests_per_minute"])
        self._tokens = _Bucket(limits["tokens_per_minute"])
        self._most_in_flight = limits["in_flight"]
        self._in_flight = 0
        self.queue: Final = CallQueue(policy_named(policy), self._ready_at)
        self._run: trio.lowlevel.TrioToken | None = None
        self.counts_tokens = limits["tokens_per_minute"] is not None
        self._counts_minutes = self.counts_tokens or limits["requests_per_minute"] is not None

    @property
    def waiting(self) -> int:
        """How many calls wait for the limit."""
        return len(self.queue)

    @property
    def in_flight(self) -> int:
        """How many calls are under way."""
        return self._in_flight

    def begin_at_once(self, tokens: int) -> bool:
        """Begin a call that need not wait, unless the policy has to learn from it."""
        if (
            self.queue.watched
            or self._in_flight == self._most_in_flight
            or self._closed_by is not None
        ):
            return False
        if self._counts_minutes:
            self._follow_clock()
            now = trio.current_time()
            if self._requests.ready_at(1) > now or self._tokens.ready_at(tokens) > now:
                return False
            self._requests.take(1, now)
            self._tokens.take(self._tokens.capped(tokens), now)
        self._in_flight += 1
        return True

    async def wait_admitted(
        self,
        tokens: int,
        call: Call | None = None,
        tell: Callable[[ModelEvent], None] = ignore_event,
    ) -> None:
        """Wait until a call of about this number of tokens may begin, and count it as begun.

        `tell` is told if the call waits, and when it no longer does.
        """
        if self._closed_by is not None:
            await trio.lowlevel.checkpoint()
            # Waiting would not help; a fallback can move on at once.
            raise ModelError(
                f"no call is let through: the limiter has {self._closed_by}=0", kind=Failure.QUOTA
            )
        self._follow_clock()
        if call is None:
            call = Call(RunWork())
        call.tokens = tokens
        if not self.queue.must_wait(call):
            await trio.lowlevel.checkpoint_if_cancelled()
            self._begin(call)
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        tell(Queued(True))
        await self.queue.wait_turn(call, lambda: self._begin(call))
        tell(Queued(False))

    def end_call(self, call: Call | None = None) -> None:
        """Count a call as ended."""
        self._in_flight -= 1
        if self.queue.waiters:
            self.queue.changed(None if call is None else call.run)

    def correct_tokens(self, *, reserved: int, used: int) -> None:
        """Replace the tokens that were reserved for a call by those that it used."""
        if self.counts_tokens:
            self._tokens.take(used - self._tokens.capped(reserved), trio.current_time())
            if self.queue.waiters:
                self.queue.changed()

    def _follow_clock(self) -> None:
        if (run := trio.lowlevel.current_trio_token()) is not self._run:
            # Every run of trio has its own clock, whose times mean nothing in another run.
            self._run = run
            self._requests.reset()
            self._tokens.reset()

    def _begin(self, call: Call) -> None:
        now = trio.current_time()
        self._requests.take(1, now)
        self._tokens.take(self._tokens.capped(call.tokens), now)
        self._in_flight += 1
        call.send(now)

    def _ready_at(self, call: Call) -> float:
        if self._in_flight == self._most_in_flight:
            return float("inf")
        return max(self._requests.ready_at(1), self._tokens.ready_at(call.tokens))


def _part(name: str, allowed: int | None, servers: int) -> int | None:
    """Return the part of a limit that one of several processes has."""
    if allowed is None:
        return None
    if allowed < 0:
        raise DefinitionError(f"{name} cannot be {allowed}")
    if 0 < allowed < servers:
        raise DefinitionError(f"{name}={allowed} cannot be divided by {servers} servers")
    return allowed // servers


class _Bucket:
    """A token bucket of a minute's worth, or without a limit.

    It stores only the time at which it will be full. The time at which enough is there can then
    be computed exactly, where a level that rises in small steps would suffer from rounding.
    """

    def __init__(self, per_minute: int | None) -> None:
        self._per_minute = per_minute
        self.reset()

    def reset(self) -> None:
        self._full_at = -float("inf")

    def capped(self, amount: int) -> int:
        # A call larger than the bucket waits for a full one; the correction leaves it in debt.
        return amount if self._per_minute is None else min(amount, self._per_minute)

    def ready_at(self, amount: int) -> float:
        if self._per_minute is None:
            return self._full_at
        return self._full_at + self._seconds(self.capped(amount)) - 60

    def take(self, amount: int, now: float) -> None:
        if self._per_minute is None:
            return
        self._full_at = max(self._full_at, now) + self._seconds(amount)

    def _seconds(self, amount: int) -> float:
        return 60 * amount / self._per_minute if self._per_minute else 0


def with_rate_limit(model: Model, limiter: Limiter) -> Model:
    """Return a model whose calls wait for a limiter."""
    return _LimitedModel(model, limiter)


class _LimitedModel(QueuedModel):
    def __init__(self, model: Model, limiter: Limiter) -> None:
        super().__init__(model, limiter.queue)
        self._limiter = limiter

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        limiter = self._limiter
        tokens = estimated_tokens(request) if limiter.counts_tokens else 0
        if request.call is not None or not limiter.begin_at_once(tokens):
            return await super().answer(request)
        try:
            answer = await self._model.answer(request)
        finally:
            limiter.end_call()
        if limiter.counts_tokens and (used := answer.usage.tokens):
            limiter.correct_tokens(reserved=tokens, used=used)
        return answer

    async def answer_call(self, request: ModelRequest, call: Call) -> AssistantMessage:
        tokens = estimated_tokens(request)
        await self._limiter.wait_admitted(tokens, call, request.tell)
        try:
            answer = await self._model.answer(request)
        finally:
            self.end_call(request, call)
            self._limiter.end_call(call)
        # A call without a count keeps its reservation: it may have used all of it.
        if used := answer.usage.tokens:
            self._limiter.correct_tokens(reserved=tokens, used=used)
        return answer
