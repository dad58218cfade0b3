"""The transcript as every protocol accepts it: calls paired with answers, no empty messages.

A provider refuses a whole conversation for one open call, one empty message or one odd name. So
each request is built from the transcript anew, and the transcript itself stays unchanged. Parts
that a protocol cannot carry are refused before anything is sent.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias, cast

import attrs
import msgspec

from orchestrator.agents.errors import Failure, ModelError
from orchestrator.agents.messages import (
    AssistantMessage,
    CallId,
    Message,
    Part,
    ReasoningBlock,
    ToolCall,
    ToolMessage,
    UserMessage,
    interrupted_answer,
)
from orchestrator.agents.models.http.strict_schema import ProviderSchema
from orchestrator.agents.models.model import ModelRequest
from orchestrator.agents.tools.model_names import model_name

GO_ON: Final = "Go on."
NOTHING: Final = "(nothing)"

PDF: Final = "application/pdf"
# All three protocols take these images, and no others.
IMAGES: Final = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})

# The length and the letters that all providers allow.
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")


@attrs.frozen
class AnsweredCall:
    """A call with its answer: neither is ever sent alone."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    answer: str
    failed: bool
    parts: tuple[Part, ...] = ()


@attrs.frozen
class WireUserMessage:
    """A user message: a text, parts, or both."""

    text: str
    parts: tuple[Part, ...] = ()
    is_newest: bool = attrs.field(default=False, eq=False)
    """It is the last user message of the request."""
    shared: int = attrs.field(default=0, eq=False)
    """How many characters at the start of its text siblings have in common."""


@attrs.frozen
class WireAssistantMessage:
    """An answer of the model, with the answers to its calls."""

    text: str
    calls: tuple[AnsweredCall, ...] = ()
    reasoning: tuple[ReasoningBlock, ...] = attrs.field(default=(), eq=False)

    def reasoning_of(self, model: str, position: int | None = None) -> list[Any]:
        """Return the reasoning of a model in the form to send back, of one position or of all."""
        return [
            block.data
            for block in self.reasoning
            if block.model == model and block.data and position in {None, block.position}
        ]


WireMessage: TypeAlias = WireUserMessage | WireAssistantMessage


def wire_transcript(transcript: Iterable[Message]) -> list[WireMessage]:
    """Return a conversation that begins with the user, and that the model is to continue."""
    messages = _paired(transcript)
    if not messages or isinstance(messages[0], WireAssistantMessage):
        messages.insert(0, WireUserMessage(GO_ON))
    match messages[-1]:
        case WireAssistantMessage(calls=()):
            # Providers let the model continue its own last message, or refuse it.
            messages.append(WireUserMessage(GO_ON))
        case _:
            pass
    for index in reversed(range(len(messages))):
        if isinstance(last := messages[index], WireUserMessage):
            messages[index] = attrs.evolve(last, is_newest=True)
            break
    return messages


class _OpenCall:
    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.answer: ToolMessage | None = None


def _paired(transcript: Iterable[Message]) -> list[WireMessage]:
    rows: list[WireUserMessage | tuple[str, list[_OpenCall], tuple[ReasoningBlock, ...]]] = []
    waiting: dict[CallId, list[_OpenCall]] = {}
    for message in transcript:
        match message:
            case UserMessage(text, parts):
                if parts or text.strip():
                    said = text if text.strip() else ""
                    # No provider takes a block that is blank.
                    shared = message.shared if said[message.shared :].strip() else 0
                    rows.append(WireUserMessage(said, parts, shared=shared))
            case AssistantMessage(text, calls):
                opened = [_OpenCall(call) for call in calls]
                # An answer belongs to the latest call of its id.
                waiting.update({call.id: [] for call in calls})
                for each in opened:
                    waiting[each.call.id].append(each)
                if opened or text.strip():
                    said = text if text.strip() else ""
                    rows.append((said, opened, message.reasoning))
            case ToolMessage(call):
                # The first answer counts, and one to no call is dropped.
                if waiting.get(call):
                    waiting[call].pop(0).answer = message
    ids = _WireIds()
    return [
        row
        if isinstance(row, WireUserMessage)
        else WireAssistantMessage(row[0], tuple(_answered(each, ids) for each in row[1]), row[2])
        for row in rows
    ]


