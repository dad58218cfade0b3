"""One goal, one answer: a session without a door that ends with its only turn.

The caller waits inside the call. Nothing can be delivered afterwards, so every task is joined.
"""

import sys
from collections.abc import Coroutine
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, get_args

import attrs
from msgspec.structs import replace

from orchestrator.agents import Agent, DefinitionError, Part, Usage, read_output
from orchestrator.delegation import (
    DeliveryCapability,
    Outcome,
    SessionId,
    SessionRecord,
    TaskId,
    Tree,
)
from orchestrator.delegation.session_context import session_strings
from orchestrator.kernel.doors import inbound
from orchestrator.kernel.doors.lifecycle import require_files_here
from orchestrator.kernel.errors import (
    ChangedProgramError,
    NotInterruptedError,
    RunFailedError,
    UnknownIdError,
    explain,
)
from orchestrator.kernel.execution.agent_registry import ChangeAgent
from orchestrator.kernel.execution.outcomes import TaskEnd, version_change
from orchestrator.kernel.history import History
from orchestrator.kernel.pipelines.current_run import is_in_pipeline, outside_pipeline
from orchestrator.kernel.sessions import Sessions

OutputT_co = TypeVar("OutputT_co", covariant=True)

CAPABILITY: Final = DeliveryCapability.NONE
OnChange: TypeAlias = Literal["refuse", "accept"]
"""How a run goes on whose program has changed since a crash."""


@attrs.frozen(kw_only=True, repr=False, slots=False)
class Run(Generic[OutputT_co]):
    """A goal, its outcome, and the tree of the tasks that it took."""

    id: SessionId
    agent: Agent[OutputT_co]
    outcome: Outcome
    tree: Tree
    error: BaseException | None = attrs.field(default=None, eq=False)
    """The error that its agent raised in this process, if that ended it."""
    _history: History | None = attrs.field(default=None, eq=False, alias="history")

    def __repr__(self) -> str:
        ending = f"{self.outcome.ending}, {len(self.tree)} tasks"
        return f"<Run {self.id} of {self.agent.name}: {ending}>"

    @property
    def output(self) -> OutputT_co:
        """The final answer, as the agent's output type.

        Raises:
            RunFailedError: the run did not succeed; its cause is the error of the tool or function
                that ended it, if one did.
        """
        if not self.outcome.succeeded:
            failure = RunFailedError(f"/{self.agent.name}", self.outcome)
            explain(failure, self.outcome, self.error)
            raise failure
        return read_output(self.agent.output, self.outcome.output)

    @property
    def usage(self) -> Usage:
        """The usage of the whole tree."""
        return self.tree.total

    def _repr_html_(self) -> str | None:
        """Return the answer and the report's viewer, for a notebook."""
        return None if self._history is None else self._history.show(self)


async def run_once(
    sessions: Sessions,
    agent: Agent[Any],
    goal: Any,
    parts: tuple[Part, ...],
    *,
    attended: bool = False,
    deps: object = None,
) -> Run[Any]:
    """Run an agent on a goal, and return when its whole tree is settled."""
    request = await inbound_run(sessions, agent, goal, parts, attended=attended, deps=deps)
    session = open_one_turn(sessions, request)
    end = await take_only_turn(sessions, session)
    return ended_run(sessions, agent, session, end.outcome, end.error)


def ended_run(
    sessions: Sessions,
    agent: Agent[Any],
    session: SessionRecord,
    outcome: Outcome,
    error: BaseException | None,
) -> Run[Any]:
    """Return the run of a session whose only turn has ended."""
    return Run(
        id=session.id,
        agent=agent,
        outcome=outcome,
        tree=session.tree,
        error=error,
        history=sessions.history,
    )


async def inbound_run(
    sessions: Sessions,
    agent: Agent[Any],
    goal: Any,
    parts: tuple[Part, ...],
    *,
    attended: bool,
    deps: object = None,
) -> inbound.InboundRequest:
    """Return the request for a run. A large one is searched for secrets in a thread."""
    message = inbound.goal_message(agent, goal)
    context = session_strings()
    if inbound.OPENTELEMETRY in sys.modules:
        # Imported late: it needs the library, which the program has imported.
        from orchestrator.kernel.doors.active_span import with_active_span

        context = with_active_span(context)
    request = inbound.InboundRequest(
        agent=agent,
        message=message if parts == () else replace(message, parts=parts),
        context=context,
        attended=attended,
        deps=deps,
    )
    if inbound.is_large(request):
        await inbound.search_request_ahead(sessions.read.redactor, request)
    return request  # noqa: ASYNC910 (what follows checkpoints)


def open_one_turn(
    sessions: Sessions, request: inbound.InboundRequest, id_: SessionId | None = None
) -> SessionRecord:
    """Open a session without a door, and begin its only turn in the same step.

    No crash can leave a session between the two that another door would take up.
    """
    session = inbound.open_inbound_session(sessions, request, id_)
    sessions.turns.begin(session, CAPABILITY)
    return session


