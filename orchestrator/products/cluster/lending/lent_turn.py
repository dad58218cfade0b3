"""One turn that is lent as a whole: all of its calls run at the one worker that has its state.

The worker asks which calls are due, and says which it has begun: a call is given to it until it
has, and an execution begins no call twice. So the next writer goes on where this one was, with no
fact for each call. A worker that is gone takes the state of the tools with it: the turn is lost.
"""

from typing import Final

import trio
from msgspec.structs import replace

from orchestrator.agents import (
    CallId,
    CallKey,
    RefusedBy,
    Tool,
    ToolCall,
    ToolError,
    unanswered_calls,
)
from orchestrator.agents.tools.result_text import ToolResult
from orchestrator.delegation import TaskRecord
from orchestrator.delegation.events import CallPlaced
from orchestrator.ports.execution import WorkerLostError
from orchestrator.products.cluster.lending import lent_call
from orchestrator.products.cluster.lending.lent import Lent, Loss, Over
from orchestrator.products.cluster.work import ExecutionId, Request, WorkerId
from orchestrator.products.cluster.worker import wire

_WHY: Final = {
    Loss.GONE: "it is dead, or holds the turn no more",
    Loss.STOPPED: "it was stopped during the turn",
    Loss.RUBBISH: "it has said what cannot be read",
    Loss.NOT_BEGUN: "it has not begun the turn",
}
KEEP_SECONDS: Final = 600.0
"""How long a worker waits for calls before it is told that the writer is still there."""


class TurnCall:
    """A call of a lent turn, until it has its answer."""

    def __init__(
        self, tool: Tool, call: ToolCall, key: CallKey, *, lacks_secret: bool = False
    ) -> None:
        """Begin with a call that was given to no execution.

        A call that `lacks_secret` is ended by the execution that has begun it, and no other one may
        begin it. Raise `ToolError` if its arguments are too long for a worker.
        """
        lent_call.require_small(tool, call)
        self.lacks_secret = lacks_secret
        self.tool = tool
        self.call = call
        self.key = key
        self.deadline = lent_call.deadline_of(tool)
        self.end: wire.CallEnd | None = None
        self.request: Request | None = None
        """The message with the end, to be acknowledged."""
        self.ended = trio.Event()

    def due(self) -> wire.DueCall:
        return wire.DueCall(
            tool=self.call.name,
            arguments=dict(self.call.arguments),
            call=self.call.id,
            key=self.key,
            seconds=lent_call.seconds_until(self.deadline),
        )


