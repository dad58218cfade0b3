"""An upper bound of the usage of a model call, known before the call.

A budget reserves the bound and releases the unused part afterwards, so concurrent calls cannot
overdraw it. The bound is generous: it assumes that the provider caches nothing.
"""

from typing import Final

from orchestrator.agents.messages import Message, Usage
from orchestrator.agents.models.model import Model, ModelRequest, Price, known_count, known_price
from orchestrator.agents.models.token_estimate import parts_length, texts_beside_messages, texts_of

MIN_BYTES_PER_TOKEN: Final = 3
"""English has four and more, other scripts about three. Only rows of digits and the like have
fewer, and they are seldom most of a request."""
TOKENS_PER_MESSAGE: Final = 10
"""The tokens that mark the role of a message, or a tool."""


def _may_be_marked(request: ModelRequest) -> bool:
    # Imported late: only some prices have a price of writing to a cache.
    from orchestrator.agents.models.prompt_prefix import may_be_marked

    return may_be_marked(request)


def quote(model: Model, request: ModelRequest, *, answer_tokens: int) -> Usage:
    """Return what one call may use at most.

    Retries, fallbacks and summaries are calls of their own: each is paid for before it is sent.

    Args:
        model: the model that would be called.
        request: what it would be asked.
        answer_tokens: how long the answer may be, usually `request.max_output`.
    """
    read = max_input_tokens(model, request)
    price = known_price(model)
    return Usage(
        calls=1,
        input_tokens=read,
        output_tokens=answer_tokens,
        micro_usd=0
        if price is None
        else _priced_for(request, price).highest_cost(
            input_tokens=read,
            output_tokens=answer_tokens,
            writes_cache=price.has_write_price and _may_be_marked(request),
        ),
        unpriced=int(price is None),
    )


def _priced_for(request: ModelRequest, price: Price) -> Price:
    hour = request.settings.prompt_caching == "1h"
    return price.with_cache_of_an_hour() if hour else price


def max_input_tokens(model: Model, request: ModelRequest) -> int:
    """Return how many tokens a model will read at most, by its own count if it has one."""
    counted = known_count(model, request)
    return max_request_tokens(request) if counted is None else counted


def max_request_tokens(request: ModelRequest) -> int:
    """Return how many tokens a request has at most, in any tokenizer."""
    length = sum(map(_bytes, texts_beside_messages(request)))
    length += request.transcript.total(_message_bytes)
    frames = len(request.transcript) + len(request.tools)
    return length // MIN_BYTES_PER_TOKEN + frames * TOKENS_PER_MESSAGE


def _message_bytes(message: Message) -> int:
    return sum(map(_bytes, texts_of(message))) + parts_length(message)


def _bytes(text: str) -> int:
    # A lone surrogate is sent as a replacement character.
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