async def resume_once(
    sessions: Sessions,
    agent: Agent[Any],
    run: str,
    *,
    deps: object = None,
    accepts_changes: bool = False,
    change: ChangeAgent | None = None,
) -> Run[Any]:
    """Go on with a run whose process died, and return when its whole tree is settled."""
    sessions.facts.require_running()
    id_ = SessionId(run)
    last = await sessions.read.last_time(id_)
    await sessions.facts.load(id_)
    # No checkpoint from here to the fact that resumes it, so that no other caller resumes it.
    session = sessions.read.records.sessions.get(id_)
    if session is None or last is None:
        raise UnknownIdError(f"there is no run {run!r}")
    accepts_changes = accepts_changes or sessions.delegator.accepts_all_changes
    require_resumable(session, agent, accepts_changes=accepts_changes, change=change)
    require_files_here(sessions, session)
    sessions.registry.register_session(id_, agent, deps)
    if change is not None:
        sessions.registry.change_agents(id_, _changed_task(session), change)
    error: BaseException | None = None
    paused = max(0, sessions.read.now() - last)
    if sessions.turns.begin(session, CAPABILITY, paused=paused, accepts_changes=accepts_changes):
        if session.forked_from:
            return await _resume_fork(sessions, agent, session)
        error = (await take_only_turn(sessions, session)).error
    else:
        # Its agent does not go on after a crash.
        await sessions.facts.wait_durable()
    assert session.last_outcome is not None, "its turn has ended"
    return ended_run(sessions, agent, session, session.last_outcome, error)


async def _resume_fork(sessions: Sessions, agent: Agent[Any], session: SessionRecord) -> Run[Any]:
    """Go on with a fork, which may end with one of its tasks."""
    # Imported late: most runs are no forks.
    from orchestrator.kernel.doors.fork_state import run_fork

    async def proceed() -> BaseException | None:
        return (await take_only_turn(sessions, session)).error

    return await run_fork(sessions, agent, session, proceed)


def accepts_changes(on_change: OnChange) -> bool:
    """Return whether programs may request other tasks than before a crash."""
    if on_change not in get_args(OnChange):
        raise DefinitionError(f"on_change is {on_change!r}; it must be 'refuse' or 'accept'")
    return on_change == "accept"


def _changed_task(session: SessionRecord) -> TaskId:
    """Return the task whose agents a fork changes; empty if it changes none."""
    # Imported late: most runs are no forks.
    from orchestrator.kernel.doors.fork_state import ForkState

    return TaskId(session.state(ForkState).changed)


def require_resumable(
    session: SessionRecord,
    agent: Agent[Any],
    *,
    accepts_changes: bool,
    change: ChangeAgent | None = None,
) -> None:
    """Refuse to resume a session that was not interrupted, or that has another agent.

    Raises:
        NotInterruptedError: it has ended, still runs, or is a conversation.
        UnknownIdError: it is the run of another agent.
        ChangedProgramError: it began with another version of its agent, or is a fork that changed
            its agents, and no change is given.
    """
    if session.closed or not session.awaits_resume:
        raise NotInterruptedError(session.id, _why_not_interrupted(session))
    if session.root.agent != agent.name:
        raise UnknownIdError(
            f"run {session.id!r} is of agent {session.root.agent!r}, not of {agent.name!r}"
        )
    turn = session.turn
    assert turn is not None, "it was interrupted in a turn"
    may_change = accepts_changes or turn.accepts_changes or agent.on_restart != "resume"
    if (turn.version or "") != agent.version and not may_change:
        found = version_change(session.root.path, turn.version or "", agent)
        raise ChangedProgramError(session.id, found)
    if session.forked_from and change is None and not may_change and _changed_task(session):
        raise ChangedProgramError(
            session.id, "it is a fork with changed agents, and no change is given (change=...)"
        )


def _why_not_interrupted(session: SessionRecord) -> str:
    if session.closed:
        return "was closed for good"
    if session.turn is None:
        ended = session.last_outcome
        how = "has not begun" if ended is None else f"has ended: {ended.ending}"
        return f"{how}; there is nothing to resume"
    if session.turn.capability is not CAPABILITY:
        return "is a conversation: it goes on when it is opened again"
    return "is under way: the process that runs it has not died"


def take_only_turn(sessions: Sessions, session: SessionRecord) -> Coroutine[Any, Any, TaskEnd]:
    """Run the turn of a one-shot session until it ends. Cancelling this cancels its tree."""
    turn = sessions.turns.take(session)
    return _hide_pipeline(turn) if is_in_pipeline() else turn


async def _hide_pipeline(turn: Coroutine[Any, Any, TaskEnd]) -> TaskEnd:
    with outside_pipeline():
        return await turn
