"""Wrapper: repeats a call that is slower than most calls of its kind, and takes the faster answer.

A call that has not begun to answer by then is sent once more, if its budgets can pay for both. The
call that begins to answer first wins, and the other one is cancelled. A cancelled call may have
used all that was reserved for it, and is charged so. A call that waits for a limiter is not slow.
"""

import math
from collections.abc import Callable
from typing import Final

import trio
from msgspec.structs import replace

from orchestrator.agents.errors import DefinitionError, ModelError
from orchestrator.agents.messages import AssistantMessage, Usage
from orchestrator.agents.models.model import (
    Attempts,
    Delta,
    Model,
    ModelEvent,
    ModelRequest,
    Queued,
)
from orchestrator.agents.models.samples import Samples, step_of
from orchestrator.agents.models.token_estimate import message_length
from orchestrator.agents.models.wrappers.attempts import SecondCall, count_attempts
from orchestrator.agents.models.wrappers.wrapper import ModelWrapper
from orchestrator.agents.nurseries import raising_one_error

FASTER_SHARE: Final = 0.95
LEAST_SAMPLES: Final = 20
"""Fewer calls of a kind do not tell which call is slow."""
MOST_KINDS: Final = 1_000
FASTER: Final = "another call for the same answer was faster"


def with_hedge(
    model: Model, share: float = FASTER_SHARE, *, first_seconds: float = math.inf
) -> Model:
    """Return a model that repeats slow calls.

    Args:
        model: the model that is called. Its own retries and fallbacks do not happen: put those
            around this wrapper.
        share: a call is slow when this share of the calls with the same instructions and about the
            same size was faster.
        first_seconds: when a call is slow, as long as too few calls are known.
    """
    if not 0 < share < 1:
        raise DefinitionError(f"the share of faster calls is between 0 and 1, not {share}")
    return _HedgedModel(model, share, first_seconds)


class _HedgedModel(ModelWrapper):
    def __init__(self, model: Model, share: float, first_seconds: float) -> None:
        super().__init__(model)
        self._share = share
        self._first_seconds = first_seconds
        self._kinds: dict[tuple[int, int], Samples] = {}
        """The seconds until calls begin to answer, by instructions and size."""

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        return await count_attempts(request, self._ask)

    async def _ask(self, request: ModelRequest, attempts: Attempts) -> AssistantMessage:
        samples = self._samples(request)
        is_known = len(samples) >= LEAST_SAMPLES
        slow = samples.quantile(self._share) if is_known else self._first_seconds
        race = _Race(self._model, request, samples.add)
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                race.start(nursery)
                await race.wait_slow(slow)
                if race.is_open and (second := await attempts.begin_second()) is not None:
                    if race.is_open:
                        race.second = second
                        race.start(nursery)
                    else:
                        second.lose(None, sent=False)
        return race.result()

    def _samples(self, request: ModelRequest) -> Samples:
        size = step_of(request.transcript.total(message_length))
        key = (hash(request.instructions), size)
        if (found := self._kinds.get(key)) is None:
            if len(self._kinds) >= MOST_KINDS:
                del self._kinds[next(iter(self._kinds))]
            found = self._kinds[key] = Samples()
        return found


class _Race:
    """One or two calls for the same request."""

    def __init__(
        self, model: Model, request: ModelRequest, note_seconds: Callable[[float], None]
    ) -> None:
        self._model = model
        self.request = request
        self.note_seconds = note_seconds
        self.calls: list[_RacingCall] = []
        self.winner: _RacingCall | None = None
        self.second: SecondCall | None = None
        self._changed = trio.Event()

    @property
    def is_open(self) -> bool:
        """Its first call is under way, and has not begun to answer."""
        return self.winner is None and self.calls[0].error is None

    def start(self, nursery: trio.Nursery) -> None:
        """Send the request in a task of a nursery."""
        call = _RacingCall(self)
        self.calls.append(call)
        nursery.start_soon(call.run, self._model)

    async def wait_slow(self, seconds: float) -> None:
        """Wait until the first call is slow or decided."""
        call = self.calls[0]
        await trio.lowlevel.checkpoint()
        while self.is_open:
            slow_at = math.inf if call.sent_at is None else call.sent_at + seconds
            if slow_at <= trio.current_time():
                return
            self._changed = trio.Event()
            with trio.move_on_at(slow_at):
                await self._changed.wait()

    def win(self, call: "_RacingCall") -> None:
        """Let a call win that begins to answer, unless the other one has won."""
        if self.winner is None:
            self.winner = call
            if call.sent_at is not None:
                self.note_seconds(trio.current_time() - call.sent_at)
            for other in self.calls:
                if other is not call:
                    other.scope.cancel(reason=FASTER)
        self.changed()

    def changed(self) -> None:
        self._changed.set()

    def result(self) -> AssistantMessage:
        """Return the answer of the winner, and book the other call."""
        winner = self.winner or self.calls[-1]
        if self.second is not None:
            other = self.calls[winner is self.calls[0]]
            self.second.lose(other.loss, sent=other.was_sent)
        if winner.error is not None:
            raise winner.error
        assert winner.answer is not None, "it has answered"
        return winner.answer


class _RacingCall:
    """One of the calls for a request (its own `Attempts`: it makes no other)."""

    def __init__(self, race: _Race) -> None:
        self._race = race
        self.scope = trio.CancelScope()
        self.sent_at: float | None = trio.current_time()
        """None while it waits for a limiter."""
        self.was_sent = True
        self.answer: AssistantMessage | None = None
        self.error: ModelError | None = None

    @property
    def loss(self) -> ModelError | None:
        """Its failure if it is not the winner; None if it was cancelled."""
        if self.answer is None:
            return self.error
        return ModelError(FASTER, usage=self.answer.usage)

    async def run(self, model: Model) -> None:  # noqa: ASYNC910 (it asks a model)
        request = replace(self._race.request, tell=self._tell, attempts=self)
        with self.scope:
            try:
                self.answer = await model.answer(request)
            except ModelError as exc:
                self.error = exc
                self._race.changed()
            else:
                self._race.win(self)

    def _tell(self, event: ModelEvent) -> None:
        race = self._race
        if isinstance(event, Queued):
            self.was_sent = not event.waiting
            self.sent_at = None if event.waiting else trio.current_time()
            race.changed()
        elif isinstance(event, Delta):
            race.win(self)
        if self is (race.winner or race.calls[0]):
            race.request.tell(event)

    def failed(self, error: ModelError, then: str = "") -> None:
        del then
        self.error = error

    def helped(self, usage: Usage) -> None:
        del usage

    async def begin(self, request: ModelRequest, model: Model | None = None) -> ModelRequest:
        del request, model
        await trio.lowlevel.checkpoint()
        raise self.error or ModelError(
            "a call that is repeated when it is slow makes no other call; put compaction around"
            " with_hedge"
        )

    async def begin_second(self) -> None:
        await trio.lowlevel.checkpoint()
