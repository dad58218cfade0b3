"""What of a transcript goes over the wire, whatever the protocol.

A provider refuses a whole conversation for one open call, one empty message or one odd name. So
what is sent is made anew from the transcript for each request, and the transcript stays as it is.
What a protocol has no way to say is refused before anything is sent.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias, cast

import attrs
import msgspec

from agents.errors import Failure, ModelError
from agents.messages import (
    AssistantMessage,
    CallId,
    Part,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
    interrupted_answer,
)

GO_ON: Final = "Go on."
NOTHING: Final = "(nothing)"

PDF: Final = "application/pdf"
# The images that all three protocols take, and the only ones.
IMAGES: Final = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})

# The shortest that any provider allows, and the letters that all of them do.
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME: Final = 64


@attrs.frozen
class AnsweredCall:
    """A call and its answer, which are never sent one without the other."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    answer: str
    failed: bool


@attrs.frozen
class WireUserMessage:
    """Something the model is told: a text, parts, or both."""

    text: str
    parts: tuple[Part, ...] = ()
    is_news: bool = attrs.field(default=False, eq=False)
    """It is the newest thing that the model is told."""


@attrs.frozen
class WireAssistantMessage:
    """Something the model has said, the answers to its calls included."""

    text: str
    exchanges: tuple[AnsweredCall, ...] = ()


WireMessage: TypeAlias = WireUserMessage | WireAssistantMessage


def wire_transcript(transcript: Transcript) -> list[WireMessage]:
    """Return a conversation that begins with the user and that the model is to go on with."""
    spoken = _paired(transcript)
    if not spoken or isinstance(spoken[0], WireAssistantMessage):
        spoken.insert(0, WireUserMessage(GO_ON))
    match spoken[-1]:
        case WireAssistantMessage(exchanges=()):
            # Providers take a last word of the model for one that it must continue, or refuse it.
            spoken.append(WireUserMessage(GO_ON))
        case _:
            pass
    for place in reversed(range(len(spoken))):
        if isinstance(last := spoken[place], WireUserMessage):
            spoken[place] = attrs.evolve(last, is_news=True)
            break
    return spoken


class _OpenCall:
    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.answer: ToolMessage | None = None


def _paired(transcript: Transcript) -> list[WireMessage]:
    rows: list[WireUserMessage | tuple[str, list[_OpenCall]]] = []
    waiting: dict[CallId, list[_OpenCall]] = {}
    for message in transcript:
        match message:
            case UserMessage(text, parts):
                if parts or text.strip():
                    rows.append(WireUserMessage(text if text.strip() else "", parts))
            case AssistantMessage(text, calls):
                opened = [_OpenCall(call) for call in calls]
                # An answer belongs to the latest call of its id.
                waiting.update({call.id: [] for call in calls})
                for each in opened:
                    waiting[each.call.id].append(each)
                if opened or text.strip():
                    rows.append((text if text.strip() else "", opened))
            case ToolMessage(call):
                # The first answer counts, and one to no call at all says nothing.
                if waiting.get(call):
                    waiting[call].pop(0).answer = message
    ids = _WireIds()
    return [
        row
        if isinstance(row, WireUserMessage)
        else WireAssistantMessage(
            row[0], tuple(_exchange(each, ids) for each in row[1])
        )
        for row in rows
    ]


class _WireIds:
    """Ids that are unique in a request and that every provider takes."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def next(self, wish: str) -> str:
        number = len(self._taken)
        while wish in self._taken or not _ID.fullmatch(wish):
            wish = f"call_{number}"
            number += 1
        self._taken.add(wish)
        return wish


def _exchange(opened: _OpenCall, ids: _WireIds) -> AnsweredCall:
    call = opened.call
    answer = opened.answer or interrupted_answer(call)
    return AnsweredCall(
        ids.next(call.id),
        # Models call tools that there are not, by names that cannot be.
        _NOT_IN_A_NAME.sub("_", call.name)[:_LONGEST_NAME] or "unnamed",
        call.arguments,
        answer.text if answer.text.strip() else NOTHING,
        answer.failed,
    )


def block_of(
    part: Part,
    message: WireUserMessage,
    project: Callable[[Part], dict[str, Any]],
    *,
    text: str,
) -> dict[str, Any]:
    """Return a part as a protocol carries it.

    What it cannot carry is refused when it is news. Later it is only told of: a session goes on.
    """
    try:
        return project(part)
    except ModelError as exc:
        if message.is_news:
            raise
        return {"type": text, "text": f"[{exc}]"}


def base64_of(part: Part) -> str:
    return b64encode(part.data).decode()


def url_of(part: Part) -> str:
    """Return the URL at which a part is found, which may be one that holds the part itself."""
    return part.url or f"data:{part.media_type};base64,{base64_of(part)}"


def text_of(part: Part) -> str:
    """Return what a file of text says."""
    try:
        text = part.data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise unsendable(
            part, "its text is no UTF-8; send it in that encoding"
        ) from exc
    return text if text.strip() else NOTHING


def quoted(part: Part) -> str:
    """Return a file of text as a text of its own, for protocols that know no such files."""
    # They put texts together as they are, so this one ends where a line ends.
    return f"This is {part.label}:\n\n{text_of(part)}\n\n"


def unsendable(part: Part, why: str) -> ModelError:
    return ModelError(f"{part.label} cannot be sent: {why}", kind=Failure.BAD_REQUEST)


def as_json(value: object) -> bytes:
    """Return JSON that is UTF-8, whatever the texts in it came from."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # Half a character: a file name that is no UTF-8, or a text that was cut in the middle.
        return msgspec.json.encode(_in_whole_characters(value))


def _in_whole_characters(value: object) -> object:
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case Mapping():
            items = cast("Mapping[object, object]", value).items()
            return {
                _in_whole_characters(key): _in_whole_characters(item)
                for key, item in items
            }
        case list() | tuple():
            return [
                _in_whole_characters(item) for item in cast("Iterable[object]", value)
            ]
        case _:
            return value
