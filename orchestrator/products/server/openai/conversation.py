"""The checks of whole conversations that chat completions and responses share.

A parameter that would change the meaning of an answer is never ignored silently. It is refused, and
the error names the part of the request. The protocols differ only in their words: see `Dialect`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs
import msgspec

from orchestrator.agents import Agent, Pipeline, Tool, UserMessage
from orchestrator.delegation.events import EarlierMessage
from orchestrator.products.server.transport.errors import HttpError, bad_request


@attrs.frozen(kw_only=True)
class Dialect:
    """The words and error codes of one protocol for the parts of a conversation."""

    call: str
    result: str
    invalid: str
    """The code for an invalid value."""
    name_taken: str
    """The code for a tool name that the agent uses itself."""

    def invalid_value(self, message: str, param: str) -> HttpError:
        return bad_request(message, param=param, code=self.invalid)


CONTINUE: Final = "Continue your last message where it ends, without repeating it."
"""The message that stands for a conversation that ends with the assistant."""

CHAT: Final = Dialect(
    call="tool call", result="tool message", invalid="invalid_body", name_taken="tool_name_taken"
)
MESSAGES: Final = Dialect(
    call="tool_use", result="tool_result", invalid="invalid_body", name_taken="tool_name_taken"
)
RESPONSES: Final = Dialect(
    call="function_call",
    result="function_call_output",
    invalid="invalid_value",
    name_taken="invalid_value",
)


class LocatedMessage(msgspec.Struct, frozen=True, gc=False):
    """A message and its place in the request."""

    message: EarlierMessage
    param: str
    call_param: str
    """The place of the call's id in a result."""


@attrs.frozen(kw_only=True)
class Conversation:
    """A conversation as an agent takes it."""

    param: str
    """The place of its last message in the request."""
    history: tuple[EarlierMessage, ...]
    message: UserMessage | None
    """None continues after the result of a tool."""
    instructions: str


def _require_results(
    messages: Sequence[LocatedMessage],
    dialect: Dialect,
    *,
    param: str,
    open_calls: Iterable[str] = (),
) -> None:
    """Refuse a conversation that lacks a result of a call."""
    unanswered: dict[str, None] = dict.fromkeys(open_calls)
    where = param
    for located in messages:
        message, where = located.message, located.param
        if message.role != "tool":
            _require_none_open(unanswered, where, dialect)
            unanswered = dict.fromkeys(call.id for call in message.calls)
        elif message.call in unanswered:
            del unanswered[message.call]
        else:
            raise dialect.invalid_value(
                f"no {dialect.call} with the id {message.call!r} waits for a result before this"
                f" {dialect.result}",
                located.call_param,
            )
    _require_none_open(unanswered, where, dialect)


def _require_none_open(unanswered: Iterable[str], param: str, dialect: Dialect) -> None:
    if calls := ", ".join(map(repr, unanswered)):
        raise dialect.invalid_value(
            f"there is no {dialect.result} for the {dialect.call} {calls}: send one for each,"
            f" right after its {dialect.call}",
            param,
        )


def read_conversation(
    messages: Sequence[LocatedMessage],
    instructions: Iterable[str],
    dialect: Dialect,
    *,
    param: str,
    open_calls: Iterable[str] = (),
) -> Conversation:
    """Return a conversation as an agent takes it, or refuse it."""
    _require_results(messages, dialect, param=param, open_calls=open_calls)
    joined = "\n\n".join(instructions)
    if not messages:
        if not joined:
            raise dialect.invalid_value(
                "the conversation has no message to answer: send a user message", param
            )
        return Conversation(param=param, history=(), message=UserMessage(joined), instructions="")
    history = tuple(it.message for it in messages)
    last, message = history[-1], None
    if last.role == "user":
        history, message = history[:-1], UserMessage(last.text, last.parts)
    elif last.role == "assistant":
        message = UserMessage(CONTINUE)
    return Conversation(
        param=messages[-1].param, history=history, message=message, instructions=joined
    )


def require_goal(agent: Agent[Any], conversation: Conversation, tools: Sequence[Tool]) -> None:
    """Refuse a conversation that a pipeline cannot take."""
    if not isinstance(agent, Pipeline):
        return
    reason = f"{agent.name} is a pipeline, which takes only the last user message"
    if tools:
        raise bad_request(f"{reason}: it calls no tools of a client", param="tools")
    message = conversation.message
    if message is None or message.text == CONTINUE:
        raise bad_request(f"{reason}: send one", param=conversation.param)
    if message.parts:
        raise bad_request(f"{reason}: it takes neither images nor files", param=conversation.param)
