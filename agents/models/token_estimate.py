"""Estimates of how many tokens a request has, from the length of its texts, images and files."""

from collections.abc import Iterator
from typing import Final

from orchestrator.agents.messages import AssistantMessage, Message, Part, Usage
from orchestrator.agents.models.model import Model, ModelRequest, known_count, known_price

CHARACTERS_PER_TOKEN: Final = 4
SMALLEST_WINDOW: Final = 2_000
"""In fewer tokens there is no room for an answer, instructions and a message."""
OUTPUT_ALLOWANCE: Final = 1_000
"""The tokens that are assumed for an answer before it is there."""
TOKENS_PER_IMAGE: Final = 1_500
"""The approximate tokens of a large image; also assumed for a file that is only a URL."""
FILE_BYTES_PER_TOKEN: Final = 20
"""For files that are neither text nor image; much of a PDF is fonts and layout."""


def usable_tokens(window: int) -> int:
    """Return how many tokens of a window a request may have: the count is an estimate."""
    return window * 4 // 5


def estimated_tokens(request: ModelRequest) -> int:
    """Return about how many tokens a call will use, its answer included."""
    return estimated_input(request) + OUTPUT_ALLOWANCE


def estimated_input(request: ModelRequest) -> int:
    """Return about how many tokens a model reads."""
    characters = sum(map(len, texts_beside_messages(request)))
    characters += request.transcript.total(message_length)
    return characters // CHARACTERS_PER_TOKEN


def estimated_usage(model: Model, request: ModelRequest, *, written: int) -> Usage:
    """Return the estimated usage of a call that no provider reports, after `written` characters."""
    counted = known_count(model, request)
    read = estimated_input(request) if counted is None else counted
    wrote = -(-written // CHARACTERS_PER_TOKEN)
    price = known_price(model)
    return Usage(
        calls=1,
        input_tokens=read,
        output_tokens=wrote,
        micro_usd=0 if price is None else price.cost_of(input_tokens=read, output_tokens=wrote),
        unpriced=int(price is None),
        estimated=1,
    )


def message_length(message: Message) -> int:
    """Return how many characters a message is counted as."""
    return sum(map(len, texts_of(message))) + parts_length(message)


def texts_of(message: Message) -> Iterator[str]:
    """Yield all texts of a message that are sent."""
    yield message.text
    if isinstance(message, AssistantMessage):
        for call in message.calls:
            yield call.name
            yield str(call.arguments)
        for block in message.reasoning:
            yield str(block.data)


def texts_beside_messages(request: ModelRequest) -> Iterator[str]:
    """Yield all texts that are sent with a request, without those of its messages."""
    yield request.instructions
    for tool in request.tools:
        yield tool.name
        yield tool.description
        yield str(tool.parameters)
    yield str(request.output or "")


def parts_length(message: Message) -> int:
    """Return how many characters of text would have as many tokens as the parts of a message."""
    if isinstance(message, AssistantMessage):
        return 0
    return sum(map(_part_length, message.parts))


def _part_length(part: Part) -> int:
    if part.is_text and part.data:
        return len(part.data)
    tokens = TOKENS_PER_IMAGE
    if not part.is_image:
        tokens = max(tokens, len(part.data) // FILE_BYTES_PER_TOKEN)
    return tokens * CHARACTERS_PER_TOKEN
