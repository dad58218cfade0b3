"""Wrapper: uses the next model of a list when one fails.

It moves on by the kind of failure: a request that is wrong is wrong for every model.
"""

from collections.abc import Collection, Sequence
from typing import Final

from msgspec.structs import replace

from orchestrator.agents.errors import Failure, ModelError
from orchestrator.agents.messages import AssistantMessage, Usage
from orchestrator.agents.models.cost import cost_at, with_cost
from orchestrator.agents.models.model import (
    Attempts,
    Model,
    ModelRequest,
    Price,
    Switched,
    known_price,
    known_settings_problem,
    knows_custom_tools,
)
from orchestrator.agents.models.settings import ModelSettings
from orchestrator.agents.models.usage_bound import max_input_tokens
from orchestrator.agents.models.wrappers.attempts import count_attempts
from orchestrator.agents.models.wrappers.retry import PartialAnswerTracker

FALLBACK_FAILURES: Final = frozenset(Failure) - {
    Failure.BAD_REQUEST,
    Failure.REFUSED,
    Failure.FILTERED,
    Failure.CONTEXT_TOO_LONG,
}


def with_fallback(model: Model, *others: Model, on: Collection[Failure] | None = None) -> Model:
    """Return a model that tries these in order until one answers.

    Args:
        model: the first.
        others: the next ones, in order.
        on: the failures after which it moves on, instead of `FALLBACK_FAILURES`.
    """
    return _FallbackModel((model, *others), FALLBACK_FAILURES if on is None else frozenset(on))


class _FallbackModel:
    def __init__(self, models: tuple[Model, ...], on: frozenset[Failure]) -> None:
        self.name = " | ".join(model.name for model in models)
        self._models = models
        self._on = on

    @property
    def price(self) -> Price | None:
        """The highest price of all, since any of them may answer."""
        prices = [known_price(model) for model in self._models]
        known = [price for price in prices if price is not None]
        if len(known) < len(prices):
            return None
        # Prices of long prompts are the highest, and any prompt may be long.
        every = [it for one in known for it in (one, *(row[1] for row in one.long_prompts))]
        return Price(
            input=max(price.input for price in every),
            output=max(price.output for price in every),
            cached=_highest(every, "cached"),
            cache_write=_highest(every, "cache_write"),
            cache_write_1h=_highest([it.with_cache_of_an_hour() for it in every], "cache_write"),
        )

    def bill(self, usage: Usage, answered_by: str = "") -> Usage:
        """Return the cost by the price of the model that answered; else by the highest."""
        for model in self._models:
            if answered_by == model.name:
                return with_cost(usage, model, answered_by)
        return cost_at(self.price, usage)

    def count_tokens(self, request: ModelRequest) -> int:
        """Return the highest count of all, since any of them may answer."""
        return max(max_input_tokens(model, request) for model in self._models)

    def settings_problem(self, settings: ModelSettings) -> str | None:
        """Return what one of them cannot do, since any of them may answer."""
        for model in self._models:
            if problem := known_settings_problem(model, settings):
                return problem
        return None

    @property
    def has_custom_tools(self) -> bool:
        """Whether all of them have, since any of them may answer."""
        return all(map(knows_custom_tools, self._models))

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        return await count_attempts(request, self._ask)

    async def _ask(self, request: ModelRequest, attempts: Attempts) -> AssistantMessage:
        failures: list[tuple[str, ModelError]] = []
        *earlier, last = self._models
        for model, following in zip(earlier, self._models[1:], strict=True):
            tracker = PartialAnswerTracker(request)
            try:
                return _with_model_name(await model.answer(tracker.request), model)
            except ModelError as exc:
                failures.append((model.name, exc))
                if exc.kind not in self._on and len(failures) == 1:
                    raise
                if exc.kind not in self._on:
                    raise _chain_error(failures) from exc
                attempts.failed(exc, following.name)
                failure = tracker.failure_text(exc)
                request.tell(Switched(exc.kind, failure, following.name))
            request = await attempts.begin(request)
        try:
            return _with_model_name(await last.answer(request), last)
        except ModelError as exc:
            if not failures:
                raise
            failures.append((last.name, exc))
            raise _chain_error(failures) from exc


def _highest(prices: Sequence[Price], field: str) -> float | None:
    """Return the highest of one price, if any model has one that is not that of all input."""
    given = [getattr(price, field) for price in prices]
    if all(it is None for it in given):
        return None
    return max(price.input if it is None else it for it, price in zip(given, prices, strict=True))


def _with_model_name(answer: AssistantMessage, model: Model) -> AssistantMessage:
    # A wrapper of several models has set the name already.
    return answer if answer.model else replace(answer, model=model.name)


def _chain_error(failures: Sequence[tuple[str, ModelError]]) -> ModelError:
    """Return the error of a chain: all failures, and when a retry may heal one of them.

    It has the kind of the last call, because the charge for that call depends on the kind.
    """
    _, last = failures[-1]
    waits = [exc.retry_after for _, exc in failures if exc.retry_after is not None]
    listed = "; ".join(
        str(exc) if str(exc).startswith(name) else f"{name}: {exc}" for name, exc in failures
    )
    return ModelError(
        f"{len(failures)} models failed: {listed}",
        kind=last.kind,
        retry_after=min(waits, default=None),
        partial=last.partial,
        usage=last.usage,
        is_transient=any(exc.is_transient for _, exc in failures),
        at_most=last.at_most,
    )
