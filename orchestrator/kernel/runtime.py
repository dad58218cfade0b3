"""The orchestrator: opened on a journal, it runs agents, and goes on after a crash."""

import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, get_args, overload

import trio

from orchestrator.agents import Agent, DefinitionError, Part, ToolCall, new_message_id, well_formed
from orchestrator.agents.redaction.command_environment import without_secret_variables
from orchestrator.agents.redaction.redactor import Redactor, secret_values
from orchestrator.agents.sandbox.detection import SandboxChoice
from orchestrator.delegation import Receipt, Rules, SessionId, TaskId, Tree
from orchestrator.delegation.events import SteeringOrigin
from orchestrator.delegation.events.approvals import ApprovalQuestion
from orchestrator.kernel.doors.approvals import ApprovalQuestions, answer_question
from orchestrator.kernel.doors.durable_run import DurableRuns, EarlierRuns, find_earlier
from orchestrator.kernel.doors.inbound import require_agent
from orchestrator.kernel.doors.lifecycle import close_session, release_agents
from orchestrator.kernel.doors.one_shot import Run, resume_once, run_once
from orchestrator.kernel.doors.session import Session, open_session
from orchestrator.kernel.doors.streamed_run import StreamedRun, stream_once
from orchestrator.kernel.engine.model_events import TaskModelEvent
from orchestrator.kernel.engine.shutdown import abandon, drain
from orchestrator.kernel.errors import SessionOpenError, UnknownIdError
from orchestrator.kernel.event_loop import require_trio
from orchestrator.kernel.execution.agent_registry import AgentRegistry
from orchestrator.kernel.execution.model_resolver import ModelResolver
from orchestrator.kernel.execution.outcomes import STOPPED
from orchestrator.kernel.execution.program_sandbox import ProgramSandbox
from orchestrator.kernel.execution.tool_place import HERE, ToolPlace, require_here
from orchestrator.kernel.execution.workspace.host import host_of
from orchestrator.kernel.execution.workspace.task_workspace import resolve_workspace_settings
from orchestrator.kernel.journal.audit import AuditEvent
from orchestrator.kernel.journal.backends import journals_at
from orchestrator.kernel.journal.bookkeeper import Bookkeeper
from orchestrator.kernel.journal.journal import Journal, Pruned, restore_ledger
from orchestrator.kernel.journal.journals import Journals, open_journal
from orchestrator.kernel.journal.subscriptions import FactQueue
from orchestrator.kernel.loaded_file import require_not_loading
from orchestrator.kernel.read_api import ReadApi
from orchestrator.kernel.services import Services, open_services
from orchestrator.kernel.state_files import (
    FIRST_JOURNAL,
    JOURNAL_VARIABLE,
    state_files,
    state_folder,
)
from orchestrator.products.history.replay.fork import fork_run, retry_task
from orchestrator.products.mcp.client.connections import McpConnections

if TYPE_CHECKING:
    from orchestrator.agents.models.http.answer_limits import AnswerLimits
    from orchestrator.agents.models.provider_table import Provider
    from orchestrator.agents.models.wrappers.prices import PriceTable
    from orchestrator.agents.models.wrappers.rate_limit import Limiter
    from orchestrator.products.cluster.worker_place import OpenExchange

SANDBOX_VARIABLE: Final = "ORCHESTRATOR_SANDBOX"
QUEUE_VARIABLE: Final = "ORCHESTRATOR_QUEUE"
DEFAULT_QUEUE: Final = "absurd"
HERE_VARIABLE: Final = "ORCHESTRATOR_HERE"
RunKind: TypeAlias = Literal["new", "durable"]
InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
DepsT = TypeVar("DepsT")


