"""The one hand that writes the journal.

Deciding and posting are one synchronous step, so no two requests pass the same limit. Whoever
posts then waits until the fact is durable, and only then acts on it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, Protocol

import attrs
import trio

from agents import RefusedBy
from agents.redaction.redactor import Redactor
from delegation import (
    Detach,
    Ledger,
    Mode,
    Refuse,
    SessionId,
    SessionRecord,
    TaskId,
    TaskRecord,
    TaskRequest,
    decide,
    encode_shared_use,
    evict_session,
    in_dependency_order,
    restore_session,
    root_of,
)
from delegation.events import (
    ApprovalAnswered,
    Entry,
    Event,
    JournalOpened,
    SessionOpened,
    SteeringSeen,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    TurnEnded,
)
from orchestrator.errors import ClosedError, JournalError
from orchestrator.journal.fact_redaction import EventT, FactRedactor
from orchestrator.journal.journal import Journal, fold_entries
from orchestrator.journal.subscriptions import FactSubscribers

REMEMBERED_TASKS: Final = 10_000
"""How many tasks of sessions at rest stay in memory: some 20 MB."""
NO_CHANGES: Final[Mapping[SessionId, str | None]] = {}
STOPPING: Final = "the orchestrator is stopping"


@attrs.define
class _SessionRead:
    """A session that is being read back: by how many, and how often it was forgotten again."""

    readers: int = 0
    forgotten: int = 0


class FactStamp(Protocol):
    """Completes and dates a fact before it is folded."""

    def stamp(self, event: EventT) -> tuple[EventT, float]:
        """Return the fact to post, and its time."""
        ...


class Schedule(Protocol):
    """Decides when due work is begun."""

    async def wait_start_due(self, ledger: Ledger) -> None:
        """Wait until the next startable task is to be started."""
        ...

    async def wait_turn_due(self, ledger: Ledger) -> None:
        """Wait until the next wakeable session is to begin its turn."""
        ...


class Bookkeeper:
    """Numbers and dates facts, folds them, and hands them to the journal."""

    def __init__(
        self,
        journal: Journal,
        ledger: Ledger,
        *,
        clock: Callable[[], float],
        redactor: Redactor | None = None,
        fact_stamp: FactStamp | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        """Write to a journal whose contents the ledger has folded.

        Args:
            journal: stores the facts.
            ledger: the state after all that the journal has.
            clock: the time of now, which dates facts.
            redactor: removes secrets from facts before they are folded.
            fact_stamp: dates and completes facts instead of the clock; replay dates them as they
                were recorded.
            schedule: begins due work later than at once; replay begins it when it was begun.
        """
        self.ledger = ledger
        self.clock = clock
        self.closed = False
        self.is_broken = False
        """Nothing can be written any more."""
        self.stopping = False
        """Nothing new is begun: what runs may finish, and all else is for the next process."""
        self.redactor = Redactor() if redactor is None else redactor
        self._fact_redactor = FactRedactor(self.redactor)
        self.subscribers = FactSubscribers()
        self._journal = journal
        self._fact_stamp = fact_stamp
        self._schedule = schedule
        self._post_waiters = trio.lowlevel.ParkingLot()
        self._session_waiters: dict[SessionId, trio.lowlevel.ParkingLot] = {}
        """Who waits for anything to happen in a session."""
        self._startable = trio.lowlevel.ParkingLot()
        self._wakeable = trio.lowlevel.ParkingLot()
        self._idle_sizes: dict[SessionId, int] = {}
        """The sessions at rest that are still remembered, oldest first, with their size."""
        self._idle_tasks = 0
        self._reads: dict[SessionId, _SessionRead] = {}
        """The sessions that are being read back."""
        self._active = set(ledger.sessions)
        self._slot_waiters: dict[TaskId, trio.Event] = {}
        """Who waits for room for a joined task."""
        self._task_waiters: dict[TaskId, set[trio.Event]] = {}
        """Who waits for news of a task."""

    def post(self, event: EventT) -> EventT:
        """Make a fact true for all decisions to come, and return it as it is kept.

        It is not durable yet.
        """
        if self.closed:
            raise ClosedError("the orchestrator is closed")
        ledger = self.ledger
        if self._fact_stamp is None:
            at = self.clock()
        else:
            event, at = self._fact_stamp.stamp(event)
        # What cannot be written down must not become true.
        event, encoded = self._fact_redactor.encode(event)
        entry = Entry(ledger.last_seq + 1, at, ledger.session_of(event), event)
        ledger.fold(entry)
        self._journal.append(entry, encoded, self._idle_changes(entry))
        self.subscribers.notify(entry, encoded)
        if self._post_waiters:
            self._post_waiters.unpark_all()
        if (
            self._session_waiters
            and (lot := self._session_waiters.get(entry.session)) is not None
        ):
            lot.unpark_all()
        if ledger.startable and self._startable:
            self._startable.unpark_all()
        if ledger.wakeable and self._wakeable:
            self._wakeable.unpark_all()
        if self._slot_waiters:
            self._wake_slot_waiters(event)
        if self._task_waiters:
            self._wake_task_waiters(event)
        return event

    def _idle_changes(self, entry: Entry) -> Mapping[SessionId, str | None]:
        """Return the sessions that a fact has laid to rest, or woken."""
        session = self.ledger.sessions.get(entry.session)
        if session is not None:
            if session.turn is not None and entry.session in self._active:
                return NO_CHANGES  # most facts: it is known that it has something to do
            # Whoever is new is about to have something to do.
            is_new = isinstance(entry.event, SessionOpened)
            changed = (
                self._mark_active(session) if is_new else self._update_idle(session)
            )
        elif isinstance(entry.event, JournalOpened):
            changed = dict[SessionId, str | None]()
            for session in list(self.ledger.sessions.values()):
                changed |= self._update_idle(session)
        else:
            return NO_CHANGES
        self._evict_oldest(but=entry.session)
        return changed

    def _update_idle(self, session: SessionRecord) -> dict[SessionId, str | None]:
        if not session.is_idle:
            return {} if session.id in self._active else self._mark_active(session)
        if session.id not in self._active:
            return {}
        self._active.remove(session.id)
        self._mark_idle(session)
        return {session.id: encode_shared_use(session)}

    def _mark_active(self, session: SessionRecord) -> dict[SessionId, str | None]:
        self._active.add(session.id)
        self._idle_tasks -= self._idle_sizes.pop(session.id, 0)
        return {session.id: None}

    def _mark_idle(self, session: SessionRecord) -> None:
        self._idle_sizes[session.id] = len(session.tree)
        self._idle_tasks += len(session.tree)

    def _evict_oldest(self, *, but: SessionId) -> None:
        """Remember only so many of the tasks that nobody has to remember."""
        # The newest stays, however large it is: whoever asked for it may look at it now. So does
        # the one that a fact is about: whoever posts that works with it.
        while self._idle_tasks > REMEMBERED_TASKS and len(self._idle_sizes) > 1:
            session = next(iter(self._idle_sizes))
            if session == but:
                self._idle_sizes[session] = self._idle_sizes.pop(session)
                return
            self._idle_tasks -= self._idle_sizes.pop(session)
            if session in self._reads:
                self._reads[session].forgotten += 1
            evict_session(self.ledger, session)

    async def load_session(self, session: SessionId) -> None:
        """Remember a session at rest again."""
        reading = self._reads.setdefault(session, _SessionRead())
        reading.readers += 1
        try:
            while True:
                forgotten = reading.forgotten
                past = await self.read_evicted(session)
                # What somebody else has recalled, used and let go meanwhile is out of date.
                if forgotten == reading.forgotten:
                    break
        finally:
            reading.readers -= 1
            if not reading.readers:
                del self._reads[session]
        if past is not None and self.ledger.is_evicted(session):
            restore_session(self.ledger, session, past)
            self._mark_idle(self.ledger.sessions[session])
            self._evict_oldest(but=session)

    async def read_evicted(self, session: SessionId) -> Ledger | None:
        """Return the fold of a session that is not remembered; None if it is."""
        # What was just written is not on the disk yet.
        await self.wait_durable()
        if not self.ledger.is_evicted(session):
            return None
        entries = await self._journal.read_session(session)
        return fold_entries(entries, type(self._journal).__name__, self.ledger.rules)

    async def read_entries(self, session: SessionId) -> Sequence[Entry]:
        """Return what the journal has of a session, and of none."""
        await self.wait_durable()
        return await self._journal.read_session(session)

    async def read_naming(self, kind: type[Event], id_: str) -> Sequence[Entry]:
        """Return the entries of one kind in which an id stands, whosesoever they are."""
        await self.wait_durable()
        return await self._journal.read_naming(kind.__name__, id_)

    def _wake_slot_waiters(self, event: Event) -> None:
        """Wake those who wait for room, and whose task has it now or has ended."""
        for task in reversed(self.ledger.joinable):
            if (waiting := self._slot_waiters.get(task)) is None:
                continue
            if waiting.is_set():
                break  # the newest come last: those before it were woken with it
            waiting.set()
        if isinstance(event, TaskSettled) and event.task in self._slot_waiters:
            self._slot_waiters[event.task].set()

    def _wake_task_waiters(self, event: Event) -> None:
        match event:
            case TaskSettled(task) | SteeringSeen(task) | ApprovalAnswered(task):
                following = self._task_waiters.get(task, ())
            case TurnEnded(session):
                following = self._task_waiters.get(root_of(session), ())
            case _:
                return
        for follower in following:
            follower.set()

    def admit(self, requests: Sequence[TaskRequest]) -> Refuse | None:
        """Decide what is asked for in one call, and post all of it unless it is refused.

        Joined tasks that have room are started with it: whoever asked runs them.
        """
        if self.stopping:
            return Refuse(
                f"{STOPPING}, and nothing is handed on any more: end with what you have",
                refused_by=RefusedBy.SHUTDOWN,
            )
        verdict = decide(requests, self.ledger)
        if isinstance(verdict, Refuse):
            return verdict
        mode = Mode.DETACHED if isinstance(verdict, Detach) else Mode.JOINED
        for request in in_dependency_order(requests):
            self.post(TaskRequested(request, mode, verdict.reason))
            if request.id in self.ledger.joinable:
                self.post(TaskStarted(request.id))
        return None

    async def wait_slot(self, task: TaskId) -> None:
        """Wait until a joined task has room, or has ended without it."""
        await trio.lowlevel.checkpoint()
        record = self.ledger.tasks[task]
        while not (record.has_slot or record.outcome):
            waiting = self._slot_waiters[task] = trio.Event()
            try:
                await waiting.wait()
            finally:
                del self._slot_waiters[task]

    async def wait_tasks_changed(self, tasks: Collection[TaskId]) -> None:
        """Wait until one of these has ended, has seen what it was told, or may go on."""
        news = trio.Event()
        for task in tasks:
            self._task_waiters.setdefault(task, set()).add(news)
        try:
            await news.wait()
        finally:
            for task in tasks:
                self._task_waiters[task].remove(news)
                if not self._task_waiters[task]:
                    del self._task_waiters[task]

    async def wait_durable(self) -> None:
        """Wait until everything posted so far survives a crash."""
        try:
            await self._journal.wait_durable(self.ledger.last_seq)
        except JournalError:
            self.is_broken = True
            raise

    async def wait_posted(self, *, after: int) -> None:
        """Wait until there are more facts than this."""
        await trio.lowlevel.checkpoint()
        while self.ledger.last_seq <= after:
            await self._post_waiters.park()

    async def wait_changed(self) -> None:
        """Wait until something happens, whatever it is."""
        await self._post_waiters.park()

    async def wait_session_changed(self, session: SessionId) -> None:
        """Wait until something happens in one session."""
        lot = self._session_waiters.setdefault(session, trio.lowlevel.ParkingLot())
        try:
            await lot.park()
        finally:
            # Another may wait by now, at this one or at a new one.
            if not lot and self._session_waiters.get(session) is lot:
                del self._session_waiters[session]

    def wake_waiters(self) -> None:
        """Let whoever waits look again: something has changed that is no fact."""
        self._post_waiters.unpark_all()
        for lot in self._session_waiters.values():
            lot.unpark_all()

    def stop_accepting(self) -> None:
        """Begin nothing new from now on."""
        self.stopping = True
        self.wake_waiters()

    def require_accepting(self) -> None:
        """Refuse to begin something where nothing new is begun."""
        if self.stopping:
            raise ClosedError(
                f"{STOPPING} and begins nothing new; open it again to go on"
            )

    async def wait_accepting(self, task: TaskId) -> None:
        """Wait until a task may hand work on, or be told that it may not.

        While the orchestrator stops, whoever can go on later waits for that: a refusal would spoil
        what it does for ever. Whoever cannot is better off with what it has.
        """
        await trio.lowlevel.checkpoint()
        if self.stopping and not self.ledger.settles_on_teardown(task):
            await trio.sleep_forever()

    def running_tasks(self) -> Iterator[TaskRecord]:
        """Yield everybody who works now: sessions in a turn, and detached tasks.

        What is joined works within one of these.
        """
        for id_ in self._active:
            session = self.ledger.sessions[id_]
            if session.root.is_running:
                yield session.root
            yield from (
                task for task in session.unsettled_detached.values() if task.is_running
            )

    @property
    def has_running_tasks(self) -> bool:
        return next(self.running_tasks(), None) is not None

    def close(self) -> None:
        """Take no more facts."""
        self.closed = True
        self.wake_waiters()

    async def wait_startable(self) -> None:
        """Wait until a detached task is due."""
        await trio.lowlevel.checkpoint()
        while True:
            while self.stopping or not self.ledger.startable:
                await self._startable.park()
            if self._schedule is None:
                return
            await self._schedule.wait_start_due(self.ledger)
            if self.ledger.startable:
                return

    async def wait_wakeable(self) -> None:
        """Wait until a session is due for a turn."""
        await trio.lowlevel.checkpoint()
        while True:
            while self.stopping or not self.ledger.wakeable:
                await self._wakeable.park()
            if self._schedule is None:
                return
            await self._schedule.wait_turn_due(self.ledger)
            if self.ledger.wakeable:
                return
