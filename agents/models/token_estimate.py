"""Estimates of how many tokens a request has, from the length of its texts, images and files."""

from collections.abc import Iterator
from typing import Final

from agents.messages import AssistantMessage, Part, UserMessage
from agents.models.model import ModelRequest

CHARACTERS_PER_TOKEN: Final = 4
OUTPUT_ALLOWANCE: Final = 1_000
"""The tokens that are assumed for an answer before it is there."""
TOKENS_PER_IMAGE: Final = 1_500
"""About what a large image comes to; also assumed for a file that is only a URL."""
FILE_BYTES_PER_TOKEN: Final = 20
"""For files that are neither text nor image; much of a PDF is fonts and layout."""


def estimated_tokens(request: ModelRequest) -> int:
    """Return about how many tokens a call will use, its answer included."""
    characters = sum(map(len, texts_of(request)))
    characters += sum(map(part_length, parts_of(request)))
    return characters // CHARACTERS_PER_TOKEN + OUTPUT_ALLOWANCE


def texts_of(request: ModelRequest) -> Iterator[str]:
    """Yield all texts that are sent with a request."""
    yield request.instructions
    for message in request.transcript:
        yield message.text
        if isinstance(message, AssistantMessage):
            for call in message.calls:
                yield call.name
                yield str(call.arguments)
    for tool in request.tools:
        yield tool.name
        yield tool.description
        yield str(tool.parameters)
    yield str(request.output or "")


def parts_of(request: ModelRequest) -> Iterator[Part]:
    """Yield all images and files that are sent with a request."""
    for message in request.transcript:
        if isinstance(message, UserMessage):
            yield from message.parts


def part_length(part: Part) -> int:
    """Return how many characters of text would have as many tokens."""
    if part.is_text and part.data:
        return len(part.data)
    tokens = TOKENS_PER_IMAGE
    if not part.is_image:
        tokens = max(tokens, len(part.data) // FILE_BYTES_PER_TOKEN)
    return tokens * CHARACTERS_PER_TOKEN
