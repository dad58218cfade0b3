"""The state of a fork: its end, the change of its agents, and the wait for that end."""

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import trio

from orchestrator.agents import Agent
from orchestrator.delegation import SessionRecord, TaskId
from orchestrator.delegation.events import Entry, TaskSettled
from orchestrator.delegation.session_state import SessionState
from orchestrator.kernel.doors.one_shot import Run, ended_run
from orchestrator.kernel.sessions import Sessions


class ForkState(SessionState, frozen=True):
    """How a fork goes on, also after a crash."""

    NAME: ClassVar[str] = "fork"
    stops_at: str = ""
    """The task whose end is the end of the fork; empty if the whole run goes on."""
    changed: str = ""
    """The task whose agents the fork changes, with all below it; empty without a change."""
    settings: tuple[str, ...] = ()
    """The settings of that change, such as `researcher.model=openai:gpt-5`; empty if a function of
    the program makes it."""


async def run_fork(
    sessions: Sessions,
    agent: Agent[Any],
    session: SessionRecord,
    proceed: Callable[[], Awaitable[BaseException | None]],
) -> Run[Any]:
    """Run a fork until it ends, or until the end of the task that it stops at.

    The end of that task cancels `proceed` before a task above it takes a step. The task's outcome
    is then the outcome of the run.
    """
    error: BaseException | None = None
    ran: Agent[Any] | None = None
    stop = TaskId(session.state(ForkState).stops_at)
    task = sessions.read.records.tasks.get(stop)
    with trio.CancelScope() as scope:

        def receive(entry: Entry, _: object) -> None:
            nonlocal ran
            if isinstance(entry.event, TaskSettled) and entry.event.task == stop:
                ran = sessions.registry.running.get(stop)
                scope.cancel(reason="the fork ends with this task")

        if task is not None and task.outcome is not None:
            scope.cancel(reason="the task had ended before a crash")
        with sessions.read.subscribe(receive, session=session.id):
            error = await proceed()
    await sessions.facts.wait_durable()
    outcome = session.last_outcome
    if task is not None and task.outcome is not None:
        agent, outcome = ran or agent, task.outcome
    assert outcome is not None, "a turn has ended"
    return ended_run(sessions, agent, session, outcome, error)
