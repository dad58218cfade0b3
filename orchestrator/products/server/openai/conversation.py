"""The checks of whole conversations that chat completions and responses share.

Nothing that would change the meaning of an answer is ignored silently. It is refused, and the error
names the part of the request. The two protocols differ in their words only: see `Dialect`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from orchestrator.agents import UserMessage
from orchestrator.delegation.events import EarlierMessage
from orchestrator.products.server.transport.errors import HttpError, bad_request


@attrs.frozen(kw_only=True)
class Dialect:
    """The words of one protocol for the parts of a conversation, and its error codes."""

    call: str
    result: str
    invalid: str
    """The code of an invalid value."""
    name_taken: str
    """The code of a tool name that the agent uses itself."""

    def invalid_value(self, message: str, param: str) -> HttpError:
        return bad_request(message, param=param, code=self.invalid)


CHAT: Final = Dialect(
    call="tool call", result="tool message", invalid="invalid_body", name_taken="tool_name_taken"
)
RESPONSES: Final = Dialect(
    call="function_call",
    result="function_call_output",
    invalid="invalid_value",
    name_taken="invalid_value",
)


@attrs.frozen
class LocatedMessage:
    """A message, and where it stands in the request."""

    message: EarlierMessage
    param: str
    call_param: str
    """Where a result says which call it belongs to."""


def require_answerable(
    messages: Sequence[LocatedMessage],
    dialect: Dialect,
    *,
    param: str,
    open_calls: Iterable[str] = (),
) -> None:
    """Refuse a conversation in which a call lacks its result, or nothing is left to answer.

    Args:
        messages: the conversation.
        dialect: the words of the errors.
        param: where the request says the whole conversation.
        open_calls: calls before these messages that have no result yet.
    """
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
                f"no {dialect.call} before this {dialect.result} has the id"
                f" {message.call!r} and waits for its result",
                located.call_param,
            )
    _require_none_open(unanswered, where, dialect)
    if not messages:
        raise dialect.invalid_value("there is nothing to answer: send a user message", param)
    if messages[-1].message.role == "assistant":
        raise dialect.invalid_value(
            "the conversation ends with an assistant message, so there is nothing to answer:"
            f" end with a user message or a {dialect.result}",
            where,
        )


def _require_none_open(unanswered: Iterable[str], param: str, dialect: Dialect) -> None:
    if calls := ", ".join(map(repr, unanswered)):
        raise dialect.invalid_value(
            f"there is no {dialect.result} for the {dialect.call} {calls}: send one for each,"
            f" right behind its {dialect.call}",
            param,
        )


def split_last_user_message(
    messages: Iterable[EarlierMessage],
) -> tuple[tuple[EarlierMessage, ...], UserMessage | None]:
    """Return the history, and the user message that ends it; None if a tool result does."""
    *history, last = messages
    if last.role != "user":
        return (*history, last), None
    return tuple(history), UserMessage(last.text, last.parts)
