"""The port of the delegation tools: `Delegator` carries out the requests of a model."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol, assert_never

import msgspec

from orchestrator.agents import CallId, MessageId
from orchestrator.delegation.choices import Choices
from orchestrator.delegation.events import SteeringOrigin
from orchestrator.delegation.task import Origin, TaskId

Schema = Annotated[
    dict[str, Any] | None,
    msgspec.Meta(description="A JSON schema that the answer must fit; left out: any text."),
]


class Assignment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One task, as a model requests it."""

    goal: Annotated[
        str,
        msgspec.Meta(description="What to achieve. The agent sees nothing of this conversation."),
    ]
    context: Annotated[str, msgspec.Meta(description="All it must know to achieve that.")] = ""
    agent: Annotated[str, msgspec.Meta(description="Who shall do it.")] = ""
    output_schema: Schema = None
    label: Annotated[str, msgspec.Meta(description="A short name for people.")] = ""
    depends_on: Annotated[
        tuple[str, ...],
        msgspec.Meta(
            description="Labels of tasks in this list: it starts when all of them have"
            " succeeded, and is told their outputs."
        ),
    ] = ()


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The fate of a steering message."""

    state: Literal["seen", "too_late", "gone", "waiting"]
    seen_at: int | None = None
    """The number of the model call before which the task read it."""

    @property
    def sentence(self) -> str:
        match self.state:
            case "seen":
                return f"seen before its model call {self.seen_at}"
            case "too_late":
                return "too late: it ended before it could see this"
            case "gone":
                return "gone: it had ended already"
            case "waiting":
                return "not seen yet: it will be, before its next model call"
            case _:
                assert_never(self.state)


class Delegator(Protocol):
    """Delegates tasks, waits for them, steers and cancels them."""

    async def delegate(
        self,
        assignments: Sequence[Assignment],
        *,
        parent: TaskId,
        origin: Origin,
        call: CallId,
        background: bool | None,
        handoff: bool = False,
        choices: Sequence[Choices] = (),
        by_tool: bool = False,
    ) -> str:
        """Delegate tasks, and return the text that the model reads.

        An assignment without an agent is for a copy of the parent's agent. A handoff is a single
        one, which gets the conversation of the parent: the text is its output. `choices` has one
        entry for each assignment, or is empty. `by_tool` is for one whose agent is a tool: if it
        is joined, the text is its output. Raise `ToolError` if nothing was delegated, or
        a task whose output is the text has not succeeded.
        """
        ...

    async def wait(
        self, tasks: Sequence[TaskId], *, any_of_them: bool, seconds: float | None
    ) -> None:
        """Wait until tasks have settled, or until the seconds have passed."""
        ...

    async def steer(
        self,
        messages: Mapping[TaskId, MessageId],
        text: str,
        *,
        by: str,
        origin: SteeringOrigin,
        seconds: float,
    ) -> Mapping[TaskId, Receipt]:
        """Send a message to tasks, and wait some seconds for the receipts; an id is sent once."""
        ...

    async def cancel(self, tasks: Sequence[TaskId]) -> None:
        """Cancel tasks and all below them, and return when every one of them has settled."""
        ...

    def now(self) -> float:
        """Return the current time of facts."""
        ...
