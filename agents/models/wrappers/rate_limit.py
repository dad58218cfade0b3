"""Wrapper: limits requests and tokens per minute, for all models of a provider together.

One bucket for requests and one for tokens hold a minute's worth each and fill steadily. Within any
time window, at most a full bucket and its inflow pass, which is how providers count. Calls pass in
their order of arrival; a cancelled wait uses nothing up. A limiter belongs to one process: several
processes with one provider account divide its limits.
"""

import trio

from orchestrator.agents.errors import DefinitionError, Failure, ModelError
from orchestrator.agents.messages import AssistantMessage
from orchestrator.agents.models.model import Model, ModelRequest, Queued
from orchestrator.agents.models.token_estimate import estimated_tokens
from orchestrator.agents.models.wrappers.wrapper import ModelWrapper


class Limiter:
    """A rate limit, shared by all models of a provider."""

    def __init__(
        self,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        in_flight: int | None = None,
        *,
        servers: int = 1,
    ) -> None:
        """Limit the calls of this process.

        Args:
            requests_per_minute: what the provider allows.
            tokens_per_minute: the same of tokens.
            in_flight: how many calls may be under way at once.
            servers: how many processes share these limits, each with an equal part of them.
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
        self._waiting = 0
        self._queue_lock = trio.StrictFIFOLock()
        self._changed = trio.Event()
        self._run: trio.lowlevel.TrioToken | None = None

    @property
    def waiting(self) -> int:
        """How many calls wait for the limit."""
        return self._waiting

    @property
    def in_flight(self) -> int:
        """How many calls are under way."""
        return self._in_flight

    def must_wait(self, tokens: int) -> bool:
        """Return whether a call of about this number of tokens would have to wait now."""
        return self._waiting > 0 or self._ready_at(tokens) > trio.current_time()

    async def wait_admitted(self, tokens: int) -> None:
        """Wait until a call of about this number of tokens may begin, and count it as begun."""
        if self._closed_by is not None:
            await trio.lowlevel.checkpoint()
            # Waiting would not help; a fallback can move on at once.
            raise ModelError(
                f"no call is let through: the limiter has {self._closed_by}=0", kind=Failure.QUOTA
            )
        if (run := trio.lowlevel.current_trio_token()) is not self._run:
            # Every run of trio has its own clock, whose times mean nothing in another run.
            self._run = run
            self._requests.reset()
            self._tokens.reset()
        self._waiting += 1
        try:
            async with self._queue_lock:
                # Only the first of the queue gets here.
                while (ready_at := self._ready_at(tokens)) > trio.current_time():
                    self._changed = trio.Event()
                    with trio.move_on_at(ready_at):
                        await self._changed.wait()
                self._requests.take(1)
                self._tokens.take(self._tokens.capped(tokens))
                self._in_flight += 1
        finally:
            self._waiting -= 1

    def end_call(self) -> None:
        """Count a call as ended."""
        self._in_flight -= 1
        self._changed.set()

    def correct_tokens(self, *, reserved: int, used: int) -> None:
        """Replace the tokens that were reserved for a call by those that it used."""
        self._tokens.take(used - self._tokens.capped(reserved))
        self._changed.set()

    def _ready_at(self, tokens: int) -> float:
        if self._in_flight == self._most_in_flight:
            return float("inf")
        return max(self._requests.ready_at(1), self._tokens.ready_at(tokens))


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
        return self._full_at + self._seconds(self.capped(amount)) - 60

    def take(self, amount: int) -> None:
        now = trio.current_time()
        self._full_at = max(self._full_at, now) + self._seconds(amount)

    def _seconds(self, amount: int) -> float:
        return 60 * amount / self._per_minute if self._per_minute else 0


def with_rate_limit(model: Model, limiter: Limiter) -> Model:
    """Return a model whose calls wait for a limiter."""
    return _LimitedModel(model, limiter)


class _LimitedModel(ModelWrapper):
    def __init__(self, model: Model, limiter: Limiter) -> None:
        super().__init__(model)
        self._limiter = limiter

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        tokens = estimated_tokens(request)
        if is_queued := self._limiter.must_wait(tokens):
            request.tell(Queued(True))
        await self._limiter.wait_admitted(tokens)
        if is_queued:
            request.tell(Queued(False))
        try:
            answer = await self._model.answer(request)
        finally:
            self._limiter.end_call()
        # A call without a count keeps its reservation: it may have used all of it.
        if used := answer.usage.tokens:
            self._limiter.correct_tokens(reserved=tokens, used=used)
        return answer