class Orchestrator:
    """Runs agents on one journal, as long as it is open."""

    def __init__(
        self,
        services: Services,
        journals: Journals | None = None,
        *,
        earlier: EarlierRuns | None = None,
    ) -> None:
        self._services = services
        self._journals = journals
        self._durable_runs = None if earlier is None else DurableRuns(services, journals, earlier)
        self.asks = ApprovalQuestions(services, None, is_closed=lambda: services.book.closed)
        """The approval questions of all runs and sessions, each once: `answer` them."""

    @property
    def services(self) -> Services:
        """Its parts, for the doors that open sessions on it; to read, use `read`."""
        return self._services

    @property
    def read(self) -> ReadApi:
        """Its sessions, tasks, entries and live events, to read and to subscribe to."""
        return self._services.read

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
            deps: what the tools and instructions of the whole tree need of the program. It is in
                no fact.
            attended: another task answers `asks` meanwhile; by default a call that needs an
                approval is denied.
        """
        require_trio()
        if self._durable_runs is not None:
            return await self._durable_runs.run(agent, goal, parts, attended=attended, deps=deps)
        return await run_once(self._services, agent, goal, parts, attended=attended, deps=deps)

    @overload
    def stream(
        self,
        agent: Agent[OutputT, InputT, None],
        goal: InputT,
        *parts: Part,
        attended: bool = False,
    ) -> AbstractAsyncContextManager[StreamedRun[OutputT]]: ...
    @overload
    def stream(
        self,
        agent: Agent[OutputT, InputT, DepsT],
        goal: InputT,
        *parts: Part,
        deps: DepsT,
        attended: bool = False,
    ) -> AbstractAsyncContextManager[StreamedRun[OutputT]]: ...
    def stream(
        self,
        agent: Agent[OutputT, InputT, Any],
        goal: InputT,
        *parts: Part,
        deps: Any = None,
        attended: bool = False,
    ) -> AbstractAsyncContextManager[StreamedRun[OutputT]]:
        """Run an agent on a goal, and read its events while it goes on.

        `async with orchestrator.stream(agent, goal) as run: async for event in run: ...` has the
        text, the tool calls, the delegations and the results of the whole tree. The block owns the
        run: leaving it early cancels the tree, and returns when everything in it has ended.

        Args:
            agent: the agent to run.
            goal: a text, or the input that a pipeline takes.
            parts: images and files that go with the goal.
            deps: what the tools and instructions of the whole tree need of the program.
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
    ) -> AsyncGenerator[StreamedRun[OutputT]]:
        require_trio()
        async with stream_once(
            self._services, agent, goal, parts, attended=attended, deps=deps
        ) as run:
            yield run

    @overload
    def open_session(
        self, agent: Agent[Any, Any, None], *, session: str | None = None
    ) -> AbstractAsyncContextManager[Session]: ...
    @overload
    def open_session(
        self, agent: Agent[Any, Any, DepsT], *, deps: DepsT, session: str | None = None
    ) -> AbstractAsyncContextManager[Session]: ...
    def open_session(
        self, agent: Agent[Any, Any, Any], *, session: str | None = None, deps: Any = None
    ) -> AbstractAsyncContextManager[Session]:
        """Open a conversation, which takes messages and gives replies as long as it is open.

        Args:
            agent: the agent to talk to.
            session: the id of an earlier conversation with this agent, to go on with it.
            deps: what the tools and instructions of the whole tree need of the program, as long
                as this process has the session.
        """
        id_ = None if session is None else SessionId(session)
        return self._open_session(agent, id_, deps)

    @asynccontextmanager
    async def _open_session(
        self, agent: Agent[Any], id_: SessionId | None, deps: object
    ) -> AsyncGenerator[Session]:
        require_trio()
        require_agent(agent)
        await self._require_here(id_)
        async with open_session(self._services, agent, id_, deps=deps) as session:
            yield session

    @overload
    async def resume(self, agent: Agent[OutputT, Any, None], run: str) -> Run[OutputT]: ...
    @overload
    async def resume(
        self, agent: Agent[OutputT, Any, DepsT], run: str, *, deps: DepsT
    ) -> Run[OutputT]: ...
    async def resume(
        self, agent: Agent[OutputT, Any, Any], run: str, *, deps: Any = None
    ) -> Run[OutputT]:
        """Go on with a run whose process died, and return when its whole tree is settled.

        It goes on from its last durable step: finished steps and tasks are not done again.

        Args:
            agent: the agent of the run, as it is defined now.
            run: the id of the interrupted run.
            deps: what the program gave to the run; no journal has it.

        Raises:
            NotInterruptedError: it has ended, is under way, or is a conversation.
            UnknownIdError: there is no such run, or it is of another agent.
        """
        require_trio()
        require_agent(agent)
        await self._require_here(SessionId(run))
        return await resume_once(self._services, agent, run, deps=deps)

    @overload
    async def fork(
        self, agent: Agent[OutputT, Any, None], run: str, *, task: str
    ) -> Run[OutputT]: ...
    @overload
    async def fork(
        self, agent: Agent[OutputT, Any, DepsT], run: str, *, task: str, deps: DepsT
    ) -> Run[OutputT]: ...
    async def fork(
        self, agent: Agent[OutputT, Any, Any], run: str, *, task: str, deps: Any = None
    ) -> Run[OutputT]:
        """Go on from the middle of a run, with models and tools, as a new run.

        What happened before the task was requested is copied, and costs nothing. Returns when the
        new run is settled.

        Args:
            agent: the agent of the run, as it is defined now.
            run: the id of a run that has ended, or whose process died.
            task: the first task to run again: its id, or its path such as
                `/editor/researcher[3]`; that of the root runs all of it again.
            deps: what the tools and instructions of the new run need of the program.
        """
        require_trio()
        require_agent(agent)
        await self._require_here(SessionId(run))
        return await fork_run(self._services, agent, run, task, deps=deps)

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
        """Do a task that did not succeed again, as a new run that has all else of the old one.

        The task begins anew. What those above it made of its end is done again, and so are tasks
        that were refused or cancelled because of it. All else is copied, and costs nothing. Returns
        when the new run is settled; the old one stays as it is.

        Args:
            agent: the agent of the run, as it is defined now.
            run: the id of a run that has ended, or whose process died.
            task: its id, or its path such as `/editor/researcher[3]`; that of the root does all
                of it again.
            deps: what the tools and instructions of the new run need of the program.

        Raises:
            ReplayError: the task has succeeded, or the run has not ended.
        """
        require_trio()
        require_agent(agent)
        await self._require_here(SessionId(run))
        return await retry_task(self._services, agent, run, task, deps=deps)

    def listen(self) -> AbstractContextManager[trio.MemoryReceiveChannel[TaskModelEvent]]:
        """Receive the events of all models while they answer, as long as the block lasts.

        A reader that falls behind misses events, and each event says how many; no model waits.
        """
        return self.read.open_model_events()

    async def cancel(self, task: str, *, tree: bool = False) -> None:
        """Cancel a task and its descendants, and return when all of them are settled.

        Of a session, the turn is cancelled, also one that a message is about to begin; its detached
        tasks and commands run on. What comes later begins another turn: a message, or the notice
        of a task that was cancelled.

        Args:
            task: the id of a task or a session.
            tree: of a session, cancel its detached tasks and commands, too.
        """
        id_ = await self._load_task(task)
        delegator = self._services.delegator
        if (session := SessionId(task)) in self._services.book.ledger.sessions:
            await delegator.cancel_session(session, tree=tree)
        else:
            await delegator.cancel([id_])
        background = self._services.background
        if tree and (commands := background.commands_of(id_)):
            await background.end(commands, STOPPED)
            await self._services.book.wait_durable()

    async def pause(self, task: str) -> None:
        """Start no new task below a task, until it is unpaused; return when that is durable.

        What runs goes on, and may ask for more: that waits in the queue, in its order, also in the
        next process. Deadlines run on.

        Args:
            task: the id of a task, or of a run or a session, whose whole tree it is then.

        Raises:
            EndedError: it has ended.
        """
        await self._services.delegator.pause(await self._load_task(task), paused=True)

    async def unpause(self, task: str) -> None:
        """Start tasks below a task again, those that wait first.

        Args:
            task: the id of the task that was paused.

        Raises:
            EndedError: it has ended.
        """
        await self._services.delegator.pause(await self._load_task(task), paused=False)

    async def steer(self, task: str, message: str, *, seconds: float = 0) -> Receipt:
        """Send a message to a running task, which reads it before its next model call.

        The receipt comes when the message survives a crash.

        Args:
            task: the id of the task.
            message: the text of the message.
            seconds: how long to wait until the task has seen it.
        """
        id_ = await self._load_task(task)
        receipts = await self._services.delegator.steer(
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
        book = self._services.book
        await book.cache.load(id_)
        if id_ not in book.ledger.sessions:
            raise UnknownIdError(f"there is no session {session!r}")
        await close_session(self._services, book.ledger.sessions[id_])

    @property
    def approvals(self) -> list[ApprovalQuestion]:
        """The calls that wait for an approval now, oldest first; `async for` reads `asks`."""
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
        await answer_question(self._services, approval, answer, reason=reason, by=by)

    async def drain(self, seconds: float) -> bool:
        """Begin nothing new from now on, wait for what runs, and return whether all has ended.

        `run`, `ask` and `open_session` raise `ClosedError`; tasks that have not started and unread
        mail wait for the next process. What still runs after so many seconds goes on until the
        orchestrator is closed, which interrupts or cancels it.

        Args:
            seconds: how long to wait at most.
        """
        return await drain(self._services.book, seconds)

    async def abandon(self) -> None:
        """Settle what still runs without waiting for it, and post no more facts.

        For a process that must exit while a thread or a cleanup hangs. What can resume is
        interrupted.
        """
        services = self._services
        services.servers.kill_now()
        await abandon(services.book, services.runner.settlement, services.background)

    async def prune(self, *, before: float, by: AuditEvent | None = None) -> Pruned:
        """Delete the idle runs that have no fact since a time, and free the space.

        Everything goes on meanwhile. What is not idle stays: what runs, unread mail, replies that
        no door has taken.

        Args:
            before: seconds since the epoch.
            by: whose action that is, for the audit.
        """
        return await self._services.book.prune(before=before, by=by)

    async def preview_prune(self, *, before: float) -> Pruned:
        """Return what `prune` would delete now; its entries are not counted.

        Args:
            before: seconds since the epoch.
        """
        return await self._services.book.preview_prune(before=before)

    async def delete_run(self, run: str, *, by: AuditEvent | None = None) -> Pruned:
        """Delete one idle run, or one whose facts are damaged, whatever its age.

        Args:
            run: its id.
            by: whose action that is, for the audit.

        Raises:
            UnknownIdError: there is no such run.
            SessionOpenError: it is not idle.
        """
        id_ = SessionId(run)
        if id_ not in self.read.session_ids:
            raise UnknownIdError(f"there is no run {run!r}")
        pruned = await self._services.book.prune(before=0, only=id_, by=by)
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
        """Return the time by which this orchestrator dates facts."""
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
        await self._services.book.cache.load(SessionId(task))
        if task not in self._services.book.ledger.tasks:
            raise UnknownIdError(f"there is no task {task!r}")
        return TaskId(task)


@asynccontextmanager
async def open_orchestrator(
    journal: str | os.PathLike[str] | Journal | None = None,
    *,
    session: str | None = None,
    runs: RunKind = "new",
    rules: Rules | None = None,
    environ: Mapping[str, str] | None = None,
    workspace: str | os.PathLike[str] | None = None,
    secrets: Iterable[str] = (),
    hand_on: Iterable[str] = (),
    hide: "Iterable[str | os.PathLike[str]]" = (),
    sandbox: str | SandboxChoice | None = None,
    limiters: "Mapping[str, Limiter] | None" = None,
    providers: "Mapping[str, Provider] | None" = None,
    prices: "PriceTable | None" = None,
    answer_limits: "AnswerLimits | None" = None,
    host: str | None = None,
    queue: "str | OpenExchange | None" = None,
    here: Iterable[str] | None = None,
) -> AsyncGenerator[Orchestrator]:
    """Open an orchestrator on a journal, and go on with what the last process left unfinished.

    Args:
        journal: the path of a file, which one process writes at a time; that of a folder, in which
            each process has a journal of its own; `":memory:"`, a database
            (`postgresql://host/database`, with `?journal=NAME` that journal of it), or any
            `Journal`. By default a folder: the user's state directory.
        session: a run or session of an earlier process that this one goes on with: the journal that
            has it is opened. By default one is opened in which nothing waits to go on.
        runs: `"durable"` has `run` go on with a run of the same agent and goal that a crash
            interrupted, if there is one in the journal; `"new"` begins a new one with each call.
        rules: the limits of delegation.
        environ: where keys and directories are looked up; by default `os.environ`.
        workspace: the folder of tools, for agents that name none; by default the current one.
        secrets: the names of environment variables whose values are secret, besides those whose
            names say so (`..._KEY`, `..._TOKEN`, `..._PASSWORD`).
        hand_on: the names of secret variables that agents' commands get all the same.
        hide: files and folders that no tool of an agent sees, besides those of the orchestrator.
        sandbox: what keeps commands inside their `Sandbox`: `"bubblewrap"`, `"landlock"` or
            `"none"`; `"auto"` is the strongest that works here. By default what
            ORCHESTRATOR_SANDBOX says, else `"auto"`.
        limiters: rate limits of providers, by name (`"openai"`).
        providers: services that run models, by the names that they have before the colon; they
            go before those of the file `models.toml`, and before those that we know.
        prices: the prices of models, instead of the table that we ship.
        answer_limits: how much a provider may send for one answer.
        host: the name of this machine in facts about commands and folders; by default what
            ORCHESTRATOR_HOST says, else its network name.
        queue: what hands the calls of tools with a place to workers, where the journal is in
            Postgres: `"absurd"` or `"dbos"`, or a function that connects to another one. By
            default what ORCHESTRATOR_QUEUE says, else `"absurd"`.
        here: the places whose tools run in this process, by choice. By default those that
            ORCHESTRATOR_HERE names, with commas between them.
    """
    require_trio()
    require_not_loading()
    if runs not in get_args(RunKind):
        raise DefinitionError(f"runs is {runs!r}; it must be 'new' or 'durable'")
    environ = os.environ if environ is None else environ
    secrets, hand_on = tuple(secrets), tuple(hand_on)
    if journal is None or journal == "":
        journal = f"{state_folder(environ)}{os.sep}"
    journals = None
    if isinstance(journal, str | os.PathLike):
        machine = host_of(host, environ, spans_hosts=True).name
        journals = journals_at(journal, host=machine)
    elif not hasattr(journal, "read_ledger"):
        raise DefinitionError(
            f"{journal!r} is no journal: give the path of a file or a folder, ':memory:', the"
            " address of a database, or a Journal"
        )
    async with _opened(journal, journals, session) as opened:
        name = _name(opened)
        rules = Rules() if rules is None else rules
        contents = await opened.read(rules)
        ledger = restore_ledger(contents, name, rules)
        earlier = find_earlier(ledger) if runs == "durable" else None
        book = Bookkeeper(
            opened,
            ledger,
            clock=steady_clock(
                time.time() + opened.clock_offset, contents.last_at if opened.spans_hosts else 0.0
            ),
            redactor=Redactor(_secret_values(environ, secrets, opened)),
        )
        if here is None:
            here = environ.get(HERE_VARIABLE, "").split(",")
        places = frozenset(here)
        workspace_settings = resolve_workspace_settings(
            without_secret_variables(
                environ, declared=(*secrets, JOURNAL_VARIABLE), hand_on=hand_on
            ),
            workspace,
            state_folder(environ),
            sandbox
            if isinstance(sandbox, SandboxChoice)
            else SandboxChoice(sandbox or environ.get(SANDBOX_VARIABLE) or "auto"),
            host=host_of(host, environ, spans_hosts=opened.spans_hosts),
            hidden=[*_hidden(opened, journals, environ), *map(Path, hide)],
        )
        servers = McpConnections(
            environ,
            book.redactor,
            workspace=workspace_settings.workspace,
            state=workspace_settings.state,
            sandbox=ProgramSandbox(
                choice=workspace_settings.sandbox, hidden=workspace_settings.hidden
            ),
        )
        await servers.end_left_programs()
        registry = AgentRegistry(
            ModelResolver(
                environ, limiters, prices, answer_limits=answer_limits, providers=providers
            ),
            require_deps=True,
            require_servers=servers.require,
            require_places=partial(require_here, places) if opened.tenure is None else None,
        )
        async with (
            _open_place(
                opened,
                book,
                registry,
                queue or environ.get(QUEUE_VARIABLE) or DEFAULT_QUEUE,
                places,
            ) as (place, close_place),
            open_services(
                book, registry, workspace_settings, place=place, servers=servers
            ) as services,
        ):
            with release_agents(services):
                try:
                    yield Orchestrator(services, journals, earlier=earlier)
                finally:
                    close_place()


@asynccontextmanager
async def _open_place(
    journal: Journal,
    book: Bookkeeper,
    registry: AgentRegistry,
    queue: "str | OpenExchange",
    here: frozenset[str],
) -> AsyncGenerator[tuple[ToolPlace, Callable[[], None]]]:
    """Open the place of tool calls: here, unless workers can reach the journal.

    It comes with what to call before what runs is torn down.
    """
    tenure, database = journal.tenure, journal.database
    if tenure is None:
        yield HERE, _do_nothing
        return
    # Imported late: most journals are files.
    from orchestrator.products.cluster.worker_place import WorkerPlace

    if isinstance(queue, str):
        assert database is not None, "where work is lent, workers find the journal"
        queue = exchange_opener(database, {QUEUE_VARIABLE: queue})
    place = WorkerPlace(book, registry, tenure, queue, here=here)
    async with place.open():
        yield place, place.close


def exchange_opener(database: str, environ: Mapping[str, str]) -> "OpenExchange":
    """Return what connects to the work queue of a database.

    Args:
        database: its address.
        environ: may name another queue than the default.
    """
    # Imported late: most journals are files.
    from orchestrator.products.cluster.work.postgres.exchange import open_exchange

    return partial(
        open_exchange,
        database,
        queue=environ.get(QUEUE_VARIABLE) or DEFAULT_QUEUE,
        application="orchestrator writer",
    )


def _do_nothing() -> None:
    pass


def default_journal(environ: Mapping[str, str]) -> Path:
    """Return the path of the first journal of that folder."""
    return state_folder(environ) / FIRST_JOURNAL


def _name(opened: Journal) -> object:
    """Return the journal in errors: never the address of a database, which has a password."""
    if opened.database is not None:
        return opened.identity
    return opened.file or type(opened).__name__


def _secret_values(
    environ: Mapping[str, str], secrets: Iterable[str], opened: Journal
) -> list[str]:
    """Return what no fact contains: secrets of the environment, the password of the database."""
    if opened.database is None:
        return secret_values(environ, secrets)
    # Imported late: most journals are files.
    from orchestrator.products.cluster.database.connection import password_of

    name = "password of the journal"
    password = {name: password_of(opened.database)}
    return secret_values({**environ, **password}, (*secrets, name))


def _hidden(opened: Journal, journals: Journals | None, environ: Mapping[str, str]) -> list[Path]:
    """Return what no tool of an agent sees: the state of this orchestrator, and of others."""
    # Its files are named as well: a workspace may be the folder itself.
    usual = default_journal(environ)
    files = [usual, opened.file]
    if journals is not None and journals.folder is not None:
        # Where a link has led to the journal, it is another folder.
        files.append(journals.folder / FIRST_JOURNAL)
    hidden = [usual.parent]
    for file in filter(None, dict.fromkeys(files)):
        hidden += state_files(file)
    return hidden


@asynccontextmanager
async def _opened(
    journal: str | os.PathLike[str] | Journal, journals: Journals | None, session: str | None
) -> AsyncGenerator[Journal]:
    if isinstance(journal, str | os.PathLike):
        assert journals is not None, "it has an address"
        async with open_journal(journals, session) as held:
            yield held.journal
    else:
        yield journal


def steady_clock(time_of_day: float, last: float = 0.0) -> Callable[[], float]:
    """Return a clock of the time of day that never steps back, and jumps where trio's does.

    Deadlines are absolute, so it goes on from the last fact if that is later: the clock of the
    machine that dated it may have been ahead.

    Args:
        time_of_day: the time of now.
        last: when the last fact was posted, where other machines post them, too.
    """
    # The clock itself: `trio.current_time()` looks it up each time, and every fact is dated.
    now = trio.lowlevel.current_clock().current_time
    offset = max(time_of_day, last) - now()
    return lambda: offset + now()
