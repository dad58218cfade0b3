"""Converts the input of an AG-UI run to an inbound request."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from orchestrator.agents import Agent, DefinitionError, Part, well_formed
from orchestrator.delegation.events import EarlierMessage
from orchestrator.delegation.events.approvals import ApprovalVerdict
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.sessions import InboundRequest
from orchestrator.products.server.agui import bodies
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.openai import client_tools
from orchestrator.products.server.openai.client_content import (
    file_from_data,
    file_from_url,
    image_from_url,
)
from orchestrator.products.server.openai.conversation import (
    CHAT,
    LocatedMessage,
    read_conversation,
    require_goal,
)
from orchestrator.products.server.openai.responses.bodies import ResponseTool
from orchestrator.products.server.openai.responses.request import tools_of_client
from orchestrator.products.server.openai.responses.response_state import ResponseState
from orchestrator.products.server.transport.errors import HttpError, bad_request
from orchestrator.products.server.transport.json_body import MOST_MESSAGES
from orchestrator.products.server.transport.session_headers import context_of

STATE: Final = "orchestrator"
"""The name of our part of the state."""
_APPROVE: Final = {it.value: it for it in ApprovalVerdict if it is not ApprovalVerdict.DENY}


def agent_of(call: ApiCall, name: str) -> Agent[Any]:
    """Return the agent that a request names; a server with one agent needs no name."""
    agents = call.server.agents
    if name or len(agents) == 1:
        return call.server.agent(name or next(iter(agents)))
    raise HttpError(
        404,
        f"this server has several agents: send ?agent=NAME with one of {', '.join(agents)}",
        code="model_not_found",
        param="agent",
    )


def to_inbound_request(call: ApiCall, agent: Agent[Any], body: bodies.RunInput) -> InboundRequest:
    """Return the request of an input to its agent."""
    messages = _decoded(body.messages)
    instructions = [_text(it.content) for it in messages if it.role in {"system", "developer"}]
    conversation = read_conversation(
        list(_own_messages(messages)), [*instructions, *_surroundings(body)], CHAT, param="messages"
    )
    tools = [
        ResponseTool(
            type=client_tools.FUNCTION,
            name=it.name,
            description=it.description,
            parameters=it.parameters,
        )
        for it in body.tools or ()
    ]
    chosen = tools_of_client(tools, None, agent, ignores_others=False)
    require_goal(agent, conversation, chosen.tools)
    return InboundRequest(
        agent=agent,
        message=conversation.message,
        context=context_of(call.headers),
        owner=call.owner,
        instructions=conversation.instructions,
        history=conversation.history,
        kind=SessionKind.RUN,
        # After a crash the session gets the tools of its client back from this state.
        states=(*call.key_states, *([ResponseState(tools=tools)] if tools else [])),
        tools=chosen.tools,
    )


def _decoded(messages: Iterable[msgspec.Raw]) -> list[bodies.AguiMessage]:
    given = list(messages)
    if len(given) > MOST_MESSAGES:
        raise HttpError(
            413,
            f"the conversation has {len(given):,} messages, and the limit is {MOST_MESSAGES:,};"
            " begin another conversation with a summary",
            code="too_many_messages",
        )
    return [_decode(it, bodies.AguiMessage, f"messages[{i}]") for i, it in enumerate(given)]


def _decode(raw: msgspec.Raw, kind: type[bodies.AguiMessage], param: str) -> bodies.AguiMessage:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise CHAT.invalid_value(f"this message is invalid: {exc}", param) from exc


def _surroundings(body: bodies.RunInput) -> Iterator[str]:
    """Yield the application's context and state as instructions."""
    for item in body.context or ():
        yield f"{item.description}: {item.value}"
    state = client_state(body)
    if state:
        yield f"The state of the application, as JSON: {msgspec.json.encode(state).decode()}"


def client_state(body: bodies.RunInput) -> dict[str, Any]:
    """Return the state of the application without our part."""
    state: object = body.state
    if not isinstance(state, dict):
        return {}
    given = cast("dict[str, Any]", state)
    return {name: value for name, value in given.items() if name != STATE}


