"""The bodies of transcripts."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import attrs
import msgspec

from orchestrator.agents import AssistantMessage, Message, ToolMessage, Usage, UserMessage
from orchestrator.delegation import SessionId, SessionRecord, TaskId
from orchestrator.delegation.events.incidents import Incident
from orchestrator.products.server.operation import doc
from orchestrator.products.server.served_journal import ServedJournal


class CalledTool(msgspec.Struct, kw_only=True):
    """A call of a tool."""

    id: str
    name: str
    arguments: dict[str, Any]


class Attachment(msgspec.Struct, kw_only=True):
    """An image or a file of a message."""

    number: Annotated[int, doc("Its position, counted from 1.")]
    media_type: str
    name: str
    url: str
    bytes: Annotated[
        int,
        doc(
            "The bytes it has, without a url. /v1/tasks/TASK/messages/ID/parts/NUMBER returns them."
        ),
    ]


class TranscriptMessage(msgspec.Struct, kw_only=True):
    """One message of a transcript."""

    number: Annotated[int, doc("Its position, counted from 1.")]
    id: str
    role: Literal["user", "assistant", "tool"]
    text: str
    parts: list[Attachment] = []
    calls: list[CalledTool] = []
    call: Annotated[str, doc("For a tool: the call that this answers.")] = ""
    failed: Annotated[bool, doc("For a tool: it failed.")] = False
    aside: Annotated[bool, doc("It was sent during a turn.")] = False
    incomplete: Annotated[
        bool,
        doc("For an assistant: the call ended in the middle, and this is the text until then."),
    ] = False
    model: str = ""
    usage: Usage | None = None
    reasoning: Annotated[
        str, doc("For an assistant: the reasoning that it reported, if the client asked for it.")
    ] = ""


class CallIncident(msgspec.Struct, kw_only=True):
    """A retry or a cut of a model call, besides its answer."""

    after: Annotated[int, doc("The `number` of the message before it; 0 for no message.")]
    error: Annotated[str, doc("The provider's error, after which the call was repeated.")]
    then: Annotated[str, doc("The model that was called instead, if another.")]
    left_out: Annotated[
        int,
        doc(
            "The number of characters of the conversation that were left out to fit"
            " the model's window."
        ),
    ]
    summary: Annotated[
        str, doc("The summary of the conversation that the model wrote for the delegated tasks.")
    ]


class QueuedMessage(msgspec.Struct, kw_only=True):
    """A message that no turn has read yet."""

    id: Annotated[str, doc("Its id in the transcript.")]
    text: str
    parts: list[Attachment]


class Messages(msgspec.Struct, kw_only=True):
    """A page of a transcript, oldest first."""

    object: Literal["list"] = "list"
    data: list[TranscriptMessage]
    has_more: bool
    count: Annotated[int, doc("The number of all messages so far.")]
    incidents: Annotated[
        list[CallIncident],
        doc(
            "Model calls on this page that failed and were repeated, or read only"
            " a part, oldest first."
        ),
    ]
    queued: Annotated[
        list[QueuedMessage], doc("For a conversation: the messages that the next turn reads.")
    ]


@attrs.frozen(kw_only=True)
class TranscriptQuery:
    """The page of a transcript."""

    limit: Annotated[
        int, msgspec.Meta(ge=1, le=1000, description="The most messages to return.")
    ] = 100
    after: Annotated[
        int,
        msgspec.Meta(ge=0, le=2**53, description="The `number` of the last message that you have."),
    ] = 0


async def transcript_of(journal: ServedJournal, task: TaskId, query: TranscriptQuery) -> Messages:
    """Return a page of the transcript of a task."""
    conversation = await journal.read.conversation(task)
    # A session with mail is not evicted.
    session = journal.read.records.sessions.get(SessionId(task))
    return transcript_page(conversation.messages, conversation.incidents, session, query)


def transcript_page(
    messages: Sequence[Message],
    incidents: Sequence[Incident],
    session: SessionRecord | None,
    query: TranscriptQuery,
) -> Messages:
    """Return a page of messages; `session` has the unread ones if the task is its root."""
    end = query.after + query.limit
    has_more = end < len(messages)
    return Messages(
        data=[
            _message_body(message, number)
            for number, message in enumerate(messages[query.after : end], query.after + 1)
        ],
        has_more=has_more,
        count=len(messages),
        incidents=[
            msgspec.convert(it, CallIncident, from_attributes=True)
            for it in incidents
            if query.after <= it.after and (it.after < end or not has_more)
        ],
        queued=[
            QueuedMessage(id=it.id, text=it.text, parts=_attachments(it))
            for it in (() if session is None else session.mail.values())
            if isinstance(it, UserMessage)
        ],
    )


def _attachments(message: UserMessage | ToolMessage) -> list[Attachment]:
    return [
        Attachment(
            number=number,
            media_type=part.media_type,
            name=part.name,
            url=part.url,
            bytes=len(part.data),
        )
        for number, part in enumerate(message.parts, 1)
    ]


def _message_body(message: Message, number: int) -> TranscriptMessage:
    body = TranscriptMessage(number=number, id=message.id, role="user", text=message.text)
    match message:
        case UserMessage():
            body.aside, body.parts = message.aside, _attachments(message)
        case AssistantMessage():
            body.role = "assistant"
            body.calls = [
                CalledTool(id=call.id, name=call.name, arguments=dict(call.arguments))
                for call in message.calls
            ]
            body.incomplete, body.model = message.incomplete, message.model
            body.usage = message.usage
            body.reasoning = "\n\n".join(it.text for it in message.reasoning if it.text)
        case ToolMessage():
            body.role, body.call, body.failed = "tool", message.call, message.failed
            body.parts = _attachments(message)
    return body
