"""Makes the body of a response from its session: a response has no data of its own."""

import base64
import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final, Literal, TypeAlias

from orchestrator.agents import (
    AssistantMessage,
    Message,
    MessageId,
    Part,
    ReasoningBlock,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from orchestrator.delegation import SessionId, SessionRecord
from orchestrator.products.server import session_status
from orchestrator.products.server.openai.answer_format import PlainText
from orchestrator.products.server.openai.client_content import Refusal
from orchestrator.products.server.openai.client_tools import custom_input, custom_tools_of
from orchestrator.products.server.openai.logprobs import logprobs_of
from orchestrator.products.server.openai.public_ids import RESPONSE, id_suffix
from orchestrator.products.server.openai.responses import bodies
from orchestrator.products.server.openai.responses.response_state import ResponseState

BLANK_LINE: Final = "\n\n"
"""Separates the messages of an agent, for clients that join them to one text."""

Status: TypeAlias = session_status.State | Literal["incomplete"]

_REASONING: Final = re.compile(r"(r_[0-9a-f]{16}) ([0-9A-Za-z_~.-]{1,80})")
_ITEM_ID: Final = re.compile(r"(?:msg|fc|fco|ctc|ctco|rs)_([0-9a-f]{16})_(?:in)?[0-9]{1,9}")
# The codes that OpenAI's clients know.
_CODES: Final[Mapping[str, bodies.Code]] = {
    "rate_limit": "rate_limit_exceeded",
    "context": "invalid_prompt",
}


def response_of_item(item: str) -> str | None:
    """Return the id of an item's response; None if it is not the id of an item."""
    found = _ITEM_ID.fullmatch(item)
    return None if found is None else f"{RESPONSE.prefix}{found[1]}"


def body_of(session: SessionRecord) -> bodies.ResponseBody:
    """Return the body of a response, finished or not."""
    state = status_of(session)
    is_over = state not in {"queued", "in_progress"}
    ended = session.tree[session.root.id].ended
    body = initial_body(session)
    body.status = state
    body.output = output_of(session)
    if state == "completed" and session_status.answers_in_json(session):
        # Only the repaired answer is shown, because clients read the text as one JSON value.
        body.output = [it for it in body.output if _is_answer(it)]
    if (reason := session_status.cut_reason(session)) is not None:
        body.incomplete_details = bodies.IncompleteDetails(
            "max_output_tokens" if reason == "length" else reason
        )
    elif is_over and session_status.refusal_of(session) is None:
        body.error = _error_of(session)
    if is_over:
        body.usage = bodies.response_usage(session.tree.total)
    if state == "completed" and ended is not None:
        body.completed_at = int(ended)
    return body


def status_of(session: SessionRecord) -> Status:
    """Return the status of a response. A cut answer or a refusal is not a failure."""
    if session_status.cut_reason(session) is not None:
        return "incomplete"
    return (
        "completed"
        if session_status.refusal_of(session) is not None
        else session_status.state_of(session)
    )


def initial_body(session: SessionRecord) -> bodies.ResponseBody:
    """Return the body of a response that has just begun."""
    state = session.state(ResponseState)
    created = session.tree[session.root.id].requested
    return bodies.ResponseBody(
        id=RESPONSE.of(session),
        created_at=int(created),
        status="in_progress",
        model=session.root.agent,
        output=[],
        background=state.is_background,
        store=state.is_stored,
        run=session.id,
        instructions=state.instructions,
        previous_response_id=state.previous,
        conversation=None
        if state.conversation is None
        else bodies.ConversationRef(state.conversation),
        metadata=dict(session.metadata),
        user=state.user,
        tools=state.tools,
        tool_choice=state.tool_choice,
        parallel_tool_calls=state.settings.get("parallel_tool_calls", True),
        max_output_tokens=state.settings.get("max_output_tokens"),
        temperature=state.settings.get("temperature"),
        top_p=state.settings.get("top_p"),
        top_logprobs=state.settings.get("top_logprobs"),
        reasoning=bodies.Reasoning(
            effort=state.settings.get("reasoning_effort"), summary=state.summary
        ),
        text=state.text or bodies.TextConfig(PlainText()),
    )


def _error_of(session: SessionRecord) -> bodies.ResponseError | None:
    outcome = session_status.last_outcome_of(session)
    reason = None if outcome is None else session_status.failure_reason(outcome)
    if reason is None:
        if session_status.state_of(session) == "completed":
            return None
        return bodies.ResponseError(
            code="server_error", type="cancelled", message="cancelled: it was stopped"
        )
    return bodies.ResponseError(
        code=_CODES.get(reason.code, "server_error"),
        type=reason.code,
        message=reason.message,
        retry_after=reason.retry_after,
    )


def _is_answer(item: bodies.OutputItem) -> bool:
    return not isinstance(item, bodies.MessageItem) or item.phase == "final_answer"


def output_of(session: SessionRecord) -> list[bodies.OutputItem]:
    """Return the messages of the agent, and the calls that the client has to run."""
    messages = session_status.agent_messages(session)
    calls = session_status.client_calls(session)
    is_answered = session_status.state_of(session) == "completed" and not calls
    items: list[bodies.OutputItem] = []
    for number, message in enumerate(messages):
        if message.is_reasoning:
            items.append(
                bodies.ReasoningItem(
                    id=item_id(id_suffix(session), number, "rs"),
                    summary=[bodies.SummaryText(message.text)],
                    status="completed",
                )
            )
            continue
        is_last = not any(not it.is_reasoning for it in messages[number + 1 :])
        text = message.text if is_last else message.text + BLANK_LINE
        items.append(
            bodies.MessageItem(
                id=item_id(id_suffix(session), number),
                content=[bodies.OutputText(text, logprobs=logprobs_of(message.logprobs))],
                status="incomplete" if message.incomplete else "completed",
                phase="final_answer" if is_last and is_answered else "commentary",
            )
        )
    if (refusal := session_status.refusal_of(session)) is not None:
        items.append(
            bodies.MessageItem(
                id=item_id(id_suffix(session), len(messages)),
                content=[Refusal(refusal)],
                status="completed",
                phase="final_answer",
            )
        )
    custom = custom_tools_of(session)
    if calls and (reference := _reasoning_reference(session)) is not None:
        items.append(
            bodies.ReasoningItem(
                id=item_id(id_suffix(session), len(items), "rs"),
                summary=[],
                encrypted_content=reference,
                status="completed",
            )
        )
    for number, call in enumerate(calls, len(items)):
        item = call_item(call, custom)
        item.id = f"{item.id}_{id_suffix(session)}_{number}"
        items.append(item)
    return items


def item_id(suffix: str, number: int, kind: str = "msg") -> str:
    """Return the id of an item, which is known before the message is complete."""
    return f"{kind}_{suffix}_{number}"


def _reasoning_reference(session: SessionRecord) -> str | None:
    """Return a reference to the reasoning before the calls that the client has to run."""
    if not session.state(ResponseState).has_encrypted_reasoning:
        return None
    last = _last_answer(session)
    if last is None or not any(block.data for block in last.reasoning):
        return None
    return base64.urlsafe_b64encode(f"{session.id} {last.id}".encode()).decode()


def _last_answer(session: SessionRecord) -> AssistantMessage | None:
    for message in reversed(session.root.transcript):
        if isinstance(message, AssistantMessage):
            return message
    return None


def run_of_reasoning(encrypted: str) -> tuple[SessionId, MessageId] | None:
    """Return the run and the message of a reference to reasoning; None if it is not ours."""
    try:
        text = base64.urlsafe_b64decode(encrypted.encode()).decode()
    except ValueError:
        return None
    found = _REASONING.fullmatch(text)
    return None if found is None else (SessionId(found[1]), MessageId(found[2]))


def reasoning_of(session: SessionRecord, id_: MessageId) -> tuple[ReasoningBlock, ...]:
    """Return the model's reasoning before the calls of a message."""
    message = session.root.transcript.find(id_)
    return message.reasoning if isinstance(message, AssistantMessage) else ()


def call_item(call: ToolCall, custom: Collection[str]) -> bodies.AnyCall:
    """Return the item of a call; the caller completes its id."""
    if call.name in custom:
        return bodies.CustomCallItem(
            id="ctc", call_id=call.id, name=call.name, input=custom_input(call), status="completed"
        )
    return bodies.CallItem(
        id="fc",
        call_id=call.id,
        name=call.name,
        arguments=json.dumps(dict(call.arguments), ensure_ascii=False),
        status="completed",
    )


def input_of(session: SessionRecord) -> list[bodies.InputItem]:
    """Return the input of a response and the conversation before it, oldest first."""
    items: list[bodies.InputItem] = []
    if instructions := session.state(ResponseState).system_instructions:
        items.append(_message_item("developer", [bodies.InputText(instructions)]))
    custom = custom_tools_of(session)
    names = {
        call.id: call.name
        for message in session.root.transcript
        if custom and isinstance(message, AssistantMessage)
        for call in message.calls
    }
    customs = {id_ for id_, name in names.items() if name in custom}
    for message in _input_messages(session):
        items += _items(message, custom, customs)
    for number, item in enumerate(items):
        item.id = f"{item.id}_{id_suffix(session)}_in{number}"
    return items


def _input_messages(session: SessionRecord) -> Iterator[Message]:
    own = session.state(ResponseState).message
    for message in session.root.transcript:
        if message.id.startswith("h_") or message.id == own:
            yield message
    for mail in session.mail.values():
        if isinstance(mail, UserMessage) and mail.id == own:
            yield mail


def _items(
    message: Message, custom: Collection[str], custom_calls: Collection[str]
) -> Iterator[bodies.InputItem]:
    """Yield the items of a message of the input; `custom_calls` are calls of custom tools."""
    match message:
        case UserMessage():
            texts: list[bodies.Content] = [bodies.InputText(message.text)] if message.text else []
            yield _message_item("user", [*texts, *map(_part_content, message.parts)])
        case AssistantMessage():
            if message.text:
                yield _message_item("assistant", [bodies.OutputText(message.text)])
            for call in message.calls:
                yield call_item(call, custom)
        case ToolMessage() if message.call in custom_calls:
            yield bodies.CustomCallOutputItem(id="ctco", call_id=message.call, output=message.text)
        case ToolMessage():
            yield bodies.CallOutputItem(id="fco", call_id=message.call, output=message.text)


def _message_item(role: bodies.Role, content: list[bodies.Content]) -> bodies.InputMessageItem:
    return bodies.InputMessageItem(id="msg", role=role, content=content)


def _part_content(part: Part) -> bodies.Content:
    data = base64.b64encode(part.data).decode()
    url = part.url or f"data:{part.media_type};base64,{data}"
    if part.is_image:
        return bodies.InputImage(image_url=url, detail="auto")
    if part.url:
        return bodies.InputFile(file_url=part.url, filename=part.name or None)
    return bodies.InputFile(file_data=url, filename=part.name or None)
