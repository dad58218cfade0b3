"""What was said in a task, as clients are shown it."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import attrs
import msgspec
import trio

from agents import AssistantMessage, Message, ToolMessage, Usage, UserMessage
from delegation import SessionId, TaskId
from orchestrator.report import story_of
from orchestrator.server.api.lookup import Seen
from orchestrator.server.state import Office


class Called(msgspec.Struct, kw_only=True):
    """A tool that an agent had run."""

    id: str
    name: str
    arguments: dict[str, Any]


class Attached(msgspec.Struct, kw_only=True):
    """What came with a message."""

    media_type: str
    name: str
    url: str
    bytes: Annotated[int, msgspec.Meta(description="How many it has, if no url.")]


class Spoken(msgspec.Struct, kw_only=True):
    """One message of a transcript."""

    number: Annotated[int, msgspec.Meta(description="Its place, counted from 1.")]
    id: str
    role: Literal["user", "assistant", "tool"]
    text: str
    parts: list[Attached] = []
    calls: list[Called] = []
    call: Annotated[
        str, msgspec.Meta(description="Of a tool: the call that this answers.")
    ] = ""
    failed: Annotated[bool, msgspec.Meta(description="Of a tool: it said no.")] = False
    aside: Annotated[
        bool, msgspec.Meta(description="It was said in the midst of a turn.")
    ] = False
    model: str = ""
    usage: Usage | None = None


class Messages(msgspec.Struct, kw_only=True):
    """Some of a transcript, the oldest first."""

    object: Literal["list"] = "list"
    data: list[Spoken]
    has_more: bool
    count: Annotated[int, msgspec.Meta(description="How many there are by now.")]


@attrs.frozen(kw_only=True)
class TranscriptQuery:
    """Which part of a transcript is wanted."""

    limit: Annotated[
        int, msgspec.Meta(ge=1, le=1000, description="How many messages at most.")
    ] = 100
    after: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            le=2**53,
            description="The `number` of the last message that you have.",
        ),
    ] = 0


async def transcript_of(
    office: Office, seen: Seen, task: TaskId, query: TranscriptQuery
) -> Messages:
    """Return what was said in a task. Of one that has ended, only the journal knows it."""
    record = seen.ledger.tasks[task]
    said: Sequence[Message] = list(record.transcript)
    await trio.lowlevel.checkpoint()
    if record.outcome is not None:
        said = await _said_before(office, seen.session.id, task)
    end = query.after + query.limit
    return Messages(
        data=[
            _spoken(message, number)
            for number, message in enumerate(said[query.after : end], query.after + 1)
        ],
        has_more=end < len(said),
        count=len(said),
    )


async def _said_before(
    office: Office, run: SessionId, task: TaskId
) -> Sequence[Message]:
    entries = await office.book.read_entries(run)
    # A fold of its own, and seconds for a large one: nobody else is to wait for it.
    story = await trio.to_thread.run_sync(
        lambda: story_of(run, entries, is_written=True, listen=lambda _: True)
    )
    return story.said[task].messages


def _spoken(message: Message, number: int) -> Spoken:
    match message:
        case UserMessage():
            return Spoken(
                number=number,
                id=message.id,
                role="user",
                text=message.text,
                aside=message.aside,
                parts=[
                    Attached(
                        media_type=part.media_type,
                        name=part.name,
                        url=part.url,
                        bytes=len(part.data),
                    )
                    for part in message.parts
                ],
            )
        case AssistantMessage():
            return Spoken(
                number=number,
                id=message.id,
                role="assistant",
                text=message.text,
                calls=[
                    Called(id=call.id, name=call.name, arguments=dict(call.arguments))
                    for call in message.calls
                ],
                model=message.model,
                usage=message.usage,
            )
        case ToolMessage():
            return Spoken(
                number=number,
                id=message.id,
                role="tool",
                text=message.text,
                call=message.call,
                failed=message.failed,
            )
