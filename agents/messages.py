"""The messages of a transcript (`transcript.py`), their parts, tool calls, and usage."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NewType, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from orchestrator.agents.errors import DefinitionError, RefusedBy
from orchestrator.agents.logprobs import TokenLogprob
from orchestrator.agents.random_ids import draw_bits
from orchestrator.agents.type_checks import has_type
from orchestrator.lazy_pattern import lazy_pattern

CallId = NewType("CallId", str)
MessageId = NewType("MessageId", str)

_MEDIA_TYPE: Final = lazy_pattern(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")
_URL: Final = lazy_pattern(r"https?://[!-~]+")
_TEXTS: Final = frozenset({"application/json", "application/xml", "application/yaml"})


class Usage(msgspec.Struct, frozen=True, gc=False):
    """The usage of one model call, or the sum of several."""

    calls: int = 0
    input_tokens: int = 0
    """All that the model read, cached tokens included."""
    output_tokens: int = 0
    """All that the model wrote, reasoning included."""
    micro_usd: int = 0
    """The cost in millionths of a dollar: a sum of integers does not drift. `usd` has dollars."""
    unpriced: int = 0
    """Calls without a known price; with any of them `micro_usd` is a lower bound."""
    cached_tokens: int = 0
    """The part of the input that the provider had cached."""
    reasoning_tokens: int = 0
    """The part of the output that is reasoning."""
    estimated: int = 0
    """The number of calls that broke off before their provider reported the usage. If there are
    any, the tokens are estimates from the texts, and `micro_usd` is a lower bound."""
    cache_written_tokens: int = 0
    """The part of the input that the provider has written to its cache, where it says so."""
    saved_micro_usd: int | msgspec.UnsetType = msgspec.UNSET
    """The millionths of a dollar that the provider's cache has saved, if it was used; below zero,
    writing to it has cost more than reading from it has saved."""

    @property
    def usd(self) -> float:
        """The cost in dollars; `is_lower_bound` says whether that is all of it."""
        return self.micro_usd / 1_000_000

    @property
    def is_lower_bound(self) -> bool:
        """`micro_usd` is the part that is known, and more may have been spent."""
        return bool(self.unpriced or self.estimated)

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def tokens_text(self) -> str:
        """The number of tokens for people: an estimate is marked."""
        return f"{'~' if self.estimated else ''}{self.tokens:,}"

    @property
    def is_whole(self) -> bool:
        """All are whole numbers: a model of the user may say anything, also to give money back."""
        # Spelled out, which is faster than a loop: this is every answer.
        return (
            (type(self.calls) is int and self.calls >= 0)
            and (type(self.input_tokens) is int and self.input_tokens >= 0)
            and (type(self.output_tokens) is int and self.output_tokens >= 0)
            and (type(self.micro_usd) is int and self.micro_usd >= 0)
            and (type(self.unpriced) is int and self.unpriced >= 0)
            and (type(self.cached_tokens) is int and self.cached_tokens >= 0)
            and (type(self.reasoning_tokens) is int and self.reasoning_tokens >= 0)
            and (type(self.estimated) is int and self.estimated >= 0)
            and (type(self.cache_written_tokens) is int and self.cache_written_tokens >= 0)
            and (self.saved_micro_usd is msgspec.UNSET or type(self.saved_micro_usd) is int)
        )

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.micro_usd + other.micro_usd,
            self.unpriced + other.unpriced,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.estimated + other.estimated,
            self.cache_written_tokens + other.cache_written_tokens,
            (self.saved_micro_usd or 0) + (other.saved_micro_usd or 0) or msgspec.UNSET,
        )


class _CallId(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    id: CallId = CallId("")
    """Unique within a transcript; a script may leave it to the model."""


class ToolCall(_CallId, frozen=True, gc=False):
    """A call of a tool by a model."""

    name: str
    arguments: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])


def well_formed(text: str) -> str:
    """Return a text that UTF-8 can encode: lone surrogates are replaced.

    File names and arguments of programs may contain them.
    """
    if not has_type(text, str):
        raise DefinitionError(f"{text!r} must be text")
    return text if text.isascii() else text.encode(errors="replace").decode()


class _PartContent(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    data: bytes = b""
    url: str = ""
    """The provider fetches it; this process never does."""
    name: str = ""
    """The file name that the model reads."""


class Part(_PartContent, frozen=True, gc=False):
    """An image or a file that comes with a message: its bytes, or where it can be fetched."""

    media_type: str
    """Such as `image/png`."""

    def __post_init__(self) -> None:
        name = well_formed(self.name)
        if name is not self.name:
            force_setattr(self, "name", name)
        if not _fits(_MEDIA_TYPE, self.media_type):
            raise DefinitionError(
                f"a part has the media type {self.media_type!r}; it must be one such as"
                " 'image/png', in small letters and without parameters"
            )
        if not has_type(self.data, bytes):
            raise DefinitionError(
                f"the data of {self.label} must be bytes, not {type(self.data).__name__}"
            )
        if bool(self.data) == bool(self.url):
            raise DefinitionError(
                f"{self.label} must have either data, which cannot be empty, or a url"
            )
        if self.url and not _fits(_URL, self.url):
            raise DefinitionError(
                f"the url of {self.label} is {self.url!r}; it must begin with https:// or"
                " http:// and be ASCII without blanks; bytes are given as data"
            )

    def __repr__(self) -> str:
        data = f"<{len(self.data)} bytes>"
        shown = f"media_type={self.media_type!r}, data={data}, url={self.url!r}, name={self.name!r}"
        return f"Part({shown})"

    @property
    def label(self) -> str:
        """Its name in messages."""
        name = f" {self.name!r}" if self.name else ""
        return f"the file{name} ({self.media_type})"

    @property
    def is_image(self) -> bool:
        return self.media_type.startswith("image/")

    @property
    def is_text(self) -> bool:
        return self.media_type.startswith("text/") or self.media_type in _TEXTS


def _fits(pattern: re.Pattern[str], text: object) -> bool:
    return isinstance(text, str) and pattern.fullmatch(text) is not None


def new_message_id() -> MessageId:
    """Return a new message id.

    The id is independent of the content: it is no part of equality, it is not sent to providers,
    and it stays when a message is redacted or stored.
    """
    # Not by a format, which takes twice as long.
    return MessageId("m_" + draw_bits(40).to_bytes(5).hex())


_UNSHOWN: Final = frozenset({"id", "reasoning", "logprobs", "shared"})
UNCOMPARED_FIELDS: Final = _UNSHOWN | {"refused_by", "evidence"}
"""The fields of messages that are no part of their equality."""


class _Identified(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The fields and the equality that all messages share."""

    id: MessageId = msgspec.field(default_factory=new_message_id)

    def _values(self, without: frozenset[str]) -> dict[str, object]:
        names = self.__struct_fields__
        return {name: getattr(self, name) for name in names if name not in without}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return self._values(UNCOMPARED_FIELDS) == other._values(UNCOMPARED_FIELDS)

    def __hash__(self) -> int:
        return hash(tuple(self._values(UNCOMPARED_FIELDS).values()))

    def __repr__(self) -> str:
        shown = [f"{name}={value!r}" for name, value in self._values(_UNSHOWN).items()]
        return f"{type(self).__name__}({', '.join(shown)})"


