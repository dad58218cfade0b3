"""The port to the product that copies and shows earlier runs."""

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from orchestrator.agents import Agent

if TYPE_CHECKING:
    from orchestrator.kernel.doors.one_shot import Run
    from orchestrator.kernel.engine.cost_rules import TaskCost
    from orchestrator.kernel.pipelines.scripts.dry_run import DryRun
    from orchestrator.kernel.sessions import Sessions

OutputT = TypeVar("OutputT")


class History(Protocol):
    """Copies a run to continue it as a new one, and shows a run as a page."""

    async def fork(
        self, sessions: "Sessions", agent: Agent[OutputT], run: str, task: str, *, deps: object
    ) -> "Run[OutputT]":
        """Copy a run up to the request of a task, and run the copy from there."""
        ...

    async def retry(
        self, sessions: "Sessions", agent: Agent[OutputT], run: str, task: str, *, deps: object
    ) -> "Run[OutputT]":
        """Copy a run without the effects of the end of a task, and run the copy from there."""
        ...

    async def estimate_cost(self, agent: Agent[Any], goal: str) -> "TaskCost | None":
        """Return the simulated cost of a task; None if a price is unknown."""
        ...

    async def dry_run(self, agent: Agent[Any], goal: str) -> "DryRun":
        """Simulate the agent of a script, and return its expected cost, time and tasks."""
        ...

    def show(self, run: "Run[Any]") -> str:
        """Return the answer and the tree of a run as HTML."""
        ...
