"""Cuts the messages of a request to the room that there is: of a long one beginning and end stay.

Every cut says in the text how much is left out. A message that was not worked on yet is
never cut.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from orchestrator.agents.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from orchestrator.agents.models.model import ModelRequest
from orchestrator.agents.models.token_estimate import (
    CHARACTERS_PER_TOKEN,
    estimated_tokens,
    message_length,
)

SHORTEST_CUT: Final = 120
"""Fewer characters than this of a message say nothing, beside the note that some are left out."""
LONGEST_PLAIN_ARGUMENTS: Final = 80

EARLIER: Final = "What was said and done before, shortened to make room:\n\n"
SINCE: Final = "What you have done since then, shortened to make room:\n\n"


def room_of(request: ModelRequest, limit: int) -> int:
    """Return the most characters of all messages together, for a number of tokens."""
    # The estimate rounds down, so that all of the last token is there.
    empty = estimated_tokens(replace(request, transcript=()))
    return (limit - empty) * CHARACTERS_PER_TOKEN


def own_message(messages: Sequence[Message]) -> int | None:
    """Return the index of the message that is to be answered, if there is one."""
    asides: int | None = None
    for index in reversed(range(len(messages))):
        message = messages[index]
        if isinstance(message, UserMessage):
            if not message.aside:
                return index
            asides = index if asides is None else asides
    return asides


def cut_request(
    request: ModelRequest, messages: Sequence[Message], limit: int
) -> ModelRequest | None:
    """Return the request with these messages, cut to a number of tokens; None if it cannot be."""
    room = room_of(request, limit)
    own = _kept_index(request.transcript, messages)
    for cut in (_cut_evenly, _cut_to_a_record):
        shorter = replace(request, transcript=cut(messages, own, room))
        if estimated_tokens(shorter) <= limit:
            return shorter
    return None


def _kept_index(whole: Sequence[Message], kept: Sequence[Message]) -> int | None:
    """Return where the message that is to be answered is among those that are kept."""
    own = own_message(whole)
    if own is None:
        return None
    if own == 0:
        # It is the goal, which may be cut already.
        return 0
    return next((at for at, one in enumerate(kept) if one is whole[own]), None)


def cut_text(text: str, length: int) -> str:
    """Return the beginning and the end of a text, and between them how much is left out."""
    if len(text) <= length:
        return text
    note = f"\n[... {len(text)} characters, without the middle ...]\n"
    kept = max(0, length - len(note))
    note = f"\n[... {len(text) - kept} characters are left out here ...]\n"
    end = kept // 3
    return text[: kept - end] + note + (text[-end:] if end else "")


def cut_message(message: Message, length: int) -> Message:
    """Return a message of about this number of characters."""
    if message_length(message) <= length:
        return message
    match message:
        case UserMessage(text=text, parts=parts) | ToolMessage(text=text, parts=parts):
            # An image or a file is there or not.
            notes = "".join(f"\n[{part.label} is left out here]" for part in parts)
            cut = cut_text(text, max(0, length - len(notes))) + notes
            if isinstance(message, ToolMessage):
                return replace(message, text=cut, parts=())
            return replace(message, text=cut, parts=(), shared=0)
        case AssistantMessage(text=text, calls=()):
            return replace(message, text=cut_text(text, length))
        case AssistantMessage(text=text, calls=calls):
            each = length // (len(calls) + 1)
            shorter = replace(
                message, text="", calls=tuple(_cut_call(call, each) for call in calls)
            )
            left = max(SHORTEST_CUT, length - message_length(shorter))
            return replace(shorter, text=cut_text(text, left))


def record(messages: Iterable[Message]) -> str:
    """Return messages as one text."""
    return "\n\n".join(map(_written, messages))


def _cut_evenly(messages: Sequence[Message], own: int | None, room: int) -> tuple[Message, ...]:
    """Cut the longest messages, all to the same length."""
    lengths = [message_length(message) for message in messages]
    cut = list(messages)
    if own is not None:
        # The message to answer comes first, and leaves a quarter of the room to the work since
        # then.
        others = sum(lengths) - lengths[own]
        if own < len(messages) - 1:
            cut[own] = cut_message(messages[own], max(room - others, room - room // 4))
        room -= message_length(cut[own])
        del lengths[own]
    level = max(SHORTEST_CUT, _level(lengths, room))
    return tuple(
        message if index == own else cut_message(message, level)
        for index, message in enumerate(cut)
    )


def _level(lengths: Sequence[int], room: int) -> int:
    """Return the common length to cut all texts to, so that their sum fits."""
    left = len(lengths)
    for length in sorted(lengths):
        if length * left > room:
            return max(0, room // left)
        room -= length
        left -= 1
    return max(lengths, default=0)


def _cut_to_a_record(
    messages: Sequence[Message], own: int | None, room: int
) -> tuple[Message, ...]:
    """Write all but the message to answer as text: there are too many to keep any of them."""
    if own is None:
        return (UserMessage(cut_text(EARLIER + record(messages), room)),)
    answered = messages[own]
    if own < len(messages) - 1:
        answered = cut_message(answered, room // 2)
    room -= message_length(answered)
    before, since = messages[:own], messages[own + 1 :]
    each = room // (bool(before) + bool(since) or 1)
    cut: list[Message] = [answered]
    if each >= SHORTEST_CUT:
        if before:
            cut.insert(0, UserMessage(cut_text(EARLIER + record(before), each)))
        if since:
            cut.append(UserMessage(cut_text(SINCE + record(since), each)))
    return tuple(cut)


def _cut_call(call: ToolCall, length: int) -> ToolCall:
    """Return a call whose longest arguments are cut."""
    left_out = _arguments_length(call)
    if left_out <= max(length, LONGEST_PLAIN_ARGUMENTS):
        return call
    each = length // (len(call.arguments) or 1)
    arguments: dict[str, Any] = {
        name: cut_text(value, each) if isinstance(value, str) else value
        for name, value in call.arguments.items()
    }
    shorter = replace(call, arguments=arguments)
    if each < SHORTEST_CUT or _arguments_length(shorter) > length:
        note = f"{left_out} characters of arguments are left out here"
        shorter = replace(call, arguments={"note": note})
    return shorter


def _arguments_length(call: ToolCall) -> int:
    return len(str(call.arguments))


def _written(message: Message) -> str:
    if isinstance(message, UserMessage):
        labels = [part.label for part in message.parts]
        return ", with ".join([f"User: {message.text}", *labels])
    if isinstance(message, ToolMessage):
        labels = [part.label for part in message.parts]
        word = "Failed" if message.failed else "Result"
        return ", with ".join([f"{word}: {message.text}", *labels])
    calls = [f"\nCalled: {one.name} {one.arguments}" for one in message.calls]
    return f"Assistant: {message.text}{''.join(calls)}"
