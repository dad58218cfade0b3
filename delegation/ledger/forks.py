"""Forks: tasks that continue the conversation of their parent, which is shared and not copied."""

from typing import Final

from orchestrator.agents import AssistantMessage, Message, MessageId, ToolMessage, Transcript
from orchestrator.delegation.ledger.task_record import TaskRecord
from orchestrator.delegation.task import TaskRequest

FORKED: Final = "This conversation was forked here: your original goes on with this call, not you."
"""The answer to each open call of a conversation that is forked."""
FORK: Final = (
    "You are a fork of yourself, made for one task. Do only this task: your answer goes to your"
    " original, which has the conversation above, too.\n\n"
)


def goal_of_fork(request: TaskRequest, text: str) -> str:
    """Return the first own message of a task that continues a conversation."""
    return f"{FORK}{text}" if request.copy else text


def forked_messages(task: TaskRecord, request: TaskRequest, shared: int) -> list[Message]:
    """Return the conversation that a task continues, with an answer to each open call."""
    parent = task.parent
    assert parent is not None, "a root is no fork"
    if request.copy:
        task.instructions = parent.instructions
        task.made_instructions = parent.made_instructions
    messages = [*parent.transcript[:shared]]
    last = messages[-1] if messages else None
    calls = last.calls if isinstance(last, AssistantMessage) else ()
    return messages + [
        ToolMessage(call.id, FORKED, id=MessageId(f"m_{request.id}_{number}"))
        for number, call in enumerate(calls)
    ]


def length_of_fork(transcript: Transcript, shared: int) -> int:
    """Return how many messages a transcript has before the goal of its fork."""
    last = transcript[shared - 1] if 0 < shared <= len(transcript) else None
    return shared + (len(last.calls) if isinstance(last, AssistantMessage) else 0)


def shared_messages(task: TaskRecord, shared: int) -> int:
    """Return how many messages a fork still shares with its parent: all of them, or none."""
    assert task.parent is not None, "a root is no fork"
    both = zip(task.transcript[:shared], task.parent.transcript, strict=False)
    return shared if sum(one is other for one, other in both) == shared else 0
