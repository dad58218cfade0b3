"""Opening an orchestrator, and what can be asked of it. No globals."""

import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from agents import (
    Agent,
    Part,
    ToolCall,
    new_message_id,
    unanswered_calls,
    well_formed,
)
from agents.redaction.command_environment import without_secret_variables
from agents.redaction.redactor import Redactor, secret_values
from delegation import Receipt, Rules, SessionId, TaskId, Tree
from delegation.events import SteeringOrigin
from delegation.events.approvals import ApprovalQuestion
from orchestrator.doors.approvals import answer_question
from orchestrator.doors.lifecycle import close_session, release_agents
from orchestrator.doors.one_shot import Run, run_once
from orchestrator.doors.session import Session, open_session
from orchestrator.engine.approvals import open_questions
from orchestrator.engine.model_events import TaskModelEvent
from orchestrator.engine.shutdown import abandon, count_running, drain
from orchestrator.errors import UnknownIdError
from orchestrator.execution.agent_registry import AgentRegistry
from orchestrator.execution.model_resolver import ModelResolver
from orchestrator.execution.outcomes import STOPPED
from orchestrator.execution.workspace.task_workspace import resolve_workspace_settings
from orchestrator.journal.backends import store_at
from orchestrator.journal.bookkeeper import Bookkeeper
from orchestrator.journal.journal import Journal
from orchestrator.journal.journal import restore_ledger as opened_ledger
from orchestrator.journal.subscriptions import FactQueue
from orchestrator.read_api import ReadApi
from orchestrator.replay.fork import fork_run
from orchestrator.services import Services, open_services

if TYPE_CHECKING:
    from agents.models.wrappers.prices import PriceTable
    from agents.models.wrappers.rate_limit import Limiter

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")


