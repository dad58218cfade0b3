"""What is lent, a call or a turn, from its first dispatch to its end: which run counts, if any."""

import enum
from abc import ABC, abstractmethod

import trio

from orchestrator.agents import CallId
from orchestrator.delegation import TaskRecord
from orchestrator.delegation.events import CallPlaced
from orchestrator.products.cluster.work import Dispatch, Request, RunId, WorkerId
from orchestrator.products.cluster.worker.wire import End, dispatch_id


class Loss(enum.Enum):
    """Why a run has no end of its own."""

    GONE = enum.auto()
    """Its worker is dead, or holds it no more."""
    STOPPED = enum.auto()
    """Its worker was stopped."""
    RUBBISH = enum.auto()
    """What it says cannot be read."""
    NOT_BEGUN = enum.auto()
    """Its worker has not begun it, and no other one can."""


class Lent(ABC):
    """The state of what is lent."""

    def __init__(self, task: TaskRecord, call: CallId, *, place: str, version: str) -> None:
        """Begin with what was sent to no worker yet.

        Args:
            task: whose call or turn it is.
            call: the call; of a turn the first one.
            place: whose workers it is lent to.
            version: the fingerprint of the agent.
        """
        self.task = task
        self.first_call = call
        self.place = place
        self.version = version
        self.id = dispatch_id(task.call_prefix, call)
        self.attempt = 0
        self.tries = 0
        self.run: RunId | None = None
        """The one that counts; None while it waits for a worker."""
        self.worker = WorkerId("")
        self.beats: int | None = None
        """How often its worker had been heard of when it was first looked for."""
        self.is_missing = False
        """Its run was not found when workers were looked at last."""
        self.is_over = False
        """Nothing waits for it any more: no run may begin."""
        self.is_shown = False
        """A fact says that it waits for a worker."""
        self.since = trio.current_time()
        """Since when it waits for a worker."""
        self.is_sent = False
        """The queue has its attempt, as far as is known."""
        self.checked = self.since
        """When it was last known that the queue has its attempt."""
        self.is_refused = False
        """A worker cannot run it: it is sent again when another one can."""
        self.scope = trio.CancelScope()
        self.end: End | None = None
        self.request: Request | None = None
        """What has told the end, to be acknowledged."""
        self.ended = trio.Event()

    @property
    @abstractmethod
    def placed(self) -> CallPlaced | None:
        """Where the journal says that it waits or runs."""

    @property
    @abstractmethod
    def may_begin_again(self) -> bool:
        """A run that is gone does not keep another one from being tried."""

    @property
    def may_begin(self) -> bool:
        """A run may be told to begin; not where its arguments are not known any more."""
        return True

    @property
    def is_waiting(self) -> bool:
        """It waits for a worker."""
        return self.run is None and not self.is_over

    @abstractmethod
    def break_off(self, loss: Loss, said: Request | None = None) -> None:
        """Give up what has run, and must not or cannot run once more.

        Args:
            loss: why.
            said: how its worker has told that, to be acknowledged; None if it has not.
        """

    def fact(self, wants: str) -> CallPlaced:
        """Return where it runs, or what it waits for."""
        return CallPlaced(
            self.task.id,
            self.first_call,
            self.place,
            self.attempt,
            self.worker,
            self.run or "",
            wants,
        )

    def dispatch(self, journal: str) -> Dispatch:
        return Dispatch(self.id, self.attempt, journal, self.place)

    def accept(self, run: RunId, worker: WorkerId) -> None:
        self.run, self.worker, self.beats = run, worker, None
        self.is_missing = False

    def adopt(self, run: RunId, worker: WorkerId) -> None:
        """Go on with the run that an earlier writer has accepted."""
        self.accept(run, worker)

    def wait_again(self) -> None:
        self.run, self.worker, self.beats = None, WorkerId(""), None
        self.is_missing = self.is_shown = self.is_sent = self.is_refused = False
        self.since = self.checked = trio.current_time()

    def set_end(self, end: End, request: Request | None = None) -> None:
        if self.end is None:
            self.end, self.request = end, request
        self.ended.set()
