"""What a call may use at most, said before it is made.

Whoever reserves this first, and gives back afterwards what was not used, is not surprised by
many calls at once. A quote is rather too large: nothing in it is thought to be cached.
"""

from typing import Final

from agents.messages import Usage
from agents.models.model import Model, ModelRequest, known_count, known_price
from agents.models.token_estimate import part_length, parts_of, texts_of

MIN_BYTES_PER_TOKEN: Final = 3
"""English has four and more, other scripts have about three. Only rows of digits and the like
have fewer, and they are seldom most of what is read."""
TOKENS_PER_MESSAGE: Final = 10
"""What tells a model who speaks, or that here is a tool."""


def quote(model: Model, request: ModelRequest, *, answer_tokens: int) -> Usage:
    """Return what one call may use at most.

    It is of one call. Whoever asks again, asks another model or has a summary written first
    uses that as well, and says so afterwards.

    Args:
        model: who would be asked.
        request: what it would be asked.
        answer_tokens: how long the answer may be, usually `request.max_output`.
    """
    read = max_input_tokens(model, request)
    price = known_price(model)
    return Usage(
        calls=1,
        input_tokens=read,
        output_tokens=answer_tokens,
        cost=0
        if price is None
        else price.cost_of(input_tokens=read, output_tokens=answer_tokens),
        unpriced=int(price is None),
    )


def max_input_tokens(model: Model, request: ModelRequest) -> int:
    """Return how many tokens a model will read at most, by its own count if it has one."""
    counted = known_count(model, request)
    return max_request_tokens(request) if counted is None else counted


def max_request_tokens(request: ModelRequest) -> int:
    """Return how many tokens a model may read at most, whoever counts them."""
    # Also what stands for no character is sent as something.
    length = sum(
        len(text.encode(errors="surrogatepass")) for text in texts_of(request)
    ) + sum(map(part_length, parts_of(request)))
    frames = len(request.transcript) + len(request.tools)
    return length // MIN_BYTES_PER_TOKEN + frames * TOKENS_PER_MESSAGE
