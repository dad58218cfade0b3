"""The port between a turn and the process that has the journal of its task.

A turn hands its host every step, and asks it before each thing that cannot be undone. Nothing but
values passes here, so a host may be another process.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from orchestrator.agents.approved_call import ApprovedCall
from orchestrator.agents.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from orchestrator.agents.models.model import ModelEvent

Step: TypeAlias = AssistantMessage | ToolMessage
PastChecks: TypeAlias = Callable[[int], str | None]
"""Returns what checks said of a final answer, by the number of answers of the turn so far."""


class TurnHost(Protocol):
    """Records the steps of one turn, and decides when the turn may go on."""

    def record(self, step: Step, consumes: Sequence[int] = (), *, ends_turn: bool = False) -> Step:
        """Record a step, and return its recorded form: the turn goes on with the redacted one.

        Args:
            step: an answer of the model or of a tool. It need not be durable on return.
            consumes: the notices that the step contains (`ToolResult.consumes`).
            ends_turn: it is the final answer; the turn takes no further step.
        """
        ...

    async def before_record(self, step: Step) -> None:
        """Search a step for secrets that has a long text, before it is recorded."""
        ...

    async def before_instructed(self, instructions: str) -> None:
        """Note the result of a function: it is recorded with the next answer of the model.

        A turn that is resumed after that answer does not call the function again.
        """
        ...

    async def before_resume(self, unanswered: Sequence[ToolCall]) -> Sequence[ToolCall]:
        """Wait until the transcript is durable, before a turn continues after a crash.

        Returns:
            those of the unanswered calls that waited for approval, and so were never run.
        """
        ...

    def may_have_begun(self, call: ToolCall) -> bool:
        """Return whether a worker may have begun a call that a crash has interrupted."""
        ...

    async def before_model_call(self) -> Sequence[UserMessage]:
        """Wait until all steps are durable; return the steering that arrived meanwhile."""
        ...

    async def before_tool(self, call: ToolCall, *, durable: bool) -> ApprovedCall | None:
        """Wait until a call is approved and, where it acts outside the journal, durable.

        Returns:
            the approved call; None if no rule matches the task.

        Raises:
            ToolError: it may not be run; the model reads the reason.
        """
        ...

    def emit(self, event: ModelEvent) -> None:
        """Pass on what happens while the model answers. Events may be dropped."""
        ...
