"""The port `Model`: the request to a model, its answer, and the events of the answer."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec
from msgspec.structs import force_setattr, replace

from orchestrator.agents.errors import Failure, ModelError
from orchestrator.agents.messages import AssistantMessage, Message, Usage
from orchestrator.agents.models.settings import NO_SETTINGS, ModelSettings
from orchestrator.agents.tools.tool import Tool
from orchestrator.agents.transcript import Transcript, as_transcript

if TYPE_CHECKING:
    from orchestrator.agents.models.call_order import Call, Caller
    from orchestrator.agents.models.wrappers.attempts import SecondCall


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of the text of an answer."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of the reasoning before an answer."""

    text: str


class CallDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of a call: its tool's name at first, then its arguments."""

    index: int
    name: str = ""
    arguments: str = ""


class Retrying(msgspec.Struct, frozen=True, gc=False):
    """The provider failed, and the request will be retried."""

    kind: Failure
    error: str
    seconds: float
    """The wait before that."""


class Switched(msgspec.Struct, frozen=True, gc=False):
    """The provider failed, and another model gets the request."""

    kind: Failure
    error: str
    model: str
    """The name of the other model."""


class Compacted(msgspec.Struct, frozen=True, gc=False):
    """The request was too long for the model's window, and a shorter one was sent."""

    messages: int
    """How many were shortened, cut or summarized. The transcript itself is unchanged."""
    characters: int
    """By how many characters the request is shorter."""
    summarized: bool
    """Whether a summary stands for the older messages."""


class Queued(msgspec.Struct, frozen=True, gc=False):
    """The call waits for a rate limiter or a budget, or no longer does."""

    waiting: bool


Delta: TypeAlias = TextDelta | ReasoningDelta | CallDelta
"""A piece of an answer: the response has begun."""
ModelEvent: TypeAlias = Delta | Retrying | Switched | Compacted | Queued


def ignore_event(_: ModelEvent) -> None:
    """Drop an event."""


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a model for one answer."""

    instructions: str
    transcript: Transcript
    """A value: it neither grows during the call, nor can a model change it."""
    tools: Sequence[Tool]
    output: Mapping[str, Any] | None = None
    """The JSON schema of the final answer, if it must be JSON."""
    max_output: int | None = None
    """How many tokens the answer may have at most; None leaves it to the model."""
    settings: ModelSettings = NO_SETTINGS
    """How it is to answer. The limit of its length is `max_output`, which a budget may lower."""
    tell: Callable[[ModelEvent], None] = ignore_event
    """Emits an event while the answer is made. It returns at once: a subscriber slows no model."""
    attempts: "Attempts | None" = None
    """Pays for every further call of a provider; None if nothing limits them."""
    caller: "Caller | None" = None
    """Describes the call to the queue of its provider."""
    call: "Call | None" = None
    """The call, once a queue knows it."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            instructions: str,
            transcript: Iterable[Message],
            tools: Sequence[Tool],
            output: Mapping[str, Any] | None = None,
            max_output: int | None = None,
            settings: ModelSettings = NO_SETTINGS,
            tell: Callable[[ModelEvent], None] = ignore_event,
            attempts: "Attempts | None" = None,
            caller: "Caller | None" = None,
            call: "Call | None" = None,
        ) -> None:
            """Make a request; the transcript may be any messages."""

    def __post_init__(self) -> None:
        if type(self.transcript) is not Transcript:
            force_setattr(self, "transcript", as_transcript(self.transcript))


class Attempts(Protocol):
    """Pays for the calls of providers that one answer takes.

    The caller of a model has paid for one call. A wrapper that makes another one says how the last
    one ended, as soon as it has ended, and then begins the next.
    """

    def failed(self, error: ModelError, then: str = "") -> None:
        """Book a call that failed, and after which another one is made, of the model `then`."""
        ...

    def helped(self, usage: Usage) -> None:
        """Book a call that succeeded and is not the answer, such as a summary."""
        ...

    async def begin(self, request: ModelRequest, model: "Model | None" = None) -> ModelRequest:
        """Wait until another call can be paid for, and return its request.

        Its answer may have to be shorter than the first one. The new call replaces a call that was
        paid for and not made. By default the model that got the first request is asked.
        """
        ...

    async def begin_second(self) -> "SecondCall | None":
        """Pay for a second call of the same request beside the one under way, if that is possible
        now.
        """
        ...


