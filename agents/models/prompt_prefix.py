"""The prefix of a request: instructions, tools and shared context, which a provider may cache.

Siblings have the same prefix, and their goals follow it. A provider caches a prefix only above a
minimum length, and its entry can be read once the first response begins.
"""

import re
from hashlib import sha256
from typing import Final
from zlib import crc32

import msgspec

from orchestrator.agents.messages import UserMessage
from orchestrator.agents.models.model import ModelRequest
from orchestrator.agents.models.token_estimate import CHARACTERS_PER_TOKEN, texts_beside_messages

LEAST_TOKENS: Final = 1_024
"""The minimum length of a cached prefix, for the models that are not named below."""
_MINIMUMS: Final = (
    (re.compile(r"gemini-2"), 2_048),
    (re.compile(r"gemini|opus-4[-.][567]|haiku-4[-.]5"), 4_096),
    (re.compile(r"haiku-3|3(?:[-.]5)?-haiku"), 2_048),
)
"""The minimum lengths that providers publish, the first match by name."""


def least_tokens(model: str) -> int:
    """Return the minimum length of a prefix that a model's provider caches."""
    return next((least for name, least in _MINIMUMS if name.search(model)), LEAST_TOKENS)


def shared_context(request: ModelRequest) -> str:
    """Return the context at the start of a request that siblings have too."""
    transcript = request.transcript
    first = transcript[0] if transcript else None
    return first.text[: first.shared] if isinstance(first, UserMessage) and first.shared else ""


def prefix_name(shared: str) -> str:
    """Return a short name of a shared context, for the order of calls that wait."""
    return f"{crc32(shared.encode(errors='replace')):08x}"


def is_long_enough(request: ModelRequest, shared: str, tokens: int) -> bool:
    """Return whether a prefix has about this number of tokens."""
    missing = tokens * CHARACTERS_PER_TOKEN - len(shared)
    for text in texts_beside_messages(request):
        if missing <= 0:
            break
        missing -= len(text)
    return missing <= 0


def may_be_marked(request: ModelRequest) -> bool:
    """Return whether a provider that needs marks may write the prefix of a request to its cache."""
    caching = request.settings.prompt_caching
    if caching is not None:
        return bool(caching)
    # A lone task with a single call would pay for a prefix that no other call reads.
    is_read = bool(request.tools) or request.caller is None or request.caller.has_siblings()
    return is_read and bool(shared_context(request))


def is_marked(request: ModelRequest, model: str) -> bool:
    """Return whether the prefix of a request is marked, where a provider needs marks.

    A mark raises the price of the prefix by a quarter once, and siblings read it for a tenth.
    """
    if not may_be_marked(request):
        return False
    return request.settings.prompt_caching is not None or is_long_enough(
        request, shared_context(request), least_tokens(model)
    )


def cache_key(request: ModelRequest) -> str | None:
    """Return the name of a prefix: OpenAI routes requests with the same name to one machine.

    None stands for a prefix that is too short.
    """
    shared = shared_context(request)
    if not is_long_enough(request, shared, LEAST_TOKENS):
        return None
    texts = [shared, *texts_beside_messages(request)]
    return sha256(msgspec.json.encode(texts)).hexdigest()[:32]
