"""The writer's side of lent calls and turns: sends them, hears their executions, and decides.

The writer accepts one execution of one attempt and ignores every other execution. An execution
begins when the fact that names it is durable, so a call without that fact has never run. A call
that lost its worker is tried again if it may run twice or has not run; otherwise it is broken off.
"""

from collections.abc import Callable, Sequence
from typing import Final, NoReturn, TypeAlias, assert_never

import trio

from orchestrator.agents import CallId, raising_one_error
from orchestrator.ports.journals import Bookkeeper
from orchestrator.products.cluster import work
from orchestrator.products.cluster.lending.lent import Lent, Loss, Waiting
from orchestrator.products.cluster.lending.lent_turn import LentTurn
from orchestrator.products.cluster.lending.recorded_ends import RecordedEnds
from orchestrator.products.cluster.lending.recorded_executions import RecordedExecutions
from orchestrator.products.cluster.worker import wire

STOP_SECONDS: Final = 60.0
"""The longest wait of a cancelled call for the end of its processes. Leases are shorter."""

WorkOf: TypeAlias = Callable[[Lent], wire.Work | wire.TurnWork]
"""Returns the message that lets a worker begin."""


class Lender:
    """Lends the calls of one journal, while its writer has an exchange."""

    def __init__(
        self,
        book: Bookkeeper,
        tenure: work.Tenure,
        queue: work.WorkQueue,
        mailbox: work.WriterMailbox,
        work_of: WorkOf,
    ) -> None:
        self._book = book
        self._work_of = work_of
        self._queue = queue
        self._mailbox = mailbox
        self.tenure = tenure
        self.lent: dict[work.DispatchId, Lent] = {}
        self.parked: dict[work.ExecutionId, list[work.Request]] = {}
        """Requests of executions whose calls no task waits for yet: the tasks are interrupted."""
        self.finished: dict[work.ExecutionId, work.WorkerId] = {}
        """Runs that count no more, until their workers hold them no more."""
        self.refused: set[tuple[work.WorkerId, str]] = set()
        """The workers that have another version of an agent, and the version they lack."""
        self.workers: Sequence[work.WorkerSeen] = ()
        """Those that were there when they were looked at last."""
        self.recorded = RecordedExecutions(book, tenure.journal)
        self.ends = RecordedEnds(book, self._acknowledge)
        self._to_send: dict[work.DispatchId, Lent] = {}
        self._to_withdraw: list[work.Dispatch] = []
        self._send_due = trio.Event()
        self._changed = trio.Event()
        self._is_silent = False
        """No worker is heard any more: another process writes the journal, or it is closed."""

    async def lend_until(self, closed: trio.Event) -> None:
        """Carry what writer and workers say."""
        with self.ends.subscribed(), raising_one_error():
            # This nursery owns the tasks that send, hear and acknowledge.
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send_forever)
                nursery.start_soon(self._receive_forever, nursery)
                nursery.start_soon(self.ends.acknowledge_forever)
                await closed.wait()
                nursery.cancel_scope.cancel(reason="the orchestrator is closed")
            await self.ends.acknowledge()

    def hush(self) -> None:
        """Let go of cancelled calls: no worker is heard any more."""
        self._is_silent = True
        for lent in self.lent.values():
            if lent.is_over:
                lent.ended.set()

    async def wait_lent(self) -> None:
        """Wait until there is a call, or an execution, that workers must be looked at for."""
        while not (self.lent or self.finished or self.parked):
            self._changed = trio.Event()
            await self._changed.wait()
        await trio.lowlevel.checkpoint()

    async def catch_up(self) -> None:
        """Hear all that executions have said before."""
        await self._mailbox.catch_up()

    def begin(self, lent: Lent) -> None:
        """Send a call, or adopt the execution that an earlier writer has accepted."""
        self.lent[lent.id] = lent
        self._changed.set()
        placed = lent.placed
        if placed is not None:
            lent.attempt = placed.attempt
        if placed is None or not placed.execution:
            self.send(lent)
            return
        lent.adopt(work.ExecutionId(placed.execution), work.WorkerId(placed.worker))
        for request in self.parked.pop(work.ExecutionId(placed.execution), ()):
            if self._hear(request) is not None:
                # The fact that names the execution is an earlier writer's, so it is durable.
                self._reply_to_begin(request, lent)

    async def leave(self, lent: Lent, *, is_left_to_next: bool) -> None:
        """Return when a call has ended everywhere, its lease is over, or the next writer has it."""
        await trio.lowlevel.checkpoint()
        lent.give_up()
        try:
            if lent.end is not None:
                self.ends.add(lent)
            elif is_left_to_next:
                pass
            elif lent.execution is None:
                self._to_withdraw.append(lent.dispatch(self.tenure.journal))
                self._send_due.set()
            else:
                self.stop(lent.execution, lent.worker)
                if not (lent.scope.cancelled_caught or self._is_silent):
                    with trio.move_on_after(STOP_SECONDS):
                        await lent.ended.wait()
                    self.ends.add(lent)
        finally:
            del self.lent[lent.id]

    def send(self, lent: Lent, *, is_shown: bool = False) -> None:
        """Send the next attempt of a call, and take the one before back.

        `is_shown`: a fact says already that its task waits for a worker.
        """
        if lent.is_sent:
            self._to_withdraw.append(lent.dispatch(self.tenure.journal))
        lent.attempt = max(work.attempt_number(self.tenure.epoch, lent.tries), lent.attempt + 1)
        lent.tries += 1
        lent.wait_again(is_shown=is_shown)
        self._to_send[lent.id] = lent
        self._send_due.set()

    def send_refused(self, lent: Lent, waiting: Waiting) -> None:
        """Send a call that a worker has refused to the others, as soon as there is another one."""
        waiting.is_refused = True
        if any(
            it.alive
            and it.beat.place == lent.place
            and (it.beat.worker, lent.version) not in self.refused
            for it in self.workers
        ):
            self.send(lent, is_shown=waiting.is_shown)

    def stop(self, execution: work.ExecutionId, worker: work.WorkerId) -> None:
        """Have an execution stopped that counts no more."""
        self._mailbox.stop(worker, execution)
        self._finish(execution, worker)

    def lose(self, lent: Lent, loss: Loss, said: work.Request | None = None) -> None:
        """Try a call again that lost its execution, or break it off; `said` is from its worker."""
        if said is None and lent.execution is not None:
            self.stop(lent.execution, lent.worker)
        if lent.is_over:
            lent.set_end(wire.Stopped(lent.id), said)
        elif lent.may_begin_again:
            self._send_next(lent, said)
        else:
            lent.break_off(loss, said)

    def _send_next(self, lent: Lent, said: work.Request | None) -> None:
        """Send a call without an execution again; its worker hears of it when that is durable."""
        self.send(lent)
        self.post(lent)
        if said is not None:
            self.ends.add_recorded(said)

    def post(self, lent: Lent, *, wants: str = "") -> None:
        """Post where a call runs, or why it waits."""
        if self._book.closed or self._book.is_broken:
            return
        self._book.post(lent.fact(wants))

    def give(self, turn: LentTurn) -> None:
        """Give the execution of a turn the calls that are due, if it waits for any."""
        if (told := turn.pop_due()) is not None:
            request, due = told
            self.reply(request, wire.Calls(tuple(due)))

    def reply(self, request: work.Request, reply: wire.Reply) -> None:
        """Tell an execution what becomes of it."""
        self._mailbox.answer(request, wire.encoded(reply))
        if isinstance(reply, wire.Taken | wire.Fenced | wire.Later):
            self._finish(request.execution, request.worker)

    def _acknowledge(self, request: work.Request) -> None:
        # What an execution says before its end is about a call of a turn, which goes on.
        self.reply(request, wire.Kept() if request.number > wire.END else wire.Taken())

    def forget(self, execution: work.ExecutionId) -> None:
        """Drop the messages of a finished execution that its worker no longer holds."""
        del self.finished[execution]
        self._mailbox.forget(execution)

    def _finish(self, execution: work.ExecutionId, worker: work.WorkerId) -> None:
        self.finished[execution] = worker
        self._changed.set()

    async def _send_forever(self) -> NoReturn:
        while True:
            await self._send_due.wait()
            self._send_due = trio.Event()
            back, self._to_withdraw = self._to_withdraw, []
            waiting = [it for it in self._to_send.values() if isinstance(it.state, Waiting)]
            self._to_send = {}
            sent = [lent.dispatch(self.tenure.journal) for lent in waiting]
            if back:
                await self._queue.withdraw(self.tenure, back)
            if sent:
                await self._queue.send(self.tenure, sent)
            for lent, dispatch in zip(waiting, sent, strict=True):
                lent.sent = dispatch.attempt

    async def _receive_forever(self, nursery: trio.Nursery) -> NoReturn:
        while True:
            begun = [
                (request, lent)
                for request in await self._mailbox.receive()
                if (lent := self._hear(request)) is not None
            ]
            if begun:
                nursery.start_soon(self._let_begin, begun)

    async def _let_begin(self, begun: list[tuple[work.Request, Lent]]) -> None:
        await self._book.wait_durable()
        for request, lent in begun:
            if lent.execution == request.execution and not lent.is_over:
                self._reply_to_begin(request, lent)
            else:
                self.reply(request, wire.Fenced())

    def _reply_to_begin(self, request: work.Request, lent: Lent) -> None:
        if lent.may_begin:
            self.reply(request, self._work_of(lent))
        else:
            self.reply(request, wire.Fenced())
            lent.break_off(Loss.NOT_BEGUN)

    def _hear(self, request: work.Request) -> Lent | None:
        """Take in a message; return its call if the execution may begin once that is durable."""
        question = wire.question_in(request.body)
        if question is None:
            self._hear_rubbish(request)
            return None
        lent = self.lent.get(work.DispatchId(question.dispatch))
        if isinstance(question, wire.Begin):
            return self._accepted(request, question, lent)
        if lent is not None and lent.execution == request.execution and lent.end is None:
            if isinstance(question, wire.Next | wire.CallEnded):
                self._hear_turn(lent, question, request)
            else:
                self._take_end(lent, question, request)
        elif (
            request.execution not in self.finished
            and self.recorded.counts(request.execution) is not False
        ):
            self._park(request)
        else:
            self.reply(request, wire.Fenced())
        return None

    def _hear_rubbish(self, request: work.Request) -> None:
        for lent in self.lent.values():
            if lent.execution == request.execution:
                self.stop(request.execution, request.worker)
                if lent.is_over:
                    lent.set_end(wire.Stopped(lent.id))
                else:
                    lent.break_off(Loss.RUBBISH)
        self.reply(request, wire.Fenced())

    def _hear_turn(
        self, lent: Lent, question: wire.Next | wire.CallEnded, request: work.Request
    ) -> None:
        match question:
            case _ if not isinstance(lent, LentTurn):
                self._hear_rubbish(request)
            case wire.Next():
                if lent.told is not None:
                    # Its execution has asked again, so it has heard that.
                    self._mailbox.drop_answer(lent.told)
                lent.ask(request, question)
                self.give(lent)
            case wire.CallEnded():
                if not lent.take(question, request):
                    self.ends.add_late(lent, CallId(question.call), request)
            case _:
                assert_never(question)

    def _accepted(self, request: work.Request, begin: wire.Begin, lent: Lent | None) -> Lent | None:
        if lent is None or lent.is_over or self._book.closed:
            if lent is None and self.recorded.counts(request.execution) is not False:
                self._park(request)
            else:
                self.reply(request, wire.Fenced())
            return None
        if lent.execution == request.execution:
            return lent  # it asks again, or was accepted by an earlier writer
        if not isinstance(lent.state, Waiting) or lent.attempt != begin.attempt:
            self.reply(request, wire.Fenced())
            return None
        if (request.worker, lent.version) in self.refused:
            self.reply(request, wire.Later())
            self.send_refused(lent, lent.state)
            return None
        lent.accept(request.execution, request.worker)
        self.post(lent)
        return lent

    def _park(self, request: work.Request) -> None:
        self.parked.setdefault(request.execution, []).append(request)

    def _take_end(self, lent: Lent, end: wire.End, request: work.Request) -> None:
        match end:
            case wire.Stopped() if lent.is_over:
                lent.set_end(end, request)
            case wire.Unfit() if lent.is_over:
                lent.set_end(wire.Stopped(lent.id), request)
            case wire.Unfit() if not lent.may_begin:
                lent.break_off(Loss.NOT_BEGUN, request)
            case wire.Unfit(lasting=False):
                self._send_next(lent, request)
            case wire.Unfit(why=why):
                self._refuse(lent, why, request)
            case wire.Stopped():
                # Its worker was told to end.
                self.lose(lent, Loss.STOPPED, request)
            case wire.Crashed() if isinstance(lent, LentTurn):
                lent.crash(end, request)
            case wire.Answered() | wire.Failed() | wire.Crashed():
                if isinstance(lent, LentTurn):
                    self._hear_rubbish(request)
                else:
                    lent.set_end(end, request)
            case _:
                assert_never(end)

    def _refuse(self, lent: Lent, why: str, said: work.Request) -> None:
        """Wait for another worker than the one that could not begin."""
        self.refused.add((said.worker, lent.version))
        lent.attempt += 1
        lent.wait_again(is_shown=True)
        self.post(lent, wants=f"{lent.version} ({why})")
        self.ends.add_recorded(said)
        assert isinstance(lent.state, Waiting), "it waits again"
        self.send_refused(lent, lent.state)