class Model(Protocol):
    """Gives one answer to one request. It holds no conversation of its own.

    A model may also have `price`, `count_tokens` (the most tokens that a request has),
    `settings_problem` (the settings that it cannot do) and `has_custom_tools`; see `known_price`
    and the functions below it.
    """

    @property
    def name(self) -> str:
        """The name in reports and prices, such as `openai:gpt-5-mini`."""
        ...

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        """Answer, or raise `ModelError`. Every call in the answer has its own id."""
        ...


class Price(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Dollars per million tokens, which is micro-dollars per token."""

    input: float = 0.0
    output: float = 0.0
    cached: float | None = None
    """Of input tokens that the provider had cached; None is the price of all input."""
    cache_write: float | None = None
    """Of input tokens that the provider writes to its cache; None is the price of all input."""
    cache_write_1h: float | None = None
    """The same, for a cache that lasts for an hour; None is `cache_write`."""
    long_prompts: "tuple[tuple[int, Price], ...]" = ()
    """Prices of requests above a number of input tokens, the smallest number first."""

    def cost_of(
        self,
        *,
        input_tokens: int,
        output_tokens: int,
        cached_tokens: int = 0,
        cache_written_tokens: int = 0,
    ) -> int:
        """Return micro-dollars: exact, and rounded once, half to even."""
        price = self.for_prompt(input_tokens)
        cached = price.input if price.cached is None else price.cached
        write = price.input if price.cache_write is None else price.cache_write
        # Some providers report more cached tokens than input tokens.
        from_cache = min(cached_tokens, input_tokens)
        to_cache = min(cache_written_tokens, input_tokens - from_cache)
        cost = (
            (input_tokens - from_cache - to_cache) * price.input
            + from_cache * cached
            + to_cache * write
            + output_tokens * price.output
        )
        # Prices have few decimals: six places are the exact sum, without a float's noise.
        return round(round(cost, 6))

    @property
    def has_write_price(self) -> bool:
        """Writing to the cache may cost more than reading without one."""
        return self.cache_write is not None or bool(self.long_prompts)

    def for_prompt(self, input_tokens: int) -> "Price":
        """Return the price of a request with this number of input tokens."""
        price = self
        for above, longer in self.long_prompts:
            if input_tokens > above:
                price = longer
        return price

    def with_cache_of_an_hour(self) -> "Price":
        """Return the price of calls that write to a cache that lasts for an hour."""
        if self.cache_write_1h is None:
            return self
        longer = tuple((above, price.with_cache_of_an_hour()) for above, price in self.long_prompts)
        return replace(self, cache_write=self.cache_write_1h, long_prompts=longer)

    def highest_cost(
        self, *, input_tokens: int, output_tokens: int, writes_cache: bool = False
    ) -> int:
        """Return micro-dollars, however many of the tokens are cached."""
        most = max(
            self.cost_of(
                input_tokens=input_tokens, output_tokens=output_tokens, cached_tokens=cached
            )
            for cached in (0, input_tokens)
        )
        if not writes_cache:
            return most
        # Most providers charge more for tokens that they write to their cache.
        written = self.cost_of(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cache_written_tokens=input_tokens,
        )
        return max(most, written)

    def applied_to(self, usage: Usage) -> Usage:
        """Return the usage of a call with its cost at this price."""
        cost = self.cost_of(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            cache_written_tokens=usage.cache_written_tokens,
        )
        if usage.cached_tokens or usage.cache_written_tokens:
            uncached = self.cost_of(
                input_tokens=usage.input_tokens, output_tokens=usage.output_tokens
            )
            return replace(
                usage, micro_usd=cost, unpriced=0, saved_micro_usd=uncached - cost or msgspec.UNSET
            )
        if cost == usage.micro_usd and not usage.unpriced:
            return usage
        return replace(usage, micro_usd=cost, unpriced=0)


def known_settings_problem(model: Model, settings: ModelSettings) -> str | None:
    """Return what of these settings a model cannot do, if it knows that."""
    check: Callable[[ModelSettings], str | None] | None
    check = getattr(model, "settings_problem", None)
    return None if check is None else check(settings)


def knows_custom_tools(model: Model) -> bool:
    """Return whether a model keeps to the grammars of tools that take one text."""
    return bool(getattr(model, "has_custom_tools", False))


def known_price(model: Model) -> Price | None:
    """Return the price of a model, if it knows one."""
    # Not by `isinstance`: with a protocol it is slow, and this is every call.
    price: Price | None = getattr(model, "price", None)
    return price


def known_count(model: Model, request: ModelRequest) -> int | None:
    """Return the tokens of a request by the model's own count, if it has one."""
    count: Callable[[ModelRequest], int | None] | None
    count = getattr(model, "count_tokens", None)
    return None if count is None else count(request)
