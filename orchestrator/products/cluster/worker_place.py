"""The place of tool calls that workers run: the writer of the journal lends them, and decides.

A call is sent when it is durable. A cancelled call returns when all of it has ended. A closing
writer leaves running calls to the next one, where a task can be resumed.
"""

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeAlias

import trio

from orchestrator.agents import Agent, CallKey, Tool, ToolCall, raising_one_error
from orchestrator.agents.tools.result_text import ToolResult
from orchestrator.delegation import DeliveryCapability, TaskRecord
from orchestrator.ports.execution import AgentRegistry, fingerprint
from orchestrator.ports.journals import Bookkeeper
from orchestrator.products.cluster.lending.lender import Lender
from orchestrator.products.cluster.lending.lent import Lent
from orchestrator.products.cluster.lending.lent_call import LentCall
from orchestrator.products.cluster.lending.lent_turn import LentTurn
from orchestrator.products.cluster.lending.turn_place import LentTurnPlace
from orchestrator.products.cluster.lending.worker_watch import WorkerWatch
from orchestrator.products.cluster.work import Exchange, Tenure
from orchestrator.products.cluster.worker.wire import TurnWork, Work

CLOSE_SECONDS: Final = 2.0
"""The seconds in which a closing writer reports its recorded ends."""

OpenExchange: TypeAlias = Callable[[], AbstractAsyncContextManager[Exchange]]


class WorkerPlace:
    """Lends the calls of tools with a place to workers (`ToolPlace`)."""

    has_effects = True
    resumes_calls = True

    def __init__(
        self,
        book: Bookkeeper,
        registry: AgentRegistry,
        tenure: Tenure,
        open_exchange: OpenExchange,
        *,
        here: Collection[str] = (),
    ) -> None:
        """Lend calls.

        Args:
            book: posts where calls run.
            registry: finds the agents of tasks.
            tenure: the right to write the journal, which all is lent under.
            open_exchange: connects to what carries work, when the first call is lent.
            here: the places whose calls run in this process.
        """
        self._book = book
        self._registry = registry
        self._tenure = tenure
        self._open_exchange = open_exchange
        self._here = frozenset(here)
        self._is_closing = False
        self._closed = trio.Event()
        # Whatever is cancelled around it: calls that are cancelled wait for what workers say.
        self._lending = trio.CancelScope(shield=True)
        self._needed = trio.Event()
        self._opened = trio.Event()
        self._lender: Lender | None = None

    def takes(self, tool: Tool, task: TaskRecord) -> bool:
        return bool(tool.place) and tool.place not in self._here

    def close(self) -> None:
        """Leave what runs to the next writer from now on, where a task can be resumed."""
        self._is_closing = True

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Carry what writer and workers say, for the block."""
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._lend_when_needed)
                try:
                    yield
                finally:
                    self._closed.set()
                    if self._lender is None:
                        self._lending.cancel(reason="nothing is lent")
                    else:
                        # The last ends are acknowledged, so that no worker offers them for ever.
                        self._lending.deadline = trio.current_time() + CLOSE_SECONDS

    def past_checks(self, task: TaskRecord) -> None:
        return None

    def open_turn(
        self, task: TaskRecord, agent: Agent[Any]
    ) -> AbstractAsyncContextManager[LentTurnPlace] | None:
        if not agent.place or agent.place in self._here:
            return None
        return self._open_turn(task, agent)

    @asynccontextmanager
    async def _open_turn(
        self, task: TaskRecord, agent: Agent[Any]
    ) -> AsyncGenerator[LentTurnPlace]:
        turn = LentTurnPlace(self._book, self._opened_lender, task, agent)
        has_ended = False
        try:
            await turn.adopt()
            yield turn
            has_ended = True
        except Exception:
            has_ended = True
            raise
        finally:
            # One that has ended is not gone on with, unless that cannot be recorded.
            has_ended = has_ended and not self._book.is_broken
            is_left = not has_ended and self._is_left_to_next(task)
            with trio.CancelScope(shield=True):
                await turn.leave(is_left_to_next=is_left)

    async def run(
        self, tool: Tool, call: ToolCall, key: CallKey, task: TaskRecord
    ) -> str | ToolResult:
        version = fingerprint(self._registry.agent_of(task))
        lent = LentCall(tool, call, key, task, version)
        # An answer that a crash could still undo is sent nowhere.
        await self._book.wait_durable()
        lender: Lender | None = None
        with trio.move_on_at(lent.deadline):
            lender = await self._opened_lender()
        if lender is None:
            raise lent.not_taken()
        try:
            lender.begin(lent)
            await lent.wait_end()
        finally:
            with trio.CancelScope(shield=True):
                await lender.leave(lent, is_left_to_next=self._is_left_to_next(task))
        return lent.result()

    async def _opened_lender(self) -> Lender:
        """Return what lends, when it is connected."""
        self._needed.set()
        await self._opened.wait()
        assert self._lender is not None, "it is opened"
        return self._lender

    def _is_left_to_next(self, task: TaskRecord) -> bool:
        """Return whether the next writer goes on with the calls of a task."""
        if self._book.is_broken:
            return True  # it is not for us to stop anything
        return self._is_closing and not self._book.records.settles_on_teardown(task.id)

    async def _lend_when_needed(self) -> None:
        await trio.lowlevel.checkpoint()
        with self._lending:
            if not self._has_open_runs():
                await self._needed.wait()
            await self._lend()

    async def _lend(self) -> None:
        async with (
            self._open_exchange() as exchange,
            exchange.writer_mailbox(self._tenure) as mailbox,
        ):
            lender = Lender(self._book, self._tenure, exchange.queue, mailbox, self._work_of)
            watch = WorkerWatch(lender, exchange.queue, exchange.presence)
            self._lender = lender
            self._opened.set()
            try:
                with raising_one_error():
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(watch.look_forever)
                        await lender.lend_until(self._closed)
                        nursery.cancel_scope.cancel(reason="the orchestrator is closed")
            finally:
                lender.hush()

    def _has_open_runs(self) -> bool:
        """Return whether an earlier writer has lent calls that may still run."""
        return any(task.placed for task in self._book.records.tasks.values())

    def _work_of(self, lent: Lent) -> Work | TurnWork:
        match lent:
            case LentCall():
                return self._call_work(lent)
            case LentTurn():
                return self._turn_work(lent)
            case _:
                raise AssertionError(f"{lent!r} is neither a call nor a turn")

    def _turn_work(self, lent: LentTurn) -> TurnWork:
        task = lent.task
        return TurnWork(
            agent=self._registry.steps_to(task),
            version=lent.version,
            session=task.session,
            path=task.path,
            context=dict(task.context),
            async_delivery=self._has_async_delivery(task),
            processes=self._book.records.rules.processes,
        )

    def _has_async_delivery(self, task: TaskRecord) -> bool:
        turn = self._book.records.sessions[task.session].turn
        return turn is not None and turn.promises is not DeliveryCapability.NONE

    def _call_work(self, lent: LentCall) -> Work:
        task = lent.task
        return Work(
            agent=self._registry.steps_to(task),
            version=lent.version,
            tool=lent.tool.name,
            arguments=dict(lent.call.arguments),
            call=lent.call.id,
            key=lent.key,
            seconds=lent.seconds_left,
            session=task.session,
            path=task.path,
            context=dict(task.context),
            async_delivery=self._has_async_delivery(task),
            walled=lent.walled,
        )
