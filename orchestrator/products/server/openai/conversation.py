"""The checks of whole conversations that chat completions and responses share.

A parameter that would change the meaning of an answer is never ignored silently. It is refused, and
the error names the part of the request. The protocols differ only in their words: see `Dialect`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import attrs
import msgspec

from orchestrator.agents import UserMessage
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


def require_answerable(
    messages: Sequence[LocatedMessage],
    dialect: Dialect,
    *,
    param: str,
    open_calls: Iterable[str] = (),
) -> None:
    """Refuse a conversation that lacks a result of a call, or has no message to answer."""
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
    if not messages:
        raise dialect.invalid_value(
            "the conversation has no message to answer: send a user message", param
        )
    if messages[-1].message.role == "assistant":
        raise dialect.invalid_value(
            "the conversation ends with an assistant message, which cannot be answered: end with"
            f" a user message or a {dialect.result}",
            where,
        )


def _require_none_open(unanswered: Iterable[str], param: str, dialect: Dialect) -> None:
    if calls := ", ".join(map(repr, unanswered)):
        raise dialect.invalid_value(
            f"there is no {dialect.result} for the {dialect.call} {calls}: send one for each,"
            f" right after its {dialect.call}",
            param,
        )


def split_last_user_message(
    messages: Iterable[EarlierMessage],
) -> tuple[tuple[EarlierMessage, ...], UserMessage | None]:
    """Return the history, and the user message at its end; None if it ends with a tool result."""
    *history, last = messages
    if last.role != "user":
        return (*history, last), None
    return tuple(history), UserMessage(last.text, last.parts)
