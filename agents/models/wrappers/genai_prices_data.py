"""Prices of the package `genai-prices`: data that others keep, read offline.

It comes with the extras of the providers. Where it is not installed, no price is known.
"""

import datetime as dt
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from orchestrator.agents.models.model import Price

# Our names of services, and its names for them.
SERVICES: Final = {
    "openai": "openai",
    "anthropic": "anthropic",
    "gemini": "google",
    "openrouter": "openrouter",
    "groq": "groq",
    "mistral": "mistral",
    "deepseek": "deepseek",
    "xai": "x-ai",
    "together": "together",
    "azure": "azure",
    "bedrock": "aws",
    "vertex": "google",
    "vertex-openai": "google",
}


def source() -> str:
    """Return where the prices come from."""
    try:
        return f"genai-prices {version('genai-prices')}"
    except PackageNotFoundError:
        return "nowhere: genai-prices is not installed"


def known_models(provider: str) -> int:
    """Return how many models of a provider have a price."""
    service = SERVICES.get(provider.removesuffix("-responses"))
    if service is None or (snapshot := _snapshot()) is None:
        return 0
    return sum(len(it.models) for it in snapshot.providers if it.id == service)


def look_up(name: str) -> Price | None:
    """Return the price of a model by its name, or None."""
    provider, _, model = name.partition(":")
    service = SERVICES.get(provider)
    if not model or service is None or (snapshot := _snapshot()) is None:
        return None
    try:
        # That is how Google's own models are called there.
        model = model.removeprefix("google/")
        _, found = snapshot.find_provider_model(model, None, service, None)
    except LookupError:
        return None
    # Some prices have a first day, or a time of day.
    return _price(found.get_prices(dt.datetime.now(dt.UTC)))


@cache
def _snapshot() -> Any:
    try:
        # Imported late: with pydantic, it takes as long as an HTTP client.
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return None
    return get_snapshot()


def _price(of: Any) -> Price | None:
    if of.input_mtok is None or of.output_mtok is None:
        return None
    fields = {
        "input": of.input_mtok,
        "output": of.output_mtok,
        "cached": of.cache_read_mtok,
        "cache_write": of.cache_write_mtok,
        "cache_write_1h": of.cache_write_1h_mtok,
    }
    starts = sorted({tier.start for it in fields.values() for tier in _tiers(it)})
    prices = [
        Price(**{name: _at(it, start) for name, it in fields.items()}) for start in (0, *starts)
    ]
    base, *longer = prices
    if not longer:
        return base
    return Price(
        input=base.input,
        output=base.output,
        cached=base.cached,
        cache_write=base.cache_write,
        cache_write_1h=base.cache_write_1h,
        long_prompts=tuple(zip(starts, longer, strict=True)),
    )


def _tiers(price: Any) -> Any:
    return getattr(price, "tiers", ())


def _at(price: Any, start: int) -> Any:
    """Return a price of requests above a number of tokens."""
    if price is None:
        return None
    value = getattr(price, "base", price)
    for tier in _tiers(price):
        if tier.start <= start:
            value = tier.price
    return float(value)