class Orchestrator:
    """Runs agents and keeps their promises, as long as it is open."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def services(self) -> Services:
        """Its parts, for the doors that open sessions on it."""
        return self._services

    @property
    def read(self) -> ReadApi:
        """Its sessions, tasks, entries and live events, to read and to subscribe to."""
        return self._services.read

    async def run(
        self,
        agent: Agent[OutputT, InputT],
        goal: InputT,
        *parts: Part,
        attended: bool = False,
    ) -> Run[OutputT]:
        """Run an agent on a goal, and return when its whole tree has ended.

        Nobody can be told anything after this returns, so every child is joined. Cancelling this
        cancels the tree.

        Args:
            agent: who is to do it.
            goal: what is to be done: a text, or whatever a pipeline takes.
            parts: images and files that go with it.
            attended: somebody looks at `approvals` meanwhile, and answers. Otherwise what needs
                an approval is denied.
        """
        return await run_once(self._services, agent, goal, parts, attended=attended)

    def open_session(
        self, agent: Agent[Any], *, session: str | None = None
    ) -> AbstractAsyncContextManager[Session]:
        """Open a conversation that can be told things later.

        Args:
            agent: whom to talk to.
            session: the id of an earlier conversation with this agent, to go on with it.
        """
        id_ = None if session is None else SessionId(session)
        return open_session(self._services, agent, id_)

    async def fork(self, agent: Agent[OutputT], run: str, *, task: str) -> Run[OutputT]:
        """Go on from a run that has ended in another way: live, in a run of its own.

        All that happened before the task was asked for is copied, and costs nothing; from there
        on models and tools are asked. Returns when all of it has ended.

        Args:
            agent: whose run it was, as it is defined now.
            run: the run that has ended.
            task: the first one that is done anew: its id, or its path such as
                `/editor/researcher[3]`; that of the run itself is all of it.
        """
        return await fork_run(self._services, agent, run, task)

    def listen(
        self,
    ) -> AbstractContextManager[trio.MemoryReceiveChannel[TaskModelEvent]]:
        """Hear models as they answer, as long as the block lasts.

        A listener that falls behind misses events, and is told how many; no model waits for it.
        """
        return self.read.open_model_events()

    async def cancel(self, task: str, *, tree: bool = False) -> None:
        """End a task and all below it, and return when every one of them has ended.

        A session ends its turn, and then goes on: what it has in the background is left alone.

        Args:
            task: a task, or a session.
            tree: of a session, end what it has in the background, too: tasks and commands.
        """
        targets = [await self._known(task)]
        if tree and task in (sessions := self._services.book.ledger.sessions):
            targets += sessions[SessionId(task)].unsettled_detached
        await self._services.delegator.cancel(targets)
        if tree:
            background = self._services.background
            await background.end(background.commands_of(targets[0]), STOPPED)

    async def steer(self, task: str, message: str, *, seconds: float = 0) -> Receipt:
        """Tell a task something while it works: it reads that before its next model call.

        Args:
            task: whom to tell.
            message: what to say.
            seconds: how long to wait for the task to have seen it.
        """
        known = await self._known(task)
        receipts = await self._services.delegator.steer(
            {known: new_message_id()},
            well_formed(message),
            by="outside",
            origin=SteeringOrigin.OUTSIDE,
            seconds=seconds,
        )
        return receipts[known]

    async def close_session(self, session: str) -> None:
        """End a conversation for good.

        All that it does is cancelled, what it was not told is dropped, and the journal says so.
        It cannot be opened again.
        """
        id_ = SessionId(session)
        book = self._services.book
        await book.cache.load(id_)
        if id_ not in book.ledger.sessions:
            raise UnknownIdError(f"there is no session {session!r}")
        await close_session(self._services, book.ledger.sessions[id_])

    @property
    def approvals(self) -> list[ApprovalQuestion]:
        """What somebody is asked to approve now, oldest first. `wait_changed` waits for more."""
        return open_questions(self._services.book)

    async def answer(
        self, approval: str, answer: str, *, reason: str = "", by: str = ""
    ) -> None:
        """Say whether a call may be run that waits for approval. The first answer holds.

        Args:
            approval: which one: its id.
            answer: `"once"`; `"task"`, for the same in this task and below it; `"session"`, for
                the same in this session; or `"deny"`.
            reason: why, for the agent to read.
            by: who says so.

        Raises:
            UnknownIdError: nobody waits for that answer any more.
        """
        await answer_question(self._services, approval, answer, reason=reason, by=by)

    async def drain(self, seconds: float) -> bool:
        """Begin nothing new from now on, wait for what runs, and tell whether all has ended.

        `run`, `ask` and `open_session` raise `ClosedError`; tasks that have not begun, and news
        that nobody was told, wait for the next time. What has not ended after so many seconds
        goes on until the orchestrator is closed, which interrupts or cancels it.

        Args:
            seconds: how long to wait at most.
        """
        return await drain(self._services.book, seconds)

    async def abandon(self) -> None:
        """Write down how all that still runs ends, without waiting for it, and take no more facts.

        For a process that is about to leave, and has something that hangs: a thread, or cleanup
        that does not end. What can be taken up again is interrupted.
        """
        services = self._services
        await abandon(services.book, services.runner.settlement, services.background)

    @property
    def working(self) -> int:
        """How many tasks an agent works on now, the turns of runs and sessions included."""
        return count_running(self._services.book)

    async def _known(self, task: str) -> TaskId:
        # It may be a session at rest.
        await self._services.book.cache.load(SessionId(task))
        if task not in self._services.book.ledger.tasks:
            raise UnknownIdError(f"there is no task {task!r}")
        return TaskId(task)

    @property
    def runs(self) -> list[SessionId]:
        """The ids of all runs and sessions in the journal, oldest first."""
        return list(self._services.book.ledger.all_sessions)

    def tree(self, session: str) -> Tree:
        """Return the tree of a run or a session that is in memory; it grows while that runs.

        Of what has ended, only so much stays there: `read_tree` finds the rest.
        """
        ledger = self._services.book.ledger
        if ledger.is_evicted(SessionId(session)):
            raise UnknownIdError(
                f"run {session!r} is not in memory any more: await read_tree(...) reads it"
            )
        if session not in ledger.sessions:
            raise UnknownIdError(f"there is no run {session!r}")
        return ledger.sessions[SessionId(session)].tree

    async def read_tree(self, session: str) -> Tree:
        """Return the tree of a run or a session, from memory or from the journal."""
        id_ = SessionId(session)
        past = await self._services.book.cache.read_evicted(id_)
        return self.tree(session) if past is None else past.sessions[id_].tree

    def now(self) -> float:
        """Return the time by which this orchestrator dates facts."""
        return self._services.book.clock()

    async def wait_changed(self, *, after: int = 0) -> int:
        """Wait until the journal has more entries than this, and return how many it has."""
        return await self.read.wait_posted(after=after)

    async def wait_durable(self, *, after: int = 0) -> int:
        """Wait until more entries than this survive a crash, and return how many do."""
        return await self.read.wait_durable(after=after)

    def subscribe(self) -> AbstractContextManager[FactQueue]:
        """Queue the facts of all sessions when they are posted, as long as the block lasts."""
        return self.read.queue()

    def calls(self, task: str) -> list[ToolCall]:
        """Return what a task that is in memory has called, and waits for."""
        record = self._services.book.ledger.tasks.get(TaskId(task))
        return [] if record is None else unanswered_calls(record.transcript)


@asynccontextmanager
async def open_orchestrator(
    journal: str | os.PathLike[str] | Journal | None = None,
    *,
    rules: Rules | None = None,
    environ: Mapping[str, str] | None = None,
    workspace: str | os.PathLike[str] | None = None,
    secrets: Iterable[str] = (),
    hand_on: Iterable[str] = (),
    limiters: "Mapping[str, Limiter] | None" = None,
    prices: "PriceTable | None" = None,
) -> AsyncGenerator[Orchestrator]:
    """Open an orchestrator on a journal, and go on with whatever that leaves to be done.

    Args:
        journal: a file, `":memory:"`, or any `Journal`; by default a file in the user's state
            directory.
        rules: the limits of delegation.
        environ: where keys and directories are looked up; by default `os.environ`.
        workspace: the folder that tools work in, for agents that say nothing else; by default
            where the process is.
        secrets: the names of variables in the environment whose values are secret. Those that
            are called so (`..._KEY`, `..._TOKEN`, `..._PASSWORD`) are known.
        hand_on: the names of secret variables that the commands of agents are given all the same.
        limiters: how much may be asked of a provider, by its name (`"openai"`).
        prices: what models cost, instead of the table that we ship.
    """
    environ = os.environ if environ is None else environ
    secrets, hand_on = tuple(secrets), tuple(hand_on)
    async with _opened(journal, environ) as opened:
        name = (
            journal if isinstance(journal, str | os.PathLike) else type(opened).__name__
        )
        ledger = opened_ledger(await opened.read(), name, rules)
        book = Bookkeeper(
            opened,
            ledger,
            clock=_steady_clock(),
            redactor=Redactor(secret_values(environ, secrets)),
        )
        registry = AgentRegistry(ModelResolver(environ, limiters, prices))
        surroundings = resolve_workspace_settings(
            without_secret_variables(environ, declared=secrets, hand_on=hand_on),
            workspace,
            default_journal(environ).parent,
        )
        async with open_services(book, registry, surroundings) as services:
            with release_agents(services):
                yield Orchestrator(services)


def default_journal(environ: Mapping[str, str]) -> Path:
    """Return the file that is used when none is named."""
    if home := environ.get("ORCHESTRATOR_HOME"):
        return Path(home) / "journal.db"
    state = environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "orchestrator" / "journal.db"


@asynccontextmanager
async def _opened(
    journal: str | os.PathLike[str] | Journal | None, environ: Mapping[str, str]
) -> AsyncGenerator[Journal]:
    if journal is None:
        journal = default_journal(environ)
    if not isinstance(journal, str | os.PathLike):
        yield journal
    else:
        async with store_at(journal).open_writer() as opened:
            yield opened


def _steady_clock() -> Callable[[], float]:
    """Return a clock that tells the time of day, never steps back, and jumps where trio's does."""
    # The clock itself: `trio.current_time()` asks its way to it, and every fact has a date.
    now = trio.lowlevel.current_clock().current_time
    offset = time.time() - now()
    return lambda: offset + now()
