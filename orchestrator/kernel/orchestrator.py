"""The orchestrator: opened on a journal, it runs agents, and continues them after a crash."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, overload

import trio

from orchestrator.agents import Agent, DefinitionError, Part, ToolCall, new_message_id, well_formed
from orchestrator.delegation import Receipt, SessionId, TaskId, Tree
from orchestrator.delegation.events import SteeringOrigin
from orchestrator.delegation.events.approvals import ApprovalQuestion
from orchestrator.kernel.doors.approvals import ApprovalQuestions, answer_question
from orchestrator.kernel.doors.inbound import require_agent
from orchestrator.kernel.doors.lifecycle import close_session
from orchestrator.kernel.doors.one_shot import OnChange, Run, accepts_changes, resume_once, run_once
from orchestrator.kernel.engine.model_events import TaskModelEvent
from orchestrator.kernel.errors import SessionOpenError, UnknownIdError
from orchestrator.kernel.event_loop import require_trio
from orchestrator.kernel.execution.agent_registry import ChangeAgent
from orchestrator.kernel.execution.outcomes import STOPPED
from orchestrator.kernel.history import ForkTerms, History
from orchestrator.kernel.journal.facts import Facts
from orchestrator.kernel.journal.journal import Pruned
from orchestrator.kernel.journal.journals import Journals
from orchestrator.kernel.journal.subscriptions import FactQueue
from orchestrator.kernel.opened_engine import Engine
from orchestrator.kernel.read_api import ReadApi
from orchestrator.kernel.sessions import Sessions

if TYPE_CHECKING:
    from orchestrator.kernel.doors.durable_run import DurableRuns, EarlierRuns
    from orchestrator.kernel.doors.session import Session
    from orchestrator.kernel.doors.streamed_run import StreamedRun
    from orchestrator.kernel.journal.audit import AuditEvent

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
DepsT = TypeVar("DepsT")


class Orchestrator:
    """Runs agents on one journal, as long as it is open."""

    def __init__(
        self,
        engine: Engine,
        history: History,
        journals: Journals | None = None,
        *,
        earlier: "EarlierRuns | None" = None,
    ) -> None:
        self._engine = engine
        self._sessions = engine.sessions
        self._history = history
        self._journals = journals
        self._durable_runs = _durable_runs(engine.sessions, journals, earlier)
        self.questions = ApprovalQuestions(
            engine.sessions, None, is_closed=lambda: self.read.is_closed
        )
        """The approval questions of all runs and sessions, each once: `answer` them."""

    @property
    def sessions(self) -> Sessions:
        """The port for sessions: doors open, run and close them here."""
        return self._sessions

    @property
    def facts(self) -> Facts:
        """The port for facts: doors post them here, and wait until they are durable."""
        return self._sessions.facts

    @property
    def read(self) -> ReadApi:
        """Its sessions, tasks, entries and live events, to read and to subscribe to."""
        return self._sessions.read

    @overload
    async def run(
        self,
        agent: Agent[OutputT, InputT, None],
        goal: InputT,
        *parts: Part,
        attended: bool = False,
    ) -> Run[OutputT]: ...
    @overload
    async def run(
        self,
        agent: Agent[OutputT, InputT, DepsT],
        goal: InputT,
        *parts: Part,
        deps: DepsT,
        attended: bool = False,
    ) -> Run[OutputT]: ...
    async def run(
        self,
        agent: Agent[OutputT, InputT, Any],
        goal: InputT,
        *parts: Part,
        deps: Any = None,
        attended: bool = False,
    ) -> Run[OutputT]:
        """Run an agent on a goal, and return when its whole tree is settled.

        A run takes no messages after it returns, so every child is joined. Cancelling it cancels
        the tree.

        Args:
            agent: the agent to run.
            goal: a text, or the input that a pipeline takes.
            parts: images and files that go with the goal.
            deps: the values that the tools and instructions of the whole tree need from the
                program. They are never recorded.
            attended: another task answers `questions` meanwhile; by default a call that needs an
                approval is denied.
        """
        require_trio()
        if self._durable_runs is not None:
            return await self._durable_runs.run(agent, goal, parts, attended=attended, deps=deps)
        return await run_once(self._sessions, agent, goal, parts, attended=attended, deps=deps)

    @overload
    def stream(
        self,
        agent: Agent[OutputT, InputT, None],
        goal: InputT,
        *parts: Part,
        attended: bool = False,
    ) -> "AbstractAsyncContextManager[StreamedRun[OutputT]]": ...
    @overload
    def stream(
        self,
        agent: Agent[OutputT, InputT, DepsT],
        goal: InputT,
        *parts: Part,
        deps: DepsT,
        attended: bool = False,
    ) -> "AbstractAsyncContextManager[StreamedRun[OutputT]]": ...
    def stream(
        self,
        agent: Agent[OutputT, InputT, Any],
        goal: InputT,
        *parts: Part,
        deps: Any = None,
        attended: bool = False,
    ) -> "AbstractAsyncContextManager[StreamedRun[OutputT]]":
        """Run an agent on a goal, and read its events while it runs.

        `async with orchestrator.stream(agent, goal) as run: async for event in run: ...` has the
        text, the tool calls, the delegations and the results of the whole tree. The block owns the
        run: leaving it early cancels the tree, and returns when everything in it has ended.

        Args:
            agent: the agent to run.
            goal: a text, or the input that a pipeline takes.
            parts: images and files that go with the goal.
            deps: the values that the tools and instructions of the whole tree need from the
                program.
            attended: the program answers the `ApprovalNeeded` events; by default a call that needs
                an approval is denied.
        """
        return self._stream(agent, goal, parts, attended=attended, deps=deps)

    @asynccontextmanager
    async def _stream(
        self,
        agent: Agent[OutputT],
        goal: Any,
        parts: tuple[Part, ...],
        *,
        attended: bool,
        deps: object,
    ) -> "AsyncGenerator[StreamedRun[OutputT]]":
        # Imported late: most programs wait for the answer.
        from orchestrator.kernel.doors.streamed_run import stream_once

        require_trio()
        async with stream_once(
            self._sessions, agent, goal, parts, attended=attended, deps=deps
        ) as run:
            yield run

    @overload
    def open_session(
        self, agent: Agent[Any, Any, None], *, session: str | None = None
    ) -> "AbstractAsyncContextManager[Session]": ...
    @overload
    def open_session(
        self, agent: Agent[Any, Any, DepsT], *, deps: DepsT, session: str | None = None
    ) -> "AbstractAsyncContextManager[Session]": ...
    def open_session(
        self, agent: Agent[Any, Any, Any], *, session: str | None = None, deps: Any = None
    ) -> "AbstractAsyncContextManager[Session]":
        """Open a conversation, which takes messages and gives replies as long as it is open.

        Args:
            agent: the agent to talk to.
            session: the id of an earlier conversation with this agent, to continue it.
            deps: the values that the tools and instructions of the whole tree need from the
                program, as long as this process has the session.
        """
        id_ = None if session is None else SessionId(session)
        return self._open_session(agent, id_, deps)

    @asynccontextmanager
    async def _open_session(
        self, agent: Agent[Any], id_: SessionId | None, deps: object
    ) -> "AsyncGenerator[Session]":
        # Imported late: most programs run goals.
        from orchestrator.kernel.doors.session import open_session

        require_trio()
        require_agent(agent)
        await self._require_here(id_)
        async with open_session(self._sessions, agent, id_, deps=deps) as session:
            yield session

    @overload
    async def resume(
        self,
        agent: Agent[OutputT, Any, None],
        run: str,
        *,
        on_change: OnChange = "refuse",
        change: ChangeAgent | None = None,
    ) -> Run[OutputT]: ...
    @overload
    async def resume(
        self,
        agent: Agent[OutputT, Any, DepsT],
        run: str,
        *,
        deps: DepsT,
        on_change: OnChange = "refuse",
        change: ChangeAgent | None = None,
    ) -> Run[OutputT]: ...
    async def resume(
        self,
        agent: Agent[OutputT, Any, Any],
        run: str,
        *,
        deps: Any = None,
        on_change: OnChange = "refuse",
        change: ChangeAgent | None = None,
    ) -> Run[OutputT]:
        """Continue a run whose process died, and return when its whole tree is settled.

        It continues from its last durable step: finished steps and tasks are not repeated.

        Args:
            agent: the agent of the run, in its present definition.
            run: the id of the interrupted run.
            deps: the values that the program gave to the run; no journal has them.
            on_change: with `"accept"`, a pipeline whose program has changed may request other
                tasks than before; the outcome has a note about it.
            change: the change that a fork began with; see `fork`.

        Raises:
            ChangedProgramError: the program of a pipeline has changed, or the change of a fork is
                missing; the run stays interrupted.
            NotInterruptedError: it has ended, still runs, or is a conversation.
            UnknownIdError: there is no such run, or it belongs to another agent.
        """
        require_trio()
        require_agent(agent)
        await self._require_here(SessionId(run))
        accepts = accepts_changes(on_change)
        return await resume_once(
            self._sessions, agent, run, deps=deps, accepts_changes=accepts, change=change
        )

    @overload
    async def fork(
        self, agent: Agent[OutputT, Any, None], run: str, *, task: str
    ) -> Run[OutputT]: ...
    @overload
    async def fork(
        self, agent: Agent[OutputT, Any, DepsT], run: str, *, task: str, deps: DepsT
    ) -> Run[OutputT]: ...
    @overload
    async def fork(
        self,
        agent: Agent[OutputT, Any, Any],
        run: str,
        *,
        only: str,
        change: ChangeAgent | None = None,
        deps: Any = None,
    ) -> Run[OutputT]: ...
    @overload
    async def fork(
        self,
        agent: Agent[Any, Any, Any],
        run: str,
        *,
        only: str,
        stop: bool,
        change: ChangeAgent | None = None,
        deps: Any = None,
    ) -> Run[Any]: ...
    async def fork(
        self,
        agent: Agent[Any, Any, Any],
        run: str,
        *,
        task: str = "",
        only: str = "",
        stop: bool = False,
        change: ChangeAgent | None = None,
        deps: Any = None,
    ) -> Run[Any]:
        """Run again from the middle of a run, with real models and tools, as a new run.

        With `task`, all steps before the request of the task are copied. With `only`, all steps
        that do not follow from the result of the task are copied: the task runs, then the tasks
        that depend on it and the next steps of the tasks above it. A copied step costs nothing.
        Returns when the new run is settled.

        Args:
            agent: the agent of the run, in its present definition.
            run: the id of a run that has ended, or whose process died.
            task: the first task to run again: its id, or its path such as
                `/editor/researcher[3]`; the root runs the whole run again.
            only: the only task to run again, in place of `task`.
            stop: end the new run with the result of the task, which is then its output.
            change: returns the agent to run in place of an agent of the task and its descendants;
                the journal has no functions, so a resumed fork needs it again.
            deps: the values that the tools and instructions of the new run need from the program.
        """
        if bool(task) is bool(only):
            raise DefinitionError("fork() takes the first task to run again as task, or only")
        if task and (stop or change is not None):
            raise DefinitionError("fork() takes stop and change with only=, not with task=")
        terms = ForkTerms(bool(only), stop, change)
        return await self._fork(agent, run, task or only, terms, deps)

    @overload
    async def retry(
        self, agent: Agent[OutputT, Any, None], run: str, *, task: str
    ) -> Run[OutputT]: ...
    @overload
    async def retry(
        self, agent: Agent[OutputT, Any, DepsT], run: str, *, task: str, deps: DepsT
    ) -> Run[OutputT]: ...
    async def retry(
        self, agent: Agent[OutputT, Any, Any], run: str, *, task: str, deps: Any = None
    ) -> Run[OutputT]:
        """Run a task again, in a new run that keeps all other work of the old one.

        The task starts from the beginning. The tasks above it repeat the steps that followed its
        end, and tasks that depended on it, or were cancelled because of it, run again. All other
        work is copied, and costs nothing. Returns when the new run is settled; the old one does not
        change. `fork(only=task)` does the same, and can change the agent of the task.

        Args:
            agent: the agent of the run, in its present definition.
            run: the id of a run that has ended, or whose process died.
            task: the id of a task, or its path such as `/editor/researcher[3]`; the root does the
                whole run again.
            deps: the values that the tools and instructions of the new run need from the program.

        Raises:
            ReplayError: the task or the run has not ended.
        """
        return await self._fork(agent, run, task, ForkTerms(only=True), deps)

    async def _fork(
        self, agent: Agent[Any], run: str, task: str, terms: ForkTerms, deps: object
    ) -> Run[Any]:
        require_trio()
        require_agent(agent)
        await self._require_here(SessionId(run))
        return await self._history.fork(self._sessions, agent, run, task, terms, deps=deps)

    def listen(self) -> AbstractContextManager[trio.MemoryReceiveChannel[TaskModelEvent]]:
        """Receive the events of all models while they answer, as long as the block lasts.

        A reader that falls behind misses events, and each event says how many; no model waits.
        """
        return self.read.open_model_events()

    async def cancel(self, task: str, *, tree: bool = False) -> None:
        """Cancel a task and its descendants, and return when all of them are settled.

        For a session, the turn is cancelled, also one that a message is about to start; its
        detached tasks and commands run on. A later message, or the notice of a cancelled task,
        starts another turn.

        Args:
            task: the id of a task or a session.
            tree: for a session, cancel its detached tasks and commands, too.
        """
        id_ = await self._load_task(task)
        delegator = self._sessions.delegator
        if (session := SessionId(task)) in self._sessions.read.records.sessions:
            await delegator.cancel_session(session, tree=tree)
        else:
            await delegator.cancel([id_])
        machine = self._sessions.machine
        if tree and (commands := machine.commands_of(id_)):
            await machine.commands.end(commands, STOPPED)
            await self._sessions.facts.wait_durable()

    async def pause(self, task: str) -> None:
        """Start no new task below a task, until it is unpaused; return when that is durable.

        Running tasks go on. The tasks that they delegate wait in the queue, in their order, also in
        the next process, and their deadlines keep running.

        Args:
            task: the id of a task; the id of a run or a session pauses its whole tree.

        Raises:
            EndedError: it has ended.
        """
        await self._sessions.delegator.pause(await self._load_task(task), paused=True)

    async def unpause(self, task: str) -> None:
        """Start tasks below a paused task again; the waiting ones start first.

        Args:
            task: the id of the paused task.

        Raises:
            EndedError: it has ended.
        """
        await self._sessions.delegator.pause(await self._load_task(task), paused=False)

    async def steer(self, task: str, message: str, *, seconds: float = 0) -> Receipt:
        """Send a message to a running task, which reads it before its next model call.

        The receipt comes when the message survives a crash.

        Args:
            task: the id of the task.
            message: the text of the message.
            seconds: how long to wait until the task has seen it.
        """
        id_ = await self._load_task(task)
        receipts = await self._sessions.delegator.steer(
            {id_: new_message_id()},
            well_formed(message),
            by="outside",
            origin=SteeringOrigin.OUTSIDE,
            seconds=seconds,
        )
        return receipts[id_]

    async def close_session(self, session: str) -> None:
        """End a conversation for good: cancel its tasks, drop its undelivered replies.

        It cannot be opened again.
        """
        require_trio()
        id_ = SessionId(session)
        await self._sessions.facts.load(id_)
        if id_ not in self._sessions.read.records.sessions:
            raise UnknownIdError(f"there is no session {session!r}")
        await close_session(self._sessions, self._sessions.read.records.sessions[id_])

    @property
    def approvals(self) -> list[ApprovalQuestion]:
        """The calls that wait for an approval now, oldest first; `async for` reads `questions`."""
        return self.read.open_questions()

    async def answer(self, approval: str, answer: str, *, reason: str = "", by: str = "") -> None:
        """Approve or deny a call that waits for an approval. The first answer holds.

        Args:
            approval: the id of the question.
            answer: `"once"`; `"task"`, for the same call in this task and below it; `"session"`,
                for the same call in this session; or `"deny"`.
            reason: why, for the agent to read.
            by: the name of the person who answers.

        Raises:
            UnknownIdError: no call waits for that approval any more.
        """
        require_trio()
        await answer_question(self._sessions, approval, answer, reason=reason, by=by)

    async def drain(self, seconds: float) -> bool:
        """Start no new work, wait for running work, and return whether all of it has ended.

        `run`, `ask` and `open_session` raise `ClosedError`; tasks that have not started and unread
        mail wait for the next process. Work that still runs after the wait goes on until the
        orchestrator is closed, which interrupts or cancels it.

        Args:
            seconds: the longest wait.
        """
        from orchestrator.kernel.engine.shutdown import drain

        return await drain(self._engine.book, seconds)

    async def abandon(self) -> None:
        """Settle running work without waiting for it, and post no more facts.

        For a process that must exit while a thread or a cleanup hangs. Work that can resume is
        interrupted.
        """
        from orchestrator.kernel.engine.shutdown import abandon

        engine = self._engine
        engine.servers.kill_now()
        await abandon(engine.book, engine.runner.settlement, engine.sessions.machine)

    async def prune(self, *, before: float, by: "AuditEvent | None" = None) -> Pruned:
        """Delete the idle runs that have no fact since a time, and free the space.

        All other work goes on meanwhile. Sessions that are not idle are kept: running work, unread
        mail, and replies that no door has taken.

        Args:
            before: seconds since the epoch.
            by: the actor, for the audit.
        """
        return await self._engine.book.prune(before=before, by=by)

    async def preview_prune(self, *, before: float) -> Pruned:
        """Return the runs that `prune` would delete now; their entries are not counted.

        Args:
            before: seconds since the epoch.
        """
        return await self._engine.book.preview_prune(before=before)

    async def delete_run(self, run: str, *, by: "AuditEvent | None" = None) -> Pruned:
        """Delete one idle run, or one whose facts are damaged, whatever its age.

        Args:
            run: its id.
            by: the actor, for the audit.

        Raises:
            UnknownIdError: there is no such run.
            SessionOpenError: it is not idle.
        """
        id_ = SessionId(run)
        if id_ not in self.read.session_ids:
            raise UnknownIdError(f"there is no run {run!r}")
        pruned = await self._engine.book.prune(before=0, only=id_, by=by)
        if not pruned.runs:
            raise SessionOpenError(f"run {run!r} is not idle, and stays")
        return pruned

    @property
    def working(self) -> int:
        """The number of tasks that run now, the turns of runs and sessions included."""
        return self.read.running_count

    @property
    def runs(self) -> list[SessionId]:
        """The ids of all runs and sessions in the journal, oldest first."""
        return list(self.read.session_ids)

    def tree(self, session: str) -> Tree:
        """Return the tree of a run or a session that is in memory; it grows while that runs.

        Only some of the ended ones stay in memory: `read_tree` finds the others.
        """
        return self.read.tree(session)

    async def read_tree(self, session: str) -> Tree:
        """Return the tree of a run or a session, from memory or from the journal."""
        require_trio()
        return await self.read.read_tree(session)

    def calls(self, task: str) -> list[ToolCall]:
        """Return the tool calls of a task in memory that are not answered yet."""
        return self.read.calls(task)

    def now(self) -> float:
        """Return the time of this orchestrator, which dates its facts."""
        return self.read.now()

    async def wait_changed(self, *, after: int = 0) -> int:
        """Wait until the journal has more entries than this, and return how many it has."""
        require_trio()
        return await self.read.wait_posted(after=after)

    async def wait_durable(self, *, after: int = 0) -> int:
        """Wait until more entries than this survive a crash, and return how many do."""
        require_trio()
        return await self.read.wait_durable(after=after)

    def subscribe(self) -> AbstractContextManager[FactQueue]:
        """Queue the facts of all sessions when they are posted, as long as the block lasts."""
        return self.read.queue()

    async def _require_here(self, session: SessionId | None) -> None:
        """Refuse a session that is in another journal of the same folder."""
        if session is None or session in self.read.session_ids:
            return  # noqa: ASYNC910 (what follows checkpoints)
        if (journals := self._journals) is None:
            return  # noqa: ASYNC910 (what follows checkpoints)
        name = await trio.to_thread.run_sync(journals.find, session)
        if name is not None:
            raise UnknownIdError(
                f"{session!r} is in another journal, {name}: open_orchestrator(...,"
                f" session={session!r}) opens that one"
            )

    async def _load_task(self, task: str) -> TaskId:
        require_trio()
        # It may be an idle session.
        await self._sessions.facts.load(SessionId(task))
        if task not in self._sessions.read.records.tasks:
            raise UnknownIdError(f"there is no task {task!r}")
        return TaskId(task)


def _durable_runs(
    sessions: Sessions, journals: Journals | None, earlier: "EarlierRuns | None"
) -> "DurableRuns | None":
    if earlier is None:
        return None
    # Imported late: most programs begin a new run with each call.
    from orchestrator.kernel.doors.durable_run import DurableRuns

    return DurableRuns(sessions, journals, earlier)
