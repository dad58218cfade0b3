"""The calls of providers that one answer takes, where nothing limits them: they are added up."""

from collections.abc import Awaitable, Callable
from typing import Protocol

import trio
from msgspec.structs import replace

from orchestrator.agents.errors import ModelError
from orchestrator.agents.messages import AssistantMessage, Usage
from orchestrator.agents.models.model import Attempts, Model, ModelRequest

__all__ = ["Attempts", "AttemptsOf", "count_attempts"]


async def count_attempts(
    request: ModelRequest, ask: Callable[[ModelRequest, Attempts], Awaitable[AssistantMessage]]
) -> AssistantMessage:
    """Ask, and see that every attempt is paid for, or is at least part of the usage.

    A request that brings its attempts is paid for call by call. Any other gets the usage of calls
    that gave no answer added to that of its answer, or of its failure.
    """
    if request.attempts is not None:
        return await ask(request, request.attempts)
    attempts = _UnlimitedAttempts()
    try:
        answer = await ask(replace(request, attempts=attempts), attempts)
    except ModelError as exc:
        exc.usage = attempts.used + (exc.usage or Usage(calls=1))
        raise
    if not attempts.used.calls:
        return answer
    return replace(answer, usage=answer.usage + attempts.used)


class SecondCall(Protocol):
    """A second call of a request, which is paid for beside the first."""

    def lose(self, error: ModelError | None, *, sent: bool = True) -> None:
        """Book the call that did not give the answer; None if it was cancelled."""
        ...


class AttemptsOf:
    """The calls of another model than the one that got the request, by its own price.

    A wrapper that asks another model hands it these: what that model retries is its own, too.
    """

    def __init__(self, model: Model, attempts: Attempts) -> None:
        self._model = model
        self._attempts = attempts
        self.failed = attempts.failed
        self.helped = attempts.helped
        self.begin_second = attempts.begin_second

    async def begin(self, request: ModelRequest, model: Model | None = None) -> ModelRequest:
        return await self._attempts.begin(request, model or self._model)


class _UnlimitedAttempts:
    """Adds up what calls without an answer have used."""

    def __init__(self) -> None:
        self.used = Usage()

    def failed(self, error: ModelError, then: str = "") -> None:
        del then
        self.used += error.usage or Usage(calls=1)

    def helped(self, usage: Usage) -> None:
        self.used += usage

    async def begin(self, request: ModelRequest, model: Model | None = None) -> ModelRequest:
        del model
        await trio.lowlevel.checkpoint()
        return request

    async def begin_second(self) -> "_UnlimitedAttempts":
        await trio.lowlevel.checkpoint()
        return self

    def lose(self, error: ModelError | None, *, sent: bool = True) -> None:
        if sent:
            self.used += (None if error is None else error.usage) or Usage(calls=1)
