"""The port to the product that copies and shows earlier runs."""

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from orchestrator.agents import Agent
from orchestrator.kernel.execution.agent_registry import ChangeAgent

if TYPE_CHECKING:
    from orchestrator.kernel.doors.one_shot import Run
    from orchestrator.kernel.engine.cost_rules import TaskCost
    from orchestrator.kernel.pipelines.scripts.dry_run import DryRun
    from orchestrator.kernel.sessions import Sessions


class ForkTerms(msgspec.Struct, frozen=True):
    """The parts of a run that its fork runs again, and how."""

    only: bool = False
    """Only the task and the work that follows from its result run again."""
    stop: bool = False
    """The fork ends with the task: nothing above it runs."""
    change: ChangeAgent | None = None
    """Changes the agents of the task and of its descendants."""


class History(Protocol):
    """Copies a run to continue it as a new one, and shows a run as a page."""

    async def fork(
        self,
        sessions: "Sessions",
        agent: Agent[Any],
        run: str,
        task: str,
        terms: ForkTerms,
        *,
        deps: object,
    ) -> "Run[Any]":
        """Copy a run up to the request of a task, or without the effects of its end, and run the
        copy from there.
        """
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
