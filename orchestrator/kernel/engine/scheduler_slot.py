"""The slot for the scheduler of a journal: agents set jobs through it, and people change them.

An orchestrator runs without a scheduler. Without one no job can be set, because no process would
start it.
"""

from collections.abc import Container, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

from orchestrator.agents import CallId, ToolError
from orchestrator.delegation import Origin, TaskRecord

if TYPE_CHECKING:
    from orchestrator.delegation.job_tool import SessionJobs

JobAction: TypeAlias = Literal["run", "pause", "resume", "remove"]


class JobEdit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A change of a job; None keeps the old value."""

    schedule: str | None = None
    goal: str | None = None
    zone: str | None = None
    deliver: tuple[str, ...] | None = None
    catch_up: str | None = None


class JobScheduler(Protocol):
    """Begins the jobs of a journal."""

    def jobs_of(
        self, task: TaskRecord, origin: Origin, resumed: Container[CallId]
    ) -> "SessionJobs":
        """Return the jobs of an agent's session, for the origin of the running turn."""
        ...

    def act(self, job: str, action: JobAction) -> str:
        """Do something with a job, and return the run that it began, if any."""
        ...

    def edit(self, job: str, edit: JobEdit) -> None:
        """Change a job: its old schedule starts no more runs."""
        ...


class SchedulerSlot:
    """Has the scheduler of a journal, as long as there is one."""

    def __init__(self) -> None:
        self.current: JobScheduler | None = None

    @contextmanager
    def hold(self, scheduler: JobScheduler) -> Generator[None]:
        """Have a scheduler, as long as the block lasts."""
        assert self.current is None, "a journal has one scheduler"
        self.current = scheduler
        try:
            yield
        finally:
            self.current = None

    def jobs_of(
        self, task: TaskRecord, origin: Origin, resumed: Container[CallId]
    ) -> "SessionJobs":
        """Return the jobs of the session of an agent, or raise a `ToolError`."""
        if self.current is None:
            raise ToolError(
                "no process starts jobs here, so no job can be set: `orchestrator serve`,"
                " `schedule` and `gateway` do; say so, and do not promise anything"
            )
        return self.current.jobs_of(task, origin, resumed)