class _WireIds:
    """Ids that are unique in a request and that every provider takes."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def unique(self, wanted: str) -> str:
        number = len(self._taken)
        while wanted in self._taken or not _ID.fullmatch(wanted):
            wanted = f"call_{number}"
            number += 1
        self._taken.add(wanted)
        return wanted


def _answered(opened: _OpenCall, ids: _WireIds) -> AnsweredCall:
    call = opened.call
    answer = opened.answer or interrupted_answer(call)
    return AnsweredCall(
        ids.unique(call.id),
        # Models call tools that do not exist, by names that no provider accepts.
        model_name(call.name) or "unnamed",
        call.arguments,
        answer.text if answer.text.strip() else NOTHING,
        answer.failed,
        answer.parts,
    )


def block_of(
    part: Part, message: WireUserMessage, project: Callable[[Part], dict[str, Any]], *, text: str
) -> dict[str, Any]:
    """Return a part as a protocol carries it.

    A part that it cannot carry is an error in the newest message. In an older one a note takes
    its place, so that the session can go on.
    """
    try:
        return project(part)
    except ModelError as exc:
        if message.is_newest:
            raise
        return {"type": text, "text": f"[{exc}]"}


def result_blocks(
    call: AnsweredCall, project: Callable[[Part], dict[str, Any]], *, text: str
) -> list[dict[str, Any]]:
    """Return the parts of an answer as a protocol carries them, or notes for the model to read."""
    blocks: list[dict[str, Any]] = []
    for part in call.parts:
        try:
            blocks.append(project(part))
        except ModelError as exc:
            blocks.append({"type": text, "text": f"[{exc}]"})
    return blocks


def instructions_with_schema(request: ModelRequest, output_schema: ProviderSchema | None) -> str:
    """Return the instructions, with the schema of the answer where the protocol has no field."""
    instructions = request.instructions.strip() and request.instructions
    if request.output is None or output_schema is not None:
        return instructions
    schema = as_json(request.output).decode()
    return (
        f"{instructions}\n\nYour final answer is JSON that fits this schema, and nothing"
        f" else, with no fence around it: {schema}"
    ).strip()


def base64_of(part: Part) -> str:
    return b64encode(part.data).decode()


def url_of(part: Part) -> str:
    """Return the URL of a part, which may be a data URL."""
    return part.url or f"data:{part.media_type};base64,{base64_of(part)}"


def text_of(part: Part) -> str:
    """Return the text of a text file."""
    try:
        text = part.data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise unsendable(part, "its text is not UTF-8; send it in that encoding") from exc
    return text if text.strip() else NOTHING


def quoted(part: Part) -> str:
    """Return a text file as a message text, for protocols without text files."""
    # Protocols join texts without a separator, so this one ends with a line end.
    return f"This is {part.label}:\n\n{text_of(part)}\n\n"


def unsendable(part: Part, reason: str) -> ModelError:
    return ModelError(f"{part.label} cannot be sent: {reason}", kind=Failure.BAD_REQUEST)


def as_json(value: object) -> bytes:
    """Encode as JSON in UTF-8, also texts with lone surrogates."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # A file name that is no UTF-8, or a text that was cut inside a character.
        return msgspec.json.encode(_in_whole_characters(value))


def _in_whole_characters(value: object) -> object:
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case Mapping():
            items = cast("Mapping[object, object]", value).items()
            return {_in_whole_characters(key): _in_whole_characters(item) for key, item in items}
        case list() | tuple():
            return [_in_whole_characters(item) for item in cast("Iterable[object]", value)]
        case _:
            return value
