"""One model call while it is under way: what was said, and what that comes to if it is broken off.

A piece of text costs an append. What it adds up to is computed when a call ends without an answer.
"""

import attrs

from agents import (
    CallDelta,
    Model,
    ModelEvent,
    ModelRequest,
    Queued,
    ReasoningDelta,
    Retrying,
    Switched,
    TextDelta,
    Usage,
)
from agents.models.token_estimate import estimated_usage

ONE_CALL = Usage(calls=1)


class ModelCall:
    """Listens to the events of one call, and passes them on."""

    __slots__ = (
        "_attempts",
        "_emit",
        "_is_queued",
        "_model",
        "_texts",
        "_written",
        "request",
    )

    def __init__(self, model: Model, request: ModelRequest) -> None:
        self._model = model
        self._emit = request.tell
        self._texts: list[str] = []
        self._written = 0
        """How many characters came, those of failed attempts included."""
        self._attempts = 1
        self._is_queued = False
        self.request = attrs.evolve(request, tell=self._on_event)

    def _on_event(self, event: ModelEvent) -> None:
        match event:
            case TextDelta(text):
                self._texts.append(text)
                self._written += len(text)
            case ReasoningDelta(text) | CallDelta(arguments=text):
                self._written += len(text)
            case Queued(waiting):
                self._is_queued = waiting
            case Retrying() | Switched():
                # What was said before is void, and was paid for all the same.
                self._texts.clear()
                self._attempts += 1
            case _:
                pass
        self._emit(event)

    @property
    def text(self) -> str:
        """What the model has said."""
        return "".join(self._texts)

    def usage(self) -> Usage:
        """Return what the call has used so far, estimated; nothing if it was never sent."""
        # The attempt that waits for its turn was not sent yet.
        attempts = self._attempts - self._is_queued
        if not attempts:
            return Usage()
        return estimated_usage(
            self._model, self.request, attempts=attempts, written=self._written
        )

    def usage_of_failure(self, reported: Usage | None) -> Usage:
        """Return what a failed call has used, estimated if its text came without numbers.

        Args:
            reported: what the provider says.
        """
        usage = reported or ONE_CALL
        if usage.tokens or not self._written:
            return usage
        return attrs.evolve(self.usage(), calls=max(1, usage.calls))
