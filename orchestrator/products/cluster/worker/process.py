"""A worker: runs the calls that writers lend it, each in its own context, and whole turns.

It asks before it begins and reports its end, and acts on the world only in between. Its beats come
from this very loop: a worker that hangs is not alive. Its beats list an execution from before the
first question until the writer has taken the end.
"""

import math
from collections.abc import Callable, Sequence
from secrets import token_hex
from typing import Any, Final, NoReturn

import trio

from orchestrator.agents import Agent, DefinitionError, raising_one_error
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.ports.execution import AgentCatalogue
from orchestrator.products.cluster.work import (
    Beat,
    Delivery,
    Dispatch,
    Exchange,
    ExecutionId,
    Request,
    WorkerId,
    WorkerMailbox,
)
from orchestrator.products.cluster.worker import wire
from orchestrator.products.cluster.worker.calls import WorkerCalls
from orchestrator.products.cluster.worker.context import WorkerContexts
from orchestrator.products.cluster.worker.turn import WorkerTurn

LEASE_SECONDS: Final = 10.0
"""How long a worker is taken for alive after a beat."""
BEATS_A_LEASE: Final = 4
BEGIN_SECONDS: Final = 60.0
"""How long a worker asks a writer that may be gone for good, before it frees the slot. A writer
that is back sends the call again."""
KEPT_SECONDS: Final = 24 * 3600.0
"""How long it offers an end that no writer takes."""
STOOD_STILL: Final = "the worker stood still for too long"
ENDING: Final = "the worker is ending"
REFUSED_SECONDS: Final = 5.0
"""How long a worker keeps the slot of a call that it cannot run: others get the next attempt."""
GOODBYE_SECONDS: Final = 3.0
"""How long a worker that must end at once takes to say how its calls ended."""


