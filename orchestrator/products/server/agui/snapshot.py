"""The messages of a client merged with the messages of its run, each once."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec


def merged_messages(given: Sequence[msgspec.Raw], events: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return the client's messages in their order, then the messages of events that it lacks."""
    own = _messages_of(events)
    merged: list[Any] = [own.pop(id_of(it), it) for it in given]
    return [*merged, *own.values()]


def id_of(message: object) -> str:
    """Return the id of a message, encoded or not."""
    found: object = msgspec.json.decode(message) if isinstance(message, msgspec.Raw) else message
    return str(cast("dict[str, Any]", found).get("id", "")) if isinstance(found, dict) else ""


def _messages_of(events: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the messages that a client makes of events, by their ids."""
    messages: dict[str, dict[str, Any]] = {}
    functions: dict[str, dict[str, str]] = {}
    """The called functions, by the ids of their calls."""
    for event in events:
        owner = {it: event[it] for it in ("subagentRunId",) if it in event}
        match event["type"]:
            case "TEXT_MESSAGE_START":
                id_ = event["messageId"]
                messages[id_] = {"id": id_, "role": event["role"], "content": "", **owner}
            case "TEXT_MESSAGE_CONTENT":
                messages[event["messageId"]]["content"] += event["delta"]
            case "TOOL_CALL_START":
                id_, call = event["parentMessageId"], event["toolCallId"]
                holder = messages.setdefault(id_, {"id": id_, "role": "assistant", **owner})
                functions[call] = {"name": event["toolCallName"], "arguments": ""}
                made = {"id": call, "type": "function", "function": functions[call]}
                holder.setdefault("toolCalls", []).append(made)
            case "TOOL_CALL_ARGS":
                functions[event["toolCallId"]]["arguments"] += event["delta"]
            case "TOOL_CALL_RESULT":
                id_ = event["messageId"]
                messages[id_] = {
                    "id": id_,
                    "role": "tool",
                    "content": event["content"],
                    "toolCallId": event["toolCallId"],
                    **owner,
                }
            case _:
                pass
    return messages