def _own_messages(messages: Iterable[bodies.AguiMessage]) -> Iterator[LocatedMessage]:
    """Yield the conversation of the agent itself, each call with its result.

    Messages of subagents, activities and reasoning stay with the client. A call without a result is
    left out, because its run was stopped.
    """
    numbered = [(i, it) for i, it in enumerate(messages) if it.subagent_run_id is None]
    results = {it.tool_call_id: (i, it) for i, it in numbered if it.role == "tool"}
    for number, message in numbered:
        param = f"messages[{number}]"
        if message.role == "user":
            yield LocatedMessage(_user(message, f"{param}.content"), param, param)
        elif message.role == "assistant":
            answered = [it for it in message.tool_calls or () if it.id in results]
            calls = tuple(
                client_tools.earlier_call(
                    it.function.name, it.function.arguments, it.id, param, CHAT
                )
                for it in answered
            )
            text = _text(message.content)
            if not (text or calls):
                continue
            said = EarlierMessage(role="assistant", text=text, calls=calls)
            yield LocatedMessage(said, param, param)
            for it in answered:
                place, result = results[it.id]
                told = _user(result, f"messages[{place}].content")
                converted = replace(told, role="tool", call=it.id)
                yield LocatedMessage(converted, f"messages[{place}]", f"messages[{place}]")


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join(it.text for it in _parts(content, "content") if it.type == "text")


def _parts(content: Any, param: str) -> list[bodies.ContentPart]:
    try:
        return msgspec.convert(content or [], list[bodies.ContentPart])
    except msgspec.ValidationError as exc:
        raise CHAT.invalid_value(f"the content is invalid: {exc}", param) from exc


def _user(message: bodies.AguiMessage, param: str) -> EarlierMessage:
    if isinstance(message.content, str):
        return EarlierMessage(role="user", text=well_formed(message.content))
    texts: list[str] = []
    parts: list[Part] = []
    for number, part in enumerate(_parts(message.content, param)):
        if part.type == "text":
            texts.append(well_formed(part.text))
        else:
            parts.append(_file(part, f"{param}[{number}]"))
    return EarlierMessage(role="user", text="\n\n".join(texts), parts=tuple(parts))


def _file(part: bodies.ContentPart, param: str) -> Part:
    source = part.source
    if part.type not in {"image", "document"} or source is None:
        raise bad_request(
            f"a part of type {part.type!r} is not supported: send text, images and documents with"
            " their source",
            param=param,
        )
    try:
        if source.type == "url":
            is_image = part.type == "image"
            return (
                image_from_url(source.value) if is_image else file_from_url(source.value, name="")
            )
        data = f"data:{source.mime_type};base64,{source.value}"
        return image_from_url(data) if part.type == "image" else file_from_data(data, name="")
    except DefinitionError as exc:
        raise CHAT.invalid_value(f"this part is invalid: {exc}", param) from exc


def verdict_of(entry: bodies.ResumeEntry) -> tuple[ApprovalVerdict, str]:
    """Return the verdict and the reason in the answer to an interrupt."""
    payload = entry.payload
    if entry.status == "cancelled":
        return ApprovalVerdict.DENY, "the question was dismissed"
    if isinstance(payload, bool):
        payload = {"approved": payload}
    if isinstance(payload, Mapping):
        fields = cast("Mapping[str, Any]", payload)
        approved, scope, reason = (fields.get(it) for it in ("approved", "scope", "reason"))
        scope = "once" if scope is None else scope
        if isinstance(approved, bool) and scope in _APPROVE:
            verdict = _APPROVE[scope] if approved else ApprovalVerdict.DENY
            return verdict, reason if isinstance(reason, str) else ""
    raise bad_request(
        'the answer to an approval is {"approved": true} or {"approved": false}, with a'
        ' "reason" if you like, and a "scope" of once, task or session',
        param="resume",
    )
