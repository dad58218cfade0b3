"""Handoffs: which calls are one, the conversation that they pass, and the calls that cannot be one.

Imported late: most agents hand nothing off.
"""

from typing import Any, Final, assert_never

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallId,
    Pipeline,
    ToolCall,
    ToolError,
    ToolMessage,
    Transcript,
    UserMessage,
)
from orchestrator.delegation.earlier_message import EarlierMessage

DELEGATE_TASK: Final = "delegate_task"


def is_handoff(call: ToolCall) -> bool:
    """Return whether a call hands the conversation off."""
    return call.name == DELEGATE_TASK and call.arguments.get("handoff") is True


def conversation(transcript: Transcript) -> tuple[EarlierMessage, ...]:
    """Return the texts of a transcript, without the calls of tools and their results.

    A result that has ended a turn counts as a text: the answer of an earlier handoff.
    """
    said: list[EarlierMessage] = []
    handoffs: set[CallId] = set()
    result = ""
    for message in transcript:
        match message:
            case AssistantMessage():
                handoffs, result = ({it.id for it in message.calls if is_handoff(it)}, "")
                if message.text:
                    said.append(EarlierMessage(role="assistant", text=message.text))
            case ToolMessage():
                if message.call in handoffs and not message.failed:
                    result = message.text
            case UserMessage():
                if result and not message.aside:
                    said.append(EarlierMessage(role="assistant", text=result))
                said.append(EarlierMessage(role="user", text=message.text, parts=message.parts))
            case _:
                assert_never(message)
    return tuple(said)


def require_handoff(arguments: Any, taker: str, agent: Agent[Any], transcript: Transcript) -> None:
    """Raise `ToolError` if a call cannot hand the conversation off."""
    if getattr(arguments, "conversation", "none") != "none":
        raise ToolError("a handoff passes the conversation anyway: leave out conversation")
    if arguments.tasks or arguments.background:
        raise ToolError(
            "a handoff is one goal, and not in the background: leave out tasks and background"
        )
    answer = next(it for it in reversed(transcript) if isinstance(it, AssistantMessage))
    if len(answer.calls) > 1:
        raise ToolError(
            "a handoff ends your work, so it must be your only call: make the others first"
        )
    takers = [it.name for it in agent.delegates if not isinstance(it, Pipeline)]
    if taker not in takers:
        raise ToolError(
            "say which agent takes the conversation over:"
            f" {', '.join(takers) or 'none can, because they are programs'}"
        )
