"""A response, as its session tells it: nothing of it is kept anywhere else."""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from agents import (
    AssistantMessage,
    Message,
    Part,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from delegation import SessionId, SessionRecord
from orchestrator.server.api.bodies import metadata_of
from orchestrator.server.openai.responses.bodies import (
    CallItem,
    CallOutputItem,
    Code,
    Content,
    FunctionTool,
    InputFile,
    InputImage,
    InputItem,
    InputMessageItem,
    InputText,
    MessageItem,
    OutputItem,
    OutputText,
    ResponseBody,
    ResponseError,
    Role,
    response_usage,
)
from orchestrator.server.session_status import (
    agent_messages,
    client_calls,
    failure_reason,
    state_of,
)

RESPONSE: Final = "response"
"""The kind of a session that is a response."""

# The labels of such a session.
STORE: Final = "store"
BACKGROUND: Final = "background"
PREVIOUS: Final = "previous"
INSTRUCTIONS: Final = "instructions"
TOOLS: Final = "tools"
TOOL_CHOICE: Final = "tool_choice"
MESSAGE: Final = "message"
"""The id of what it answers."""
SYSTEM_INSTRUCTIONS: Final = "standing"
"""What system and developer have said in its conversation."""

YES: Final = "true"
NO: Final = "false"
BLANK_LINE: Final = "\n\n"
"""What parts one thing that is said from the next, where clients read them as one text."""

_ID: Final = re.compile(r"resp_([0-9a-f]{16})")
# The words of OpenAI's clients for what they know.
_CODES: Final[Mapping[str, Code]] = {
    "rate_limit": "rate_limit_exceeded",
    "context": "invalid_prompt",
}


def id_suffix(session: SessionRecord) -> str:
    """Return what the ids of a response and of its items have in common."""
    return session.id.removeprefix("r_")


def response_id(session: SessionRecord) -> str:
    return f"resp_{id_suffix(session)}"


def session_id(response: str) -> SessionId | None:
    """Return the session that is a response; None if there can be none."""
    found = _ID.fullmatch(response)
    return None if found is None else SessionId(f"r_{found[1]}")


def is_stored(session: SessionRecord) -> bool:
    """Tell whether a response can be asked for again."""
    return session.labels.get(STORE) != NO


def body_of(session: SessionRecord) -> ResponseBody:
    """Return a response as far as it is."""
    state = state_of(session)
    is_over = state not in {"queued", "in_progress"}
    ended: float | None = session.tree[session.root.id]["ended"]
    body = initial_body(session)
    body.status = state
    body.output = output_of(session)
    if is_over:
        body.error = _error_of(session)
        body.usage = response_usage(session.tree.total)
    if state == "completed" and ended is not None:
        body.completed_at = int(ended)
    return body


def initial_body(session: SessionRecord) -> ResponseBody:
    """Return a response as it is when it has just begun."""
    labels = session.labels
    created: float = session.tree[session.root.id]["requested"]
    return ResponseBody(
        id=response_id(session),
        created_at=int(created),
        status="in_progress",
        model=session.root.agent,
        output=[],
        background=labels.get(BACKGROUND) == YES,
        store=is_stored(session),
        run=session.id,
        instructions=labels.get(INSTRUCTIONS),
        previous_response_id=labels.get(PREVIOUS),
        metadata=metadata_of(session),
        tools=msgspec.json.decode(labels.get(TOOLS, "[]"), type=list[FunctionTool]),
        tool_choice=labels.get(TOOL_CHOICE, "auto"),
    )


def _error_of(session: SessionRecord) -> ResponseError | None:
    outcome = session.last_outcome
    why = None if outcome is None else failure_reason(outcome)
    if why is None:
        if state_of(session) == "completed":
            return None
        return ResponseError(
            code="server_error", type="cancelled", message="cancelled: it was stopped"
        )
    return ResponseError(
        code=_CODES.get(why.code, "server_error"),
        type=why.code,
        message=why.message,
        retry_after=why.retry_after,
    )


def output_of(session: SessionRecord) -> list[OutputItem]:
    """Return what the agent said, and what the client is to call."""
    said = agent_messages(session)
    calls = client_calls(session)
    is_answered = state_of(session) == "completed" and not calls
    items: list[OutputItem] = []
    for number, one in enumerate(said):
        is_last = number == len(said) - 1
        text = one.text if is_last else one.text + BLANK_LINE
        items.append(
            MessageItem(
                id=item_id(id_suffix(session), number),
                content=[OutputText(text)],
                status="completed",
                phase="final_answer" if is_last and is_answered else "commentary",
            )
        )
    for number, call in enumerate(calls, len(said)):
        items.append(call_item(f"fc_{id_suffix(session)}_{number}", call))
    return items


def item_id(name: str, number: int) -> str:
    """Return the id of what is said, which is known before all of it is said."""
    return f"msg_{name}_{number}"


def call_item(id_: str, call: ToolCall) -> CallItem:
    return CallItem(
        id=id_,
        call_id=call.id,
        name=call.name,
        arguments=json.dumps(dict(call.arguments), ensure_ascii=False),
        status="completed",
    )


def input_of(session: SessionRecord) -> list[InputItem]:
    """Return what a response answers, with the conversation before it, oldest first."""
    items: list[InputItem] = []
    if standing := session.labels.get(SYSTEM_INSTRUCTIONS):
        items.append(_sent("developer", [InputText(standing)]))
    for message in _input_messages(session):
        items += _items(message)
    for number, item in enumerate(items):
        item.id = f"{item.id}_{id_suffix(session)}_in{number}"
    return items


def _input_messages(session: SessionRecord) -> Iterator[Message]:
    own = session.labels.get(MESSAGE)
    for message in session.root.transcript:
        if message.id.startswith("h_") or message.id == own:
            yield message
    for mail in session.mail.values():
        if isinstance(mail, UserMessage) and mail.id == own:
            yield mail


def _items(message: Message) -> Iterator[InputItem]:
    match message:
        case UserMessage():
            texts: list[Content] = [InputText(message.text)] if message.text else []
            yield _sent("user", [*texts, *map(_sent_part, message.parts)])
        case AssistantMessage():
            if message.text:
                yield _sent("assistant", [OutputText(message.text)])
            for call in message.calls:
                yield call_item("fc", call)
        case ToolMessage():
            yield CallOutputItem(id="fco", call_id=message.call, output=message.text)


def _sent(role: Role, content: list[Content]) -> InputMessageItem:
    return InputMessageItem(id="msg", role=role, content=content)


def _sent_part(part: Part) -> Content:
    data = base64.b64encode(part.data).decode()
    url = part.url or f"data:{part.media_type};base64,{data}"
    if part.is_image:
        return InputImage(image_url=url, detail="auto")
    if part.url:
        return InputFile(file_url=part.url, filename=part.name or None)
    return InputFile(file_data=url, filename=part.name or None)
