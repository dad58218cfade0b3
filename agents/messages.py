"""What an agent hears and says: the messages of a transcript.

A transcript is a sequence of these values, oldest first. It is only ever added to.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NewType, TypeAlias

import attrs

from agents.errors import DefinitionError

CallId = NewType("CallId", str)


@attrs.frozen
class Usage:
    """What model calls have cost. Totals are sums of these."""

    calls: int = 0
    input_tokens: int = 0
    """All that the model read, what it had cached included."""
    output_tokens: int = 0
    """All that the model wrote, what it thought included."""
    cost: int = 0
    """Micro-dollars: a sum of integers does not drift."""
    unpriced: int = 0
    """Calls whose price nobody knows; with any of them `cost` is a lower bound."""
    cached_tokens: int = 0
    """The part of the input that the provider had cached."""
    reasoning_tokens: int = 0
    """The part of the output that nobody is shown."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost + other.cost,
            self.unpriced + other.unpriced,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


@attrs.frozen
class ToolCall:
    """A model's wish to have a tool run."""

    name: str
    arguments: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    id: CallId = attrs.field(default=CallId(""), kw_only=True)
    """Unique within a transcript; a script may leave it to the model."""


@attrs.frozen
class UserMessage:
    """Something the agent is told: a goal, a question, news of a child."""

    text: str


@attrs.frozen
class AssistantMessage:
    """One answer of the model: text, or calls it waits for."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    model: str = ""
    """Who answered."""


@attrs.frozen
class ToolMessage:
    """The answer to one call."""

    call: CallId
    text: str
    failed: bool = False
    """The tool said no; the text says why, and the model goes on."""


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage
Transcript: TypeAlias = Sequence[Message]


def well_formed(text: str) -> str:
    """Return a text that can be written down: what stands for no character is replaced.

    Names of files and arguments of programs may hold such things.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DefinitionError(f"{text!r} must be text")
    return text if text.isascii() else text.encode(errors="replace").decode()


BROKEN_OFF: Final = (
    "broken off: everything stopped during this call, and its effect is unknown"
)


def broken_off(call: ToolCall) -> ToolMessage:
    """Return the answer to a call that nobody is left to answer."""
    return ToolMessage(call.id, BROKEN_OFF, failed=True)


def mended(transcript: Transcript) -> list[Message]:
    """Return a transcript in which every call of an earlier turn has an answer.

    A turn may end in the midst of a call, and no provider takes a transcript with open ones.
    """
    whole: list[Message] = []
    for message in transcript:
        if isinstance(message, UserMessage):
            whole += map(broken_off, unanswered_calls(whole))
        whole.append(message)
    return whole


def unanswered_calls(transcript: Transcript) -> list[ToolCall]:
    """Return the calls of the last answer that no tool message answers yet."""
    answered: set[CallId] = set()
    for message in reversed(transcript):
        match message:
            case ToolMessage():
                answered.add(message.call)
            case AssistantMessage():
                return [call for call in message.calls if call.id not in answered]
            case UserMessage():
                return []
    return []
