"""What was said in a task, as clients are shown it."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import attrs
import msgspec
import trio

from agents import AssistantMessage, Message, ToolMessage, Usage, UserMessage
from delegation import SessionId, TaskId
from orchestrator.read_api import FoundSession
from orchestrator.report import read_history
from orchestrator.server.state import ServerState


class CalledTool(msgspec.Struct, kw_only=True):
    """A tool that an agent had run."""

    id: str
    name: str
    arguments: dict[str, Any]


class Attachment(msgspec.Struct, kw_only=True):
    """What came with a message."""

    media_type: str
    name: str
    url: str
    bytes: Annotated[int, msgspec.Meta(description="How many it has, if no url.")]


class TranscriptMessage(msgspec.Struct, kw_only=True):
    """One message of a transcript."""

    number: Annotated[int, msgspec.Meta(description="Its place, counted from 1.")]
    id: str
    role: Literal["user", "assistant", "tool"]
    text: str
    parts: list[Attachment] = []
    calls: list[CalledTool] = []
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
    data: list[TranscriptMessage]
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
    server: ServerState, found: FoundSession, task: TaskId, query: TranscriptQuery
) -> Messages:
    """Return what was said in a task. Of one that has ended, only the journal knows it."""
    record = found.ledger.tasks[task]
    said: Sequence[Message] = list(record.transcript)
    await trio.lowlevel.checkpoint()
    if record.outcome is not None:
        said = await _read_messages(server, found.session.id, task)
    end = query.after + query.limit
    return Messages(
        data=[
            _message_body(message, number)
            for number, message in enumerate(said[query.after : end], query.after + 1)
        ],
        has_more=end < len(said),
        count=len(said),
    )


async def _read_messages(
    server: ServerState, run: SessionId, task: TaskId
) -> Sequence[Message]:
    entries = await server.book.read_entries(run)
    # A fold of its own, and seconds for a large one: nobody else is to wait for it.
    story = await trio.to_thread.run_sync(
        lambda: read_history(
            run, entries, has_writer=True, wants_transcript=lambda _: True
        )
    )
    return story.transcripts[task].messages


def _message_body(message: Message, number: int) -> TranscriptMessage:
    match message:
        case UserMessage():
            return TranscriptMessage(
                number=number,
                id=message.id,
                role="user",
                text=message.text,
                aside=message.aside,
                parts=[
                    Attachment(
                        media_type=part.media_type,
                        name=part.name,
                        url=part.url,
                        bytes=len(part.data),
                    )
                    for part in message.parts
                ],
            )
        case AssistantMessage():
            return TranscriptMessage(
                number=number,
                id=message.id,
                role="assistant",
                text=message.text,
                calls=[
                    CalledTool(
                        id=call.id, name=call.name, arguments=dict(call.arguments)
                    )
                    for call in message.calls
                ],
                model=message.model,
                usage=message.usage,
            )
        case ToolMessage():
            return TranscriptMessage(
                number=number,
                id=message.id,
                role="tool",
                text=message.text,
                call=message.call,
                failed=message.failed,
            )
