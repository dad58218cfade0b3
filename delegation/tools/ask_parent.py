"""`ask_parent`: a child asks the agent that delegated its task.

The parent answers beside its turn, from its current transcript. The answer is not added to that
transcript, and the child does not wait for a turn of the parent.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Annotated, Any, Final

import msgspec

from orchestrator.agents import (
    Agent,
    Tool,
    ToolCall,
    ToolError,
    ToolMessage,
    Transcript,
    UserMessage,
    arguments_schema,
    read_arguments,
    unanswered_calls,
)
from orchestrator.delegation.ledger.task_record import TaskRecord

ASK_PARENT: Final = "ask_parent"
MAX_QUESTION: Final = 8_000
"""How many characters a question has at most."""
STILL_OPEN: Final = "This call has no result yet: it is under way."
QUESTION: Final = (
    "The task {path}, which you have delegated to {agent}, asks you a question:\n\n{question}\n\n"
    "Answer it from what you know of this conversation, and say so if you do not know. Your answer"
    " is text that this task alone reads: call no tool, and do not go on with your own work."
)


class AskParent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `ask_parent`."""

    question: Annotated[
        str, msgspec.Meta(description="One question, in full: what you must know, and why you ask.")
    ]


def ask_parent_tool(agent: Agent[Any], ask: Callable[[str], Awaitable[str]]) -> Tool:
    """Return the tool for one task of one agent."""

    async def run(call: ToolCall) -> str:
        question = read_arguments(call, AskParent).question.strip()
        if not question:
            raise ToolError("ask something, in `question`")
        if len(question) > MAX_QUESTION:
            raise ToolError(
                f"the question has {len(question)} characters, and may have {MAX_QUESTION}:"
                " ask a shorter one"
            )
        return await ask(question)

    return Tool(
        name=ASK_PARENT,
        description="Ask the agent that gave you this task, when the goal leaves open what you"
        " must know. It knows the conversation that your task comes from.",
        parameters=_parameters(),
        run=run,
        # A question changes nothing: it is asked again if a crash has lost the answer.
        idempotent=True,
    )


def asked_transcript(child: TaskRecord, parent: TaskRecord, question: str) -> Transcript:
    """Return the current transcript of a parent, with a question of a child at its end."""
    asked = QUESTION.format(path=child.path, agent=child.agent, question=question)
    transcript = parent.transcript
    # No provider accepts open calls, and the child's own is one of them while the parent waits.
    calls = unanswered_calls(transcript)
    open_calls = [ToolMessage(call.id, STILL_OPEN) for call in calls]
    return Transcript([*transcript, *open_calls, UserMessage(asked)]).completed()


@cache
def _parameters() -> Mapping[str, Any]:
    return arguments_schema(AskParent)
