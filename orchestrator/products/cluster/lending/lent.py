"""A lent call or turn, and its state: waiting for a worker, running in one execution, or over."""

import enum
from abc import ABC, abstractmethod
from typing import TypeAlias, assert_never

import attrs
import trio

from orchestrator.agents import CallId
from orchestrator.delegation import TaskRecord
from orchestrator.delegation.events import CallPlaced
from orchestrator.products.cluster.work import Dispatch, ExecutionId, Request, WorkerId
from orchestrator.products.cluster.worker.wire import End, dispatch_id


class Loss(enum.Enum):
    """Why an execution has no end of its own."""

    GONE = enum.auto()
    """Its worker is dead, or holds it no more."""
    STOPPED = enum.auto()
    """Its worker was stopped."""
    RUBBISH = enum.auto()
    """Its message cannot be read."""
    NOT_BEGUN = enum.auto()
    """Its worker has not begun it, and no other one can."""


@attrs.define(eq=False)
class Waiting:
    """No execution counts: the next execution that begins this attempt does."""

    since: float = attrs.field(factory=trio.current_time)
    checked: float = attrs.field(factory=trio.current_time)
    """When the queue was last known to have the attempt."""
    is_shown: bool = False
    """A fact says that the task waits for a worker."""
    is_refused: bool = False
    """A worker cannot run it: it is sent again when another one can."""


@attrs.define(eq=False)
class Running:
    """One execution of one attempt counts."""

    execution: ExecutionId
    worker: WorkerId
    beats: int | None = None
    """The number of beats of the worker when the execution was first looked for."""
    is_missing: bool = False
    """The execution was not found when workers were looked at last."""


@attrs.frozen(eq=False)
class Over:
    """Nothing waits for it any more, and no execution may begin."""

    running: Running | None
    """The execution that is being stopped, and may yet tell its end."""


LentState: TypeAlias = Waiting | Running | Over
"""A call alternates between waiting and running, once for each try, and then is over for good."""


class Lent(ABC):
    """A call or a turn that is lent."""

    def __init__(self, task: TaskRecord, call: CallId, *, place: str, version: str) -> None:
        """Begin before the first attempt is sent."""
        self.task = task
        self.first_call = call
        self.place = place
        self.version = version
        self.id = dispatch_id(task.call_prefix, call)
        self.attempt = 0
        self.tries = 0
        self.sent: int | None = None
        """The last attempt that was given to the queue."""
        self.state: LentState = Waiting()
        self.scope = trio.CancelScope()
        self.end: End | None = None
        self.request: Request | None = None
        """The request that told the end, to be acknowledged."""
        self.ended = trio.Event()

    @property
    @abstractmethod
    def placed(self) -> CallPlaced | None:
        """The fact of the journal that says where it waits or runs."""

    @property
    @abstractmethod
    def may_begin_again(self) -> bool:
        """An execution that is gone does not keep another one from being tried."""

    @property
    def may_begin(self) -> bool:
        """An execution may be told to begin; not where its arguments are not known any more."""
        return True

    @property
    def running(self) -> Running | None:
        """The execution that counts, or that is being stopped."""
        match self.state:
            case Running():
                return self.state
            case Over():
                return self.state.running
            case Waiting():
                return None
            case _:
                assert_never(self.state)

    @property
    def execution(self) -> ExecutionId | None:
        return None if (running := self.running) is None else running.execution

    @property
    def worker(self) -> WorkerId:
        return WorkerId("") if (running := self.running) is None else running.worker

    @property
    def is_over(self) -> bool:
        return isinstance(self.state, Over)

    @property
    def is_sent(self) -> bool:
        """The queue was given the current attempt."""
        return self.sent == self.attempt

    @abstractmethod
    def break_off(self, loss: Loss, said: Request | None = None) -> None:
        """Give up a call or turn that must not run again; `said` is yet to be acknowledged."""

    def fact(self, wants: str) -> CallPlaced:
        """Return the fact that says where it runs, or why it waits."""
        execution = self.execution or ""
        call = self.first_call
        return CallPlaced(
            self.task.id, call, self.place, self.attempt, self.worker, execution, wants
        )

    def dispatch(self, journal: str) -> Dispatch:
        return Dispatch(self.id, self.attempt, journal, self.place)

    def accept(self, execution: ExecutionId, worker: WorkerId) -> None:
        """Let an execution count from now on."""
        self.state = Running(execution, worker)

    def adopt(self, execution: ExecutionId, worker: WorkerId) -> None:
        """Go on with the execution that an earlier writer has accepted."""
        self.accept(execution, worker)

    def wait_again(self, *, is_shown: bool = False) -> None:
        """Wait for a worker: no execution counts any more."""
        self.state = Waiting(is_shown=is_shown)

    def give_up(self) -> None:
        """Let no execution begin any more: the one that counts is to be stopped."""
        self.state = Over(self.running)

    def set_end(self, end: End, request: Request | None = None) -> None:
        if self.end is None:
            self.end, self.request = end, request
        self.ended.set()
