"""Wrapper: repeats a request after a transient failure, with exponential backoff.

A wait that would outlast the deadline around it is not begun: the failure is raised at once. Text
that was streamed before a failure is void. Each repeat is paid for before it is sent.
"""

import math
import random
from typing import Final

import trio
from msgspec.structs import replace

from orchestrator.agents.errors import DefinitionError, ModelError
from orchestrator.agents.messages import AssistantMessage
from orchestrator.agents.models.model import (
    Attempts,
    Compacted,
    Model,
    ModelEvent,
    ModelRequest,
    Queued,
    Retrying,
    Switched,
)
from orchestrator.agents.models.wrappers.attempts import count_attempts
from orchestrator.agents.models.wrappers.wrapper import ModelWrapper

LONGEST_RETRY_AFTER: Final = 120
"""A provider that asks for more seconds has failed: a fallback may use another model."""
RETRACTED: Final = " (its text so far is void)"


def with_retries(
    model: Model,
    *,
    attempts: int = 4,
    base_seconds: float = 0.5,
    max_seconds: float = 30,
    jitter: random.Random | None = None,
) -> Model:
    """Return a model that repeats requests, after a wait that doubles each time.

    Args:
        model: the model that is called.
        attempts: how often, the first time included.
        base_seconds: the longest first wait; each wait is drawn from zero up to its longest.
        max_seconds: where the doubling ends; what the provider asks for is added to it.
        jitter: the source of the draws.
    """
    if attempts < 1:
        raise DefinitionError(f"{model.name} must be asked at least once: {attempts=}")
    return _RetryingModel(
        model,
        attempts,
        base_seconds,
        max_seconds,
        jitter if jitter is not None else random.SystemRandom(),
    )


class PartialAnswerTracker:
    """Forwards the events of a model, and remembers whether it had begun to answer."""

    def __init__(self, request: ModelRequest) -> None:
        self._emit = request.tell
        self._has_begun = False
        self.request = replace(request, tell=self._on_event)

    def failure_text(self, error: ModelError) -> str:
        """Return the error as text, with a note if text was streamed that is void now."""
        void = self._has_begun or error.partial
        return f"{error}{RETRACTED if void else ''}"

    def _on_event(self, event: ModelEvent) -> None:
        # These events themselves void the text streamed before them.
        if not isinstance(event, Compacted | Queued):
            self._has_begun = not isinstance(event, Retrying | Switched)
        self._emit(event)


class _RetryingModel(ModelWrapper):
    def __init__(
        self,
        model: Model,
        attempts: int,
        base_seconds: float,
        max_seconds: float,
        jitter: random.Random,
    ) -> None:
        super().__init__(model)
        self._attempts = attempts
        self._base_seconds = base_seconds
        self._max_seconds = max_seconds
        self._jitter = jitter

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        return await count_attempts(request, self._ask)

    async def _ask(self, request: ModelRequest, attempts: Attempts) -> AssistantMessage:
        for failures in range(self._attempts - 1):
            tracker = PartialAnswerTracker(request)
            try:
                return await self._model.answer(tracker.request)
            except ModelError as exc:
                error = exc
            seconds = self._seconds(failures, error)
            # A task that is cancelled by now was not stopped by this failure.
            if not _is_cancelled() and not _is_worth_waiting(error, seconds):
                raise error
            attempts.failed(error)
            await trio.lowlevel.checkpoint_if_cancelled()
            request.tell(Retrying(error.kind, tracker.failure_text(error), seconds))
            await trio.sleep(seconds)
            request = await attempts.begin(request)
        return await self._model.answer(request)

    def _seconds(self, failures: int, error: ModelError) -> float:
        doubled = self._base_seconds * 2 ** min(failures, 32)
        longest = min(self._max_seconds, doubled)
        # On top of the wait that the provider asks for, since it asks all clients for the same
        # wait.
        return (error.retry_after or 0) + self._jitter.uniform(0, longest)


def _is_worth_waiting(error: ModelError, seconds: float) -> bool:
    """Return whether the same request may succeed after a wait that may be waited."""
    return (
        error.is_transient
        and (error.retry_after or 0) <= LONGEST_RETRY_AFTER
        and seconds < trio.current_effective_deadline() - trio.current_time()
    )


def _is_cancelled() -> bool:
    return trio.current_effective_deadline() == -math.inf
