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
    Code,
    Content,
    FunctionTool,
    InputFile,
    InputImage,
    InputItem,
    InputText,
    MessageItem,
    OutputItem,
    OutputText,
    ResponseBody,
    ReturnedItem,
    Role,
    SentItem,
    Trouble,
    used,
)
from orchestrator.server.session_status import failing, handed_back, spoken, state_of

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
STANDING: Final = "standing"
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


def name_of(session: SessionRecord) -> str:
    """Return what the ids of a response and of its items have in common."""
    return session.id.removeprefix("r_")


def response_id(session: SessionRecord) -> str:
    return f"resp_{name_of(session)}"


def session_id(response: str) -> SessionId | None:
    """Return the session that is a response; None if there can be none."""
    found = _ID.fullmatch(response)
    return None if found is None else SessionId(f"r_{found[1]}")


def is_kept(session: SessionRecord) -> bool:
    """Tell whether a response can be asked for again."""
    return session.labels.get(STORE) != NO


def body_of(session: SessionRecord) -> ResponseBody:
    """Return a response as far as it is."""
    state = state_of(session)
    is_over = state not in {"queued", "in_progress"}
    ended: float | None = session.tree[session.root.id]["ended"]
    body = begun(session)
    body.status = state
    body.output = output_of(session)
    if is_over:
        body.error = _trouble(session)
        body.usage = used(session.tree.total)
    if state == "completed" and ended is not None:
        body.completed_at = int(ended)
    return body


def begun(session: SessionRecord) -> ResponseBody:
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
        store=is_kept(session),
        run=session.id,
        instructions=labels.get(INSTRUCTIONS),
        previous_response_id=labels.get(PREVIOUS),
        metadata=metadata_of(session),
        tools=msgspec.json.decode(labels.get(TOOLS, "[]"), type=list[FunctionTool]),
        tool_choice=labels.get(TOOL_CHOICE, "auto"),
    )


def _trouble(session: SessionRecord) -> Trouble | None:
    outcome = session.last_outcome
    why = None if outcome is None else failing(outcome)
    if why is None:
        if state_of(session) == "completed":
            return None
        return Trouble(
            code="server_error", type="cancelled", message="cancelled: it was stopped"
        )
    return Trouble(
        code=_CODES.get(why.code, "server_error"),
        type=why.code,
        message=why.message,
        retry_after=why.retry_after,
    )


def output_of(session: SessionRecord) -> list[OutputItem]:
    """Return what the agent said, and what the client is to call."""
    said = spoken(session)
    calls = handed_back(session)
    is_answered = state_of(session) == "completed" and not calls
    items: list[OutputItem] = []
    for number, one in enumerate(said):
        is_last = number == len(said) - 1
        text = one.text if is_last else one.text + BLANK_LINE
        items.append(
            MessageItem(
                id=item_id(name_of(session), number),
                content=[OutputText(text)],
                status="completed",
                phase="final_answer" if is_last and is_answered else "commentary",
            )
        )
    for number, call in enumerate(calls, len(said)):
        items.append(call_item(f"fc_{name_of(session)}_{number}", call))
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
    if standing := session.labels.get(STANDING):
        items.append(_sent("developer", [InputText(standing)]))
    for message in _heard(session):
        items += _items(message)
    for number, item in enumerate(items):
        item.id = f"{item.id}_{name_of(session)}_in{number}"
    return items


def _heard(session: SessionRecord) -> Iterator[Message]:
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
            yield ReturnedItem(id="fco", call_id=message.call, output=message.text)


def _sent(role: Role, content: list[Content]) -> SentItem:
    return SentItem(id="msg", role=role, content=content)


def _sent_part(part: Part) -> Content:
    data = base64.b64encode(part.data).decode()
    url = part.url or f"data:{part.media_type};base64,{data}"
    if part.is_image:
        return InputImage(image_url=url, detail="auto")
    if part.url:
        return InputFile(file_url=part.url, filename=part.name or None)
    return InputFile(file_data=url, filename=part.name or None)
