"""The bodies of transcripts."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import attrs
import msgspec

from orchestrator.agents import AssistantMessage, Message, ToolMessage, Usage, UserMessage
from orchestrator.agents.models.token_estimate import usable_tokens
from orchestrator.delegation import Ending, Outcome, SessionId, SessionRecord, TaskId
from orchestrator.delegation.events.incidents import Incident
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.operation import doc
from orchestrator.products.server.session_status import failure_reason


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


class ConversationTurn(msgspec.Struct, kw_only=True):
    """A turn of a conversation: its messages, its times, and its failure."""

    number: int
    first: Annotated[int, doc("The `number` of its first message.")]
    last: Annotated[int, doc("The `number` of its last message; `first` - 1 for no message.")]
    started: float
    ended: float | None
    ending: Annotated[
        Ending | None,
        doc("null while it runs. `cancelled`: a person stopped it, and the text so far stays."),
    ]
    error: Annotated[str, doc("Why it did not succeed, for people.")] = ""
    code: Annotated[str, doc("The kind of the failure, such as `rate_limit`.")] = ""
    retry_after: Annotated[
        float | None, doc("The seconds until the provider accepts another request, if it said so.")
    ] = None
    traceback: Annotated[
        str, doc("For keys with the scope `admin`: where the code raised the error.")
    ] = ""


class ContextUse(msgspec.Struct, kw_only=True):
    """How much of the window of its model a conversation uses."""

    prompt_tokens: Annotated[int | None, doc("The tokens that the last model call read.")]
    window: Annotated[int | None, doc("The window that its agent's `compaction` declares.")]
    threshold: Annotated[int | None, doc("A longer request is shortened or summarized.")]


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
    agent: Annotated[str, doc("The name of the agent.")] = ""
    turns: Annotated[
        list[ConversationTurn], doc("For a conversation: its turns on this page, oldest first.")
    ] = []
    context: Annotated[ContextUse | None, doc("For a conversation.")] = None


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


async def transcript_of(
    call: ApiCall, session: SessionRecord, task: TaskId, query: TranscriptQuery
) -> Messages:
    """Return a page of the transcript of a task, with the turns of a conversation."""
    read = call.journal.read
    conversation = await read.conversation(task)
    # A session with mail is not evicted.
    root = read.records.sessions.get(SessionId(task))
    page = transcript_page(conversation.messages, conversation.incidents, root, query)
    page.agent = session.tree[task].agent
    if session.root.id == task:
        end = query.after + query.limit
        page.turns = [
            it
            for it in _turns(call, session)
            if query.after <= it.last and (it.first <= end or not page.has_more)
        ]
        page.context = _context_use(call, session, conversation.messages)
    return page


def _turns(call: ApiCall, session: SessionRecord) -> Iterator[ConversationTurn]:
    """Yield the turns of a conversation; other sessions keep none."""
    times, messages = session.tree.turns, session.root.transcript
    # The messages that a branch began with are of no turn.
    first = next((n for n, it in enumerate(messages, 1) if not it.id.startswith("h_")), 1)
    for number, turn in enumerate(session.past_turns, 1):
        started, ended = times[number - 1]
        body = ConversationTurn(
            number=number,
            first=first,
            last=turn.end,
            started=started,
            ended=ended,
            ending=Ending.SUCCEEDED,
        )
        if turn.failure is not None:
            _add_failure(body, turn.failure, shows_traceback=call.key.is_admin)
        first = turn.end + 1
        yield body
    if session.turn is not None and len(session.past_turns) < len(times):
        yield ConversationTurn(
            number=len(times),
            first=first,
            last=max(first - 1, len(messages)),
            started=times[-1][0],
            ended=None,
            ending=None,
        )


def _add_failure(body: ConversationTurn, failure: Outcome, *, shows_traceback: bool) -> None:
    reason = failure_reason(failure)
    body.ending, body.error = failure.ending, failure.error
    body.code = "" if reason is None else reason.code
    body.retry_after = failure.retry_after
    body.traceback = failure.traceback if shows_traceback else ""


def _context_use(
    call: ApiCall, session: SessionRecord, messages: Sequence[Message]
) -> ContextUse | None:
    if session.kind is not SessionKind.CONVERSATION:
        return None
    agent = call.server.agents.get(session.root.agent)
    window = None if agent is None or agent.compaction is None else agent.compaction.window
    answers = (it for it in reversed(messages) if isinstance(it, AssistantMessage))
    last = next((it for it in answers if not it.incomplete and it.usage.input_tokens), None)
    return ContextUse(
        prompt_tokens=None if last is None else last.usage.input_tokens,
        window=window,
        threshold=None if window is None else usable_tokens(window),
    )


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
