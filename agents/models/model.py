"""The port behind which every model stands."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import attrs

from agents.errors import Failure
from agents.messages import AssistantMessage, Transcript
from agents.tools.tool import Tool


@attrs.frozen
class TextDelta:
    """A piece of the answer."""

    text: str


@attrs.frozen
class ReasoningDelta:
    """A piece of what the model thinks before it answers."""

    text: str


@attrs.frozen
class CallDelta:
    """A piece of a call: its tool's name at first, then its arguments."""

    index: int
    name: str = ""
    arguments: str = ""


@attrs.frozen
class Retrying:
    """The provider failed, and will be asked again."""

    kind: Failure
    error: str
    seconds: float
    """How long we wait before that."""


@attrs.frozen
class Switched:
    """The provider failed, and another model will be asked."""

    kind: Failure
    error: str
    model: str
    """Who is asked next."""


@attrs.frozen
class Compacted:
    """The request was too long for the model's window, and a shorter one is asked instead."""

    messages: int
    """How many were shortened or summarized; the transcript itself keeps them whole."""
    characters: int
    """By how many characters the request is shorter."""
    summarized: bool
    """Whether a summary stands for the older messages; else only tool results were shortened."""


@attrs.frozen
class Queued:
    """The call waits for its turn, or has come to it: for a limiter, or for a budget."""

    waiting: bool


ModelEvent: TypeAlias = (
    TextDelta | ReasoningDelta | CallDelta | Retrying | Switched | Compacted | Queued
)


def ignore_event(_: ModelEvent) -> None:
    """Take an event that nobody wants."""


@attrs.frozen(kw_only=True)
class ModelRequest:
    """All that a model is told for one answer."""

    instructions: str
    transcript: Transcript
    tools: Sequence[Tool]
    output: Mapping[str, Any] | None = None
    """The JSON schema of the final answer, if it must be JSON."""
    max_output: int | None = None
    """How many tokens the answer may have at most, where somebody counts them."""
    tell: Callable[[ModelEvent], None] = ignore_event
    """Hears what happens while the answer is made. It returns at once, so nobody slows a model."""


class Model(Protocol):
    """Gives one answer to one request. It keeps no conversation of its own."""

    @property
    def name(self) -> str:
        """How the model is called in reports, such as `openai:gpt-5-mini`."""
        ...

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        """Answer, or raise `ModelError`. Every call in the answer has its own id."""
        ...


@attrs.frozen(kw_only=True)
class Price:
    """Dollars per million tokens, which is micro-dollars per token."""

    input: float = 0.0
    output: float = 0.0
    cached: float | None = None
    """Of the input that the provider had cached; without it, that costs what the rest does."""

    def cost_of(
        self, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0
    ) -> int:
        """Return micro-dollars: exact, and rounded once, half to even."""
        cached = self.input if self.cached is None else self.cached
        # A part is never more than the whole, whatever a provider says of it.
        from_cache = min(cached_tokens, input_tokens)
        cost = (
            (input_tokens - from_cache) * self.input
            + from_cache * cached
            + output_tokens * self.output
        )
        # Prices have few decimals: six places are the exact sum, without a float's noise.
        return round(round(cost, 6))


@runtime_checkable
class HasPrice(Protocol):
    """A model may also know what it costs."""

    @property
    def price(self) -> Price | None:
        """What it costs; None if nobody knows."""
        ...


@runtime_checkable
class TokenCounter(Protocol):
    """A model may also know what it will read."""

    def count_tokens(self, request: ModelRequest) -> int | None:
        """Return how many tokens it will read, and never fewer; None if it cannot say."""
        ...


def known_price(model: Model) -> Price | None:
    """Return what a model says that it costs."""
    return model.price if isinstance(model, HasPrice) else None


def known_count(model: Model, request: ModelRequest) -> int | None:
    """Return what a model says that it will read."""
    return model.count_tokens(request) if isinstance(model, TokenCounter) else None