class _UserOptions(_Identified, frozen=True, gc=False, kw_only=True):
    aside: bool = False
    """It came in the middle of a turn, and does not begin one."""
    shared: int = 0
    """How many characters at the start of its text siblings have in common, as their context."""


class UserMessage(_UserOptions, frozen=True, gc=False):
    """Input of an agent: a goal, a question, a notice about a child."""

    text: str
    parts: tuple[Part, ...] = ()
    """Images and files that belong to the text."""

    def __post_init__(self) -> None:
        if self.parts == ():
            return
        # Any other value could be written to a journal, and not be read again.
        if not has_type(self.parts, tuple) or not all(has_type(part, Part) for part in self.parts):
            raise DefinitionError(
                f"the parts of a message must be a tuple of Part, not {self.parts!r}"
            )


class ReasoningBlock(msgspec.Struct, frozen=True, gc=False):
    """The reasoning before the calls, which the provider wants back with their results."""

    model: str
    """The name of the model: no other one is sent it."""
    data: Mapping[str, Any]
    """In the words of the protocol. Empty if a secret was in it: then it cannot be sent back."""
    position: int = 0
    """0 if it came before the text, else 1 and how many calls came before it."""
    text: str = ""
    """Its text, for readers who asked for it; no provider receives it."""

    def __repr__(self) -> str:
        shown = f"model={self.model!r}, position={self.position!r}, text={self.text!r}"
        return f"ReasoningBlock({shown})"


class _AnswerDetails(_Identified, frozen=True, gc=False, kw_only=True):
    incomplete: bool = False
    """Whether the call ended in the middle; the text is then the part up to there."""
    reasoning: tuple[ReasoningBlock, ...] = ()
    """Reasoning that its provider wants back with the answers to the calls. `==` ignores it."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """The log probabilities of its tokens, if requested. They are dropped with a text in which a
    secret was found, because a secret that is split into tokens would stay."""


class AssistantMessage(_AnswerDetails, frozen=True, gc=False):
    """One answer of the model: text, or calls of tools."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    model: str = ""
    """The name of the model that answered."""


class _ToolDetails(_Identified, frozen=True, gc=False, kw_only=True):
    parts: tuple[Part, ...] = ()
    """Images and files of the answer."""
    refused_by: RefusedBy | None = None
    """The reason of a refusal, if the tool did not run. No model reads it, and `==` ignores it."""
    evidence: Mapping[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """The effect of the call as a value. No model of the task reads it, and `==` ignores it."""


class ToolMessage(_ToolDetails, frozen=True, gc=False):
    """The answer to one call."""

    call: CallId
    text: str
    failed: bool = False
    """The tool could not answer; the text says why, and the model goes on."""


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage


INTERRUPTED: Final = "broken off: everything stopped during this call, and its effect is unknown"


def interrupted_answer(call: ToolCall) -> ToolMessage:
    """Return the answer to a call that was interrupted for good."""
    return ToolMessage(call.id, INTERRUPTED, failed=True, refused_by=RefusedBy.CRASH)


def unanswered_calls(transcript: Sequence[Message]) -> list[ToolCall]:
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