class LentTurn(Lent):
    """The state of one turn."""

    def __init__(self, task: TaskRecord, call: CallId, *, place: str, version: str) -> None:
        super().__init__(task, call, place=place, version=version)
        self.calls: dict[CallId, TurnCall] = {}
        """Those that wait for their answers."""
        self.given: set[CallId] = set()
        """Those that an execution may have begun."""
        self._early: dict[CallId, tuple[wire.CallEnd, Request]] = {}
        """Messages of an execution about calls that no task waits for yet."""
        self._asked: tuple[Request, wire.Next] | None = None
        """The open request of its execution."""
        self._asked_at = 0.0
        self.told: Request | None = None
        """The last question for calls that was answered."""
        self._given_up: set[CallId] = set()
        """The calls that were answered without an end from the execution, which may yet say one."""
        self._lost_at = ""
        self._loss: Loss | None = None
        self._begun: list[str] = []
        """The tools whose calls were broken off."""
        self._is_told = False

    @property
    def placed(self) -> CallPlaced | None:
        return self.task.placed_turn

    @property
    def may_begin_again(self) -> bool:
        return not self.given

    def fact(self, wants: str) -> CallPlaced:
        return replace(super().fact(wants), turn=True)

    def wait_again(self, *, is_shown: bool = False) -> None:
        super().wait_again(is_shown=is_shown)
        self._forget_given()

    def _forget_given(self) -> None:
        self.given.clear()
        self._asked = self.told = None

    def adopt(self, execution: ExecutionId, worker: WorkerId) -> None:
        """Go on with the execution that an earlier writer has accepted."""
        self.accept(execution, worker)
        # What that writer has given to it is not known.
        self.given.add(self.first_call)

    def break_off(self, loss: Loss, said: Request | None = None) -> None:
        """Give the turn up: its state is gone."""
        self._lost_at, self._loss = self.worker, loss
        self._begun = [it.tool.name for id_, it in self.calls.items() if id_ in self.given]
        self.state = Over(None)
        self._forget_given()
        for call in self.calls.values():
            call.ended.set()
        if said is not None:
            self.set_end(wire.Stopped(self.id), said)

    def crash(self, end: wire.Crashed, said: Request) -> None:
        """End a turn that could not begin, and its calls with that."""
        self.give_up()
        self.set_end(end, said)
        for call in self.calls.values():
            call.end = end
            call.ended.set()

    def ask(self, request: Request, question: wire.Next) -> None:
        """Note that its execution waits for calls."""
        self._asked, self._asked_at = (request, question), trio.current_time()
        self.given.update(map(CallId, question.begun))

    def pop_due(self) -> tuple[Request, list[wire.DueCall]] | None:
        """Return once what its execution is to be told: the calls that are due, if any."""
        if self._asked is None:
            return None
        request, question = self._asked
        due: list[TurnCall] = []
        for id_, it in self.calls.items():
            if id_ in question.begun:
                continue
            if it.lacks_secret:
                it.end = wire.Failed(self.id, lent_call.NOT_BEGUN, RefusedBy.CRASH.value)
                it.ended.set()
            else:
                due.append(it)
        if not due and trio.current_time() < self._asked_at + KEEP_SECONDS:
            return None
        self._asked = None
        self.told = request
        self.given.update(it.call.id for it in due)
        return request, [it.due() for it in due]

    def take(self, ended: wire.CallEnded, request: Request) -> bool:
        """Take in the end of a call; return whether anything waits for it, or will."""
        id_ = CallId(ended.call)
        if id_ in self.calls:
            call = self.calls[id_]
            call.end, call.request = ended.end, request
            call.ended.set()
            return True
        if id_ in self._given_up or not self.is_unanswered(id_):
            self._given_up.discard(id_)
            return False
        self._early[id_] = ended.end, request
        return True

    def is_unanswered(self, call: CallId) -> bool:
        """Return whether the journal has no answer of a call."""
        return any(it.id == call for it in unanswered_calls(self.task.transcript))

    def remove(self, call: TurnCall) -> None:
        """Wait for a call no more."""
        del self.calls[call.call.id]
        if call.request is None and call.call.id in self.given:
            self._given_up.add(call.call.id)

    def add(self, call: TurnCall) -> None:
        """Wait for a call from now on."""
        self.calls[call.call.id] = call
        if (early := self._early.pop(call.call.id, None)) is not None:
            call.end, call.request = early
            call.ended.set()
        elif isinstance(self.end, wire.Crashed):
            call.end = self.end
            call.ended.set()

    async def wait_answer(self, call: TurnCall) -> str | ToolResult:
        """Wait for a call of the turn, and return the answer of the tool.

        Raises:
            ToolError: the model reads why.
            WorkerCallError: the tool failed with another error.
            WorkerLostError: the worker is gone.
        """
        await trio.lowlevel.checkpoint()
        if not self.is_lost:
            with trio.CancelScope(deadline=call.deadline):
                await call.ended.wait()
        # The worker has a clock of its own, and tells when it is over.
        if not call.ended.is_set() and call.call.id in self.given:
            with trio.move_on_after(lent_call.LATE_SECONDS):
                await call.ended.wait()
        if self.is_lost and call.end is None:
            await self._raise_lost()
        if call.end is None:
            raise self._over_time(call)
        return lent_call.result_of(call.end, call.tool)

    @property
    def is_lost(self) -> bool:
        return self._loss is not None

    def _over_time(self, call: TurnCall) -> ToolError:
        if call.call.id in self.given:
            return lent_call.too_late(call.tool)
        return lent_call.not_taken(call.tool, self.place)

    async def _raise_lost(self) -> None:
        """Raise that the worker is gone, once: the other calls of the turn end with that."""
        if self._is_told:
            await trio.sleep_forever()
        self._is_told = True
        await trio.lowlevel.checkpoint()
        assert self._loss is not None, "it is lost"
        raise WorkerLostError(
            self.task.path,
            place=self.place,
            worker=self._lost_at,
            why=_WHY[self._loss],
            begun=self._begun,
        )
