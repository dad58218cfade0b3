"""The user of this process as a caller: the program that started it, and speaks to it over stdio.

It continues the tasks that an earlier process of the same agents left, in the journals where they
wait. It reads other journals, and does not act on them.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from secrets import token_hex
from typing import Any, Final, TypeAlias

import trio

from orchestrator.agents import Agent, raising_one_error
from orchestrator.delegation import SessionId, SessionRecord
from orchestrator.delegation.events import SessionOpened
from orchestrator.delegation.session_context import door_context
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.delegation.session_state import SessionState
from orchestrator.ports import errors
from orchestrator.ports.journals import HeldJournal, Journals, JournalStore, fold_entries
from orchestrator.ports.reads import FoundSession
from orchestrator.ports.sessions import (
    InboundRequest,
    Orchestrator,
    RequestDoor,
    search_request_ahead,
)
from orchestrator.products.history.ports import TreeFormat, draw_tree, export_tree
from orchestrator.products.mcp.server.caller import Ask, HeldRun, OpenJournal, RunPage
from orchestrator.products.mcp.server.calls import CALLS

OpenOrchestrator: TypeAlias = Callable[[HeldJournal], AbstractAsyncContextManager[Orchestrator]]
PAGE: Final = 20
"""How many runs are listed at a time."""
PLATFORM: Final = "mcp"


class LocalCaller:
    """The program at the other end of stdin and stdout."""

    owner = ""
    states: tuple[SessionState, ...] = ()
    context: Mapping[str, str] = door_context(platform=PLATFORM)
    ask: Ask | None = None  # the connection of the SDK asks

    def __init__(self, journals: Journals, held: Sequence[OpenJournal], name: str) -> None:
        """Serve the journals at an address; new runs are in the first one of `held`."""
        self._journals = journals
        self._held = held
        self.name = name

    @property
    def home(self) -> OpenJournal:
        return self._held[0]

    def new_run_id(self) -> SessionId:
        return SessionId(f"r_{token_hex(16)}")

    async def take_request(self, request: InboundRequest) -> None:
        await search_request_ahead(self.home.orchestrator.read.redactor, request)

    @property
    def may_read(self) -> bool:
        return True

    async def may_approve(self) -> bool:
        await trio.lowlevel.checkpoint()
        return True

    def begin_run(self) -> AbstractContextManager[None]:
        return nullcontext()

    def record(self, target: str) -> None:
        """Record nothing: an action of this machine's user is no request of a key."""

    async def wait_durable(self) -> None:
        await trio.lowlevel.checkpoint()
        for it in self._held:
            await it.orchestrator.read.wait_durable()

    async def read_run(self, run: str) -> FoundSession:
        holder = self._holder_of(run)
        if holder is not None:
            found = await holder.orchestrator.read.session(run)
        else:
            found = await trio.to_thread.run_sync(_read_elsewhere, self._journals, run)
        if found.session.owner or found.session.kind not in CALLS:
            raise _unknown(run)
        return found

    async def draw_tree(self, run: str, output_format: TreeFormat) -> str:
        session = (await self.read_run(run)).session
        holder = self._holder_of(run)
        if holder is None:
            return await trio.to_thread.run_sync(
                lambda: export_tree(session.tree, output_format, now=None)
            )
        return await draw_tree(holder.orchestrator.read, session, output_format)

    async def hold_run(self, run: str) -> HeldRun:
        session = (await self.read_run(run)).session
        holder = self._holder_of(run)
        if holder is None:
            raise errors.SessionOpenError(
                f"{session.id!r} is in a journal that this process does not write: the one that"
                " does can act on it"
            )
        return HeldRun(await holder.door.find(session.id), holder)

    async def list_runs(self, after: str | None) -> RunPage:
        newest = [
            (it, id_) for it in self._held for id_ in [*it.orchestrator.read.session_ids][::-1]
        ]
        start = 0
        if after is not None:
            ids = [id_ for _, id_ in newest]
            if SessionId(after) not in ids:
                raise _unknown(after)
            start = ids.index(SessionId(after)) + 1
        runs: list[SessionRecord] = []
        last: SessionId | None = None
        for it, last in newest[start:]:
            session = (await it.orchestrator.read.session(last)).session
            if not session.owner and session.kind in CALLS:
                runs.append(session)
            if len(runs) == PAGE:
                break
        await trio.lowlevel.checkpoint()
        is_all = not newest or last in {None, newest[-1][1]}
        return RunPage(runs, None if is_all else last)

    def _holder_of(self, run: str) -> OpenJournal | None:
        for it in self._held:
            if SessionId(run) in it.orchestrator.read.session_ids:
                return it
        return None


def _unknown(run: str) -> errors.UnknownIdError:
    return errors.UnknownIdError(f"there is no run {run!r}")


def _read_elsewhere(journals: Journals, run: str) -> FoundSession:
    """Return a run of a journal that this process does not write; blocking."""
    id_ = SessionId(run)
    name = journals.find(id_)
    if name is None:
        raise _unknown(run)
    with journals.store(name).open_reader(verify=False) as reader:
        ledger = fold_entries(reader.entries(id_), name)
    session = ledger.sessions.get(id_)
    if session is None or session.deleted:
        raise _unknown(run)
    return FoundSession(session, ledger)


@asynccontextmanager
async def open_local_caller(
    journals: Journals,
    open_orchestrator: OpenOrchestrator,
    agents: Mapping[str, Agent[Any]],
    name: str,
) -> AsyncGenerator[tuple[LocalCaller, Sequence[Orchestrator]]]:
    """Open the journals with waiting tasks of these agents, and continue them."""
    waiting = await trio.to_thread.run_sync(_waiting, journals, agents)
    async with AsyncExitStack() as opened:
        orchestrators: list[Orchestrator] = []
        for its_name in waiting:
            with suppress(errors.JournalInUseError):  # another process has just taken it
                writer = await opened.enter_async_context(journals.store(its_name).open_writer())
                orchestrators.append(
                    await opened.enter_async_context(
                        open_orchestrator(HeldJournal(its_name, writer))
                    )
                )
        if not orchestrators:
            free = await opened.enter_async_context(journals.open_free())
            orchestrators.append(await opened.enter_async_context(open_orchestrator(free)))
        with raising_one_error():
            # Owns the doors of tasks: it ends before the orchestrators do.
            async with trio.open_nursery() as nursery:
                held = [
                    OpenJournal(it, RequestDoor(it.sessions, agents, nursery))
                    for it in orchestrators
                ]
                for journal in held:
                    await journal.door.resume_sessions()
                yield LocalCaller(journals, held, name), orchestrators
                nursery.cancel_scope.cancel(reason="the client has left")


def _waiting(journals: Journals, agents: Mapping[str, Agent[Any]]) -> list[str]:
    """Return the journals without a writer and with a waiting task of an agent; blocking."""
    return [
        name
        for name, sessions in journals.waiting().items()
        if _has_task(journals.store(name), sessions, agents)
    ]


def _has_task(
    store: JournalStore, sessions: Sequence[SessionId], agents: Mapping[str, Agent[Any]]
) -> bool:
    try:
        with store.open_reader(verify=False) as reader:
            return any(
                isinstance(entry.event, SessionOpened)
                and entry.event.kind is SessionKind.MCP_TASK
                and entry.event.agent in agents
                for session in sessions
                for entry in reader.entries(session)
            )
    except errors.JournalError:
        return False  # what cannot be read is left alone