class Worker:
    """Runs the calls and turns of one place."""

    def __init__(
        self,
        exchange: Exchange,
        mailbox: WorkerMailbox,
        catalogue: AgentCatalogue,
        contexts: WorkerContexts,
        redactor: Redactor,
        *,
        id: WorkerId,  # noqa: A002 (the word of the domain)
        host: str,
        place: str,
        slots: int,
        lease: float = LEASE_SECONDS,
        tell: Callable[[str], None],
    ) -> None:
        """Run up to `slots` calls or turns at once; after a beat it counts as alive for `lease`."""
        self._exchange = exchange
        self._mailbox = mailbox
        self._catalogue = catalogue
        self._calls = WorkerCalls(catalogue, contexts, redactor)
        self._id = id
        self._host = host
        self._place = place
        self._slots = slots
        self._lease = lease
        self._tell = tell
        self._executions: set[ExecutionId] = set()
        """The executions that it holds."""
        self._running = 0
        self._alive_until = math.inf
        """Until when it is taken for alive."""
        self._beaten = trio.Event()
        self._receiving = trio.CancelScope()
        self._drained = trio.Event()
        self._told: set[str] = set()

    @property
    def running(self) -> int:
        """The number of tools that execution now."""
        return self._running

    def drain(self) -> None:
        """Take nothing new; `run` returns when all that runs has ended and was taken."""
        self._drained.set()
        self._receiving.cancel(reason="the worker is drained")

    async def run(self) -> None:
        """Run calls until it is drained. Cancelled, it ends them, and says so."""
        try:
            with raising_one_error():
                async with trio.open_nursery() as beats:
                    await self._beat()
                    beats.start_soon(self._beat_forever)
                    await self._receive()
                    beats.cancel_scope.cancel(reason="all executions have ended")
        finally:
            with trio.move_on_after(GOODBYE_SECONDS, shield=True):
                await self._exchange.presence.leave(self._id)

    async def _receive(self) -> None:
        receive = self._exchange.queue.receive(self._id, self._place, self._slots)
        with raising_one_error():
            async with receive as deliveries:
                # Owns every execution. What is unfinished when it ends is given back.
                async with trio.open_nursery() as executions:
                    with self._receiving:
                        async for delivery in deliveries:
                            executions.start_soon(self._run, delivery)

    async def _beat_forever(self) -> NoReturn:
        while True:
            await trio.sleep(self._lease / BEATS_A_LEASE)
            await self._beat()

    async def _beat(self) -> None:
        beat = Beat(
            worker=self._id,
            host=self._host,
            place=self._place,
            slots=self._slots,
            version=self._catalogue.version,
            executions=frozenset(self._executions),
        )
        began = trio.current_time()
        await self._exchange.presence.beat(beat, seconds=self._lease)
        self._alive_until = began + self._lease
        self._beaten.set()
        self._beaten = trio.Event()

    async def _run(self, delivery: Delivery) -> None:
        dispatch = delivery.dispatch
        execution = wire.execution_id(dispatch, token_hex(8))
        self._executions.add(execution)
        # True until it has begun: then that it was stopped, unless it has ended.
        end: wire.End = wire.Unfit(dispatch.id, ENDING, lasting=False)
        has_ended = False
        try:
            await self._wait_alive()
            reply = await self._ask_to_begin(dispatch, execution)
            if isinstance(reply, wire.Work | wire.TurnWork):
                end = wire.Stopped(dispatch.id)
                end = await self._end_of(reply, dispatch, execution)
            refuses = isinstance(reply, wire.Later) or (isinstance(end, wire.Unfit) and end.lasting)
            if not refuses:
                # The slot is free; what is left is to be believed.
                await delivery.finish()
            if isinstance(reply, wire.Work | wire.TurnWork):
                await self._say(dispatch, execution, end)
            elif reply is None:
                # A writer may have let it begin meanwhile.
                with trio.move_on_after(GOODBYE_SECONDS):
                    await self._say(dispatch, execution, end)
            has_ended = True
        finally:
            if not has_ended:
                # All ends at once: the writer learns that nothing of this runs any more.
                with trio.move_on_after(GOODBYE_SECONDS, shield=True):
                    await self._say(dispatch, execution, end)
            self._executions.remove(execution)
            self._mailbox.forget(execution)
        if refuses:
            with trio.move_on_after(REFUSED_SECONDS):
                await self._drained.wait()
            await delivery.finish()

    async def _wait_alive(self) -> None:
        await trio.lowlevel.checkpoint()
        while self._stood_still():
            await self._beaten.wait()

    async def _ask_to_begin(self, dispatch: Dispatch, execution: ExecutionId) -> wire.Reply | None:
        question = wire.Begin(dispatch.id, dispatch.attempt, dispatch.place)
        request = Request(dispatch.journal, self._id, execution, wire.BEGIN, wire.encoded(question))
        with trio.move_on_after(BEGIN_SECONDS):
            return wire.reply_in(await self._mailbox.ask(request))
        return None

    async def _say(self, dispatch: Dispatch, execution: ExecutionId, end: wire.End) -> None:
        """Tell how an execution has ended, until a writer has recorded or refused that."""
        body = wire.encoded(end)
        request = Request(dispatch.journal, self._id, execution, wire.END, body, stays=True)
        with trio.move_on_after(KEPT_SECONDS):
            await self._mailbox.ask(request)

    async def _end_of(
        self, work: wire.Work | wire.TurnWork, dispatch: Dispatch, execution: ExecutionId
    ) -> wire.End:
        """Run a call or a turn to its end, or until the writer stops it."""
        await trio.lowlevel.checkpoint()
        if self._stood_still():
            # The writer has given this execution up, or will.
            return wire.Unfit(dispatch.id, STOOD_STILL, lasting=False)
        try:
            lineage = self._calls.lineage(work)
        except DefinitionError as exc:
            self._tell_once(f"{work.path}: {exc}")
            return wire.Unfit(dispatch.id, str(exc))
        end: wire.End = wire.Stopped(dispatch.id)
        scope = trio.CancelScope()
        self._running += 1
        try:
            with raising_one_error():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._stop_when_told, execution, scope)
                    if isinstance(work, wire.TurnWork):
                        turn = self._turn(work, dispatch, execution, lineage)
                        end = await turn.take(scope)
                    else:
                        with scope:
                            end = await self._calls.run(work, dispatch.id, lineage)
                    nursery.cancel_scope.cancel(reason="the execution has ended")
        finally:
            self._running -= 1
        return end

    def _turn(
        self,
        work: wire.TurnWork,
        dispatch: Dispatch,
        execution: ExecutionId,
        lineage: Sequence[Agent[Any]],
    ) -> WorkerTurn:
        async def ask(number: int, question: wire.Question) -> wire.Reply | None:
            body, stays = wire.encoded(question), isinstance(question, wire.CallEnded)
            request = Request(dispatch.journal, self._id, execution, number, body, stays=stays)
            return wire.reply_in(await self._mailbox.ask(request))

        return WorkerTurn(
            self._calls, work, dispatch.id, lineage, ask=ask, stood_still=self._stood_still
        )

    def _stood_still(self) -> bool:
        return trio.current_time() > self._alive_until

    def _tell_once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._tell(line)

    async def _stop_when_told(self, execution: ExecutionId, scope: trio.CancelScope) -> None:
        await self._mailbox.wait_stopped(execution)
        scope.cancel(reason="the writer has stopped it")
