"""A provider whose prompt cache keeps the published rules, in virtual time.

It reads the requests of the real wire formats. A token is four characters of a prompt, in the
order in which the provider caches it: tools, instructions, messages.
"""

import json
from collections.abc import Iterator, Mapping
from os.path import commonprefix
from typing import Any

import attrs
import trio

from orchestrator.agents import AssistantMessage, ModelError, ModelRequest, Price, TextDelta, Usage
from orchestrator.agents.models.providers.anthropic import message_request
from orchestrator.agents.models.providers.openai_chat import completion_request
from orchestrator.agents.models.providers.openai_responses import response_request

CHARACTERS = 4


@attrs.frozen(kw_only=True)
class CacheRules:
    """The published rules of a provider's cache."""

    model: str
    protocol: str
    least: int
    """The minimum length of a prefix in tokens."""
    lifetime: float = 300
    """The seconds since the last use for which a prefix is kept."""
    step: int = 1
    """A read is a multiple of this number of tokens."""
    price: Price


ANTHROPIC = CacheRules(
    model="anthropic:claude-sonnet-5",
    protocol="messages",
    least=1_024,
    price=Price(input=3, output=15, cached=0.3, cache_write=3.75),
)
OPENAI = CacheRules(
    model="openai:gpt-5",
    protocol="chat",
    least=1_024,
    step=128,
    price=Price(input=1.25, output=10, cached=0.125),
)
RESPONSES = attrs.evolve(OPENAI, model="openai-responses:gpt-5", protocol="responses")
GEMINI = CacheRules(
    model="gemini:gemini-3.5-flash",
    protocol="chat",
    least=4_096,
    price=Price(input=0.5, output=3, cached=0.05),
)
ALL = (ANTHROPIC, OPENAI, RESPONSES, GEMINI)


class CachingProvider:
    """Answers every request with a few words, and bills it by the rules of a cache."""

    def __init__(self, rules: CacheRules, *, first_token: float = 1, seconds: float = 5) -> None:
        self.name = rules.model
        self.price = rules.price
        self.rules = rules
        self.asked_at: list[float] = []
        self.answered: list[Usage] = []
        self.fail_first = 0
        """How many of the first calls fail before their response begins."""
        self._first_token = first_token
        self._seconds = seconds
        self._cached: dict[str, float] = {}
        """Until when each prefix can be read: from the time at which a response begins."""

    @property
    def micro_usd(self) -> int:
        return sum(self.price.applied_to(usage).micro_usd for usage in self.answered)

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.asked_at.append(trio.current_time())
        usage, prefixes = self._billed(request)
        if len(self.asked_at) <= self.fail_first:
            await trio.sleep(self._first_token / 2)
            raise ModelError("broken", usage=Usage(), is_transient=False)
        await trio.sleep(self._first_token)
        for prefix in prefixes:
            self._cached[prefix] = trio.current_time() + self.rules.lifetime
        request.tell(TextDelta("so"))
        await trio.sleep(self._seconds - self._first_token)
        self.answered.append(usage)
        return AssistantMessage("so", (), usage, self.name)

    def _billed(self, request: ModelRequest) -> tuple[Usage, list[str]]:
        now = trio.current_time()
        pieces = [*prompt_pieces(wire_request(self.rules, request))]
        whole = "".join(text for text, _ in pieces)
        ends: list[str] = []
        if self.rules.protocol == "messages":
            start = ""
            for text, is_marked in pieces:
                start += text
                if is_marked:
                    ends.append(start)
        else:
            ends.append(whole)
        read = max((self._readable(end, now) for end in ends), default=0)
        written = 0
        if ends and len(ends[-1]) // CHARACTERS >= self.rules.least:
            written = len(ends[-1]) // CHARACTERS - read
        else:
            ends = []
        is_billed = self.rules.price.cache_write is not None
        usage = Usage(
            calls=1,
            input_tokens=len(whole) // CHARACTERS,
            output_tokens=1,
            unpriced=1,
            cached_tokens=read,
            cache_written_tokens=max(0, written) if is_billed else 0,
        )
        return usage, ends

    def _readable(self, prompt: str, now: float) -> int:
        """Return how many tokens of a prompt the cache has."""
        found = [0]
        for cached, expires in self._cached.items():
            if now >= expires:
                continue
            if self.rules.protocol == "messages":
                common = len(cached) if prompt == cached else 0
            else:
                common = len(commonprefix((cached, prompt)))  # noqa: RUF071 (these are texts)
            tokens = common // CHARACTERS // self.rules.step * self.rules.step
            found.append(tokens if tokens >= self.rules.least else 0)
        return max(found)


def wire_request(rules: CacheRules, request: ModelRequest) -> dict[str, Any]:
    """Return a request as its provider gets it."""
    model = rules.model.partition(":")[2]
    match rules.protocol:
        case "messages":
            return message_request(model, request, None)
        case "responses":
            return response_request(model, request, None)
        case _:
            return completion_request(model, request, None)


def prompt_pieces(body: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the texts of a prompt in the order of the cache, and whether a mark follows each."""
    for tool in body.get("tools", ()):
        yield from _piece(tool)
    system = body.get("system") or body.get("instructions") or ""
    for block in [{"text": system}] if isinstance(system, str) else system:
        yield from _piece(block)
    for message in body.get("messages") or body["input"]:
        yield message.get("role", ""), False
        # A call of a tool, or its result, has other fields beside or in place of a content.
        others = {key: it for key, it in message.items() if key not in {"role", "content"}}
        if others:
            yield json.dumps(others), False
        content = message.get("content") or ()
        for block in [{"text": content}] if isinstance(content, str) else content:
            yield from _piece(block)


def _piece(block: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    plain = {name: value for name, value in block.items() if name != "cache_control"}
    text = plain["text"] if "text" in plain else json.dumps(plain)
    yield text, "cache_control" in block
