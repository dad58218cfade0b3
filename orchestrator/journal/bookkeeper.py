"""The one hand that writes the journal.

Deciding and posting are one synchronous step, so no two requests pass the same limit. Whoever
posts then waits until the fact is durable, and only then acts on it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import attrs
import trio

from agents.redaction.redactor import Redactor
from delegation import (
    Detach,
    Encoded,
    Ending,
    Ledger,
    Mode,
    Outcome,
    Refuse,
    SessionId,
    SessionRecord,
    TaskId,
    TaskRecord,
    TaskRequest,
    decide,
    forget,
    in_order,
    recall,
    root_of,
    unmet,
    used_by,
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
from orchestrator.journal.fact_redaction import EventT, written_down
from orchestrator.journal.journal import Journal, folded

REMEMBERED_TASKS: Final = 10_000
"""How many tasks of sessions at rest stay in memory: some 20 MB."""
NOTHING: Final[Mapping[SessionId, str | None]] = {}
STOPPING: Final = "the orchestrator is stopping"


@attrs.define
class _Reading:
    """A session that is being read back: by how many, and how often it was forgotten again."""

    readers: int = 0
    forgotten: int = 0


class Bookkeeper:
    """Numbers and dates facts, folds them, and has them kept."""

    def __init__(
        self,
        journal: Journal,
        ledger: Ledger,
        *,
        clock: Callable[[], float],
        redactor: Redactor | None = None,
    ) -> None:
        self.ledger = ledger
        self.clock = clock
        self.closed = False
        self.is_broken = False
        """Nothing can be written any more."""
        self.stopping = False
        """Nothing new is begun: what runs may finish, and all else is for the next process."""
        self.redactor = Redactor() if redactor is None else redactor
        self.followers: list[Callable[[Entry, Encoded], None]] = []
        """Who is told of every fact."""
        self._journal = journal
        self._posted = trio.lowlevel.ParkingLot()
        self._stirred: dict[SessionId, trio.lowlevel.ParkingLot] = {}
        """Who waits for anything to happen in a session."""
        self._startable = trio.lowlevel.ParkingLot()
        self._wakeable = trio.lowlevel.ParkingLot()
        self._resting: dict[SessionId, int] = {}
        """The sessions at rest that are still remembered, oldest first, with their size."""
        self._resting_tasks = 0
        self._reading: dict[SessionId, _Reading] = {}
        """The sessions that are being read back."""
        self._awake = set(ledger.sessions)
        self._joining: dict[TaskId, trio.Event] = {}
        """Who waits for room for a joined task."""
        self._following: dict[TaskId, set[trio.Event]] = {}
        """Who waits for news of a task."""

    def post(self, event: EventT) -> EventT:
        """Make a fact true for all decisions to come, and return it as it is kept.

        It is not durable yet.
        """
        kept = self._post(event)
        while self.ledger.hopeless:
            task, need = next(iter(self.ledger.hopeless.items()))
            outcome = Outcome(Ending.REFUSED, error=unmet(need))
            self._post(TaskSettled(task, outcome))
        return kept

    def _post(self, event: EventT) -> EventT:
        if self.closed:
            raise ClosedError("the orchestrator is closed")
        ledger = self.ledger
        # What cannot be written down must not become true.
        event, encoded = written_down(event, self.redactor)
        entry = Entry(
            ledger.last_seq + 1, self.clock(), ledger.session_of(event), event
        )
        ledger.post(entry)
        self._journal.append(entry, encoded, self._rest(entry))
        for tell in self.followers:
            tell(entry, encoded)
        if self._posted:
            self._posted.unpark_all()
        if self._stirred and (lot := self._stirred.get(entry.session)) is not None:
            lot.unpark_all()
        if ledger.startable and self._startable:
            self._startable.unpark_all()
        if ledger.wakeable and self._wakeable:
            self._wakeable.unpark_all()
        if self._joining:
            self._let_in(event)
        if self._following:
            self._tell_followers(event)
        return event

    def _rest(self, entry: Entry) -> Mapping[SessionId, str | None]:
        """Return the sessions that a fact has laid to rest, or woken."""
        session = self.ledger.sessions.get(entry.session)
        if session is not None:
            if session.turn is not None and entry.session in self._awake:
                return NOTHING  # most facts: it is known that it has something to do
            # Whoever is new is about to have something to do.
            is_new = isinstance(entry.event, SessionOpened)
            changed = self._wake(session) if is_new else self._look_at(session)
        elif isinstance(entry.event, JournalOpened):
            changed = dict[SessionId, str | None]()
            for session in list(self.ledger.sessions.values()):
                changed |= self._look_at(session)
        else:
            return NOTHING
        self._forget_oldest(but=entry.session)
        return changed

    def _look_at(self, session: SessionRecord) -> dict[SessionId, str | None]:
        if not session.at_rest:
            return {} if session.id in self._awake else self._wake(session)
        if session.id not in self._awake:
            return {}
        self._awake.remove(session.id)
        self._lay_to_rest(session)
        return {session.id: used_by(session)}

    def _wake(self, session: SessionRecord) -> dict[SessionId, str | None]:
        self._awake.add(session.id)
        self._resting_tasks -= self._resting.pop(session.id, 0)
        return {session.id: None}

    def _lay_to_rest(self, session: SessionRecord) -> None:
        self._resting[session.id] = len(session.tree)
        self._resting_tasks += len(session.tree)

    def _forget_oldest(self, *, but: SessionId) -> None:
        """Remember only so many of the tasks that nobody has to remember."""
        # The newest stays, however large it is: whoever asked for it may look at it now. So does
        # the one that a fact is about: whoever posts that works with it.
        while self._resting_tasks > REMEMBERED_TASKS and len(self._resting) > 1:
            session = next(iter(self._resting))
            if session == but:
                self._resting[session] = self._resting.pop(session)
                return
            self._resting_tasks -= self._resting.pop(session)
            if session in self._reading:
                self._reading[session].forgotten += 1
            forget(self.ledger, session)

    async def recall(self, session: SessionId) -> None:
        """Remember a session at rest again."""
        reading = self._reading.setdefault(session, _Reading())
        reading.readers += 1
        try:
            while True:
                forgotten = reading.forgotten
                past = await self.read_past(session)
                # What somebody else has recalled, used and let go meanwhile is out of date.
                if forgotten == reading.forgotten:
                    break
        finally:
            reading.readers -= 1
            if not reading.readers:
                del self._reading[session]
        if past is not None and self.ledger.is_forgotten(session):
            recall(self.ledger, session, past)
            self._lay_to_rest(self.ledger.sessions[session])
            self._forget_oldest(but=session)

    async def read_past(self, session: SessionId) -> Ledger | None:
        """Return the fold of a session that is not remembered; None if it is."""
        # What was just written is not on the disk yet.
        await self.wait_durable()
        if not self.ledger.is_forgotten(session):
            return None
        entries = await self._journal.read_session(session)
        return folded(entries, type(self._journal).__name__, self.ledger.rules)

    async def read_entries(self, session: SessionId) -> Sequence[Entry]:
        """Return what the journal has of a session, and of none."""
        await self.wait_durable()
        return await self._journal.read_session(session)

    async def read_naming(self, kind: type[Event], id_: str) -> Sequence[Entry]:
        """Return the entries of one kind in which an id stands, whosesoever they are."""
        await self.wait_durable()
        return await self._journal.read_naming(kind.__name__, id_)

    def _let_in(self, event: Event) -> None:
        """Wake those who wait for room, and whose task has it now or has ended."""
        for task in reversed(self.ledger.joinable):
            if (waiting := self._joining.get(task)) is None:
                continue
            if waiting.is_set():
                break  # the newest come last: those before it were woken with it
            waiting.set()
        if isinstance(event, TaskSettled) and event.task in self._joining:
            self._joining[event.task].set()

    def _tell_followers(self, event: Event) -> None:
        match event:
            case TaskSettled(task) | SteeringSeen(task) | ApprovalAnswered(task):
                following = self._following.get(task, ())
            case TurnEnded(session):
                following = self._following.get(root_of(session), ())
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
                f"{STOPPING}, and nothing is handed on any more: end with what you have"
            )
        verdict = decide(requests, self.ledger)
        if isinstance(verdict, Refuse):
            return verdict
        mode = Mode.DETACHED if isinstance(verdict, Detach) else Mode.JOINED
        for request in in_order(requests):
            self.post(TaskRequested(request, mode, verdict.reason))
            if request.id in self.ledger.joinable:
                self.post(TaskStarted(request.id))
        return None

    async def wait_room(self, task: TaskId) -> None:
        """Wait until a joined task has room, or has ended without it."""
        await trio.lowlevel.checkpoint()
        record = self.ledger.tasks[task]
        while not (record.has_room or record.outcome):
            waiting = self._joining[task] = trio.Event()
            try:
                await waiting.wait()
            finally:
                del self._joining[task]

    async def wait_news_of(self, tasks: Collection[TaskId]) -> None:
        """Wait until one of these has ended, has seen what it was told, or may go on."""
        news = trio.Event()
        for task in tasks:
            self._following.setdefault(task, set()).add(news)
        try:
            await news.wait()
        finally:
            for task in tasks:
                self._following[task].remove(news)
                if not self._following[task]:
                    del self._following[task]

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
            await self._posted.park()

    async def wait_stirred(self) -> None:
        """Wait until something happens, whatever it is."""
        await self._posted.park()

    async def wait_stirred_in(self, session: SessionId) -> None:
        """Wait until something happens in one session."""
        lot = self._stirred.setdefault(session, trio.lowlevel.ParkingLot())
        try:
            await lot.park()
        finally:
            # Another may wait by now, at this one or at a new one.
            if not lot and self._stirred.get(session) is lot:
                del self._stirred[session]

    def stir(self) -> None:
        """Let whoever waits look again: something has changed that is no fact."""
        self._posted.unpark_all()
        for lot in self._stirred.values():
            lot.unpark_all()

    def stop_taking(self) -> None:
        """Begin nothing new from now on."""
        self.stopping = True
        self.stir()

    def require_taking(self) -> None:
        """Refuse to begin something where nothing new is begun."""
        if self.stopping:
            raise ClosedError(
                f"{STOPPING} and begins nothing new; open it again to go on"
            )

    async def wait_taking(self, task: TaskId) -> None:
        """Wait until a task may hand work on, or be told that it may not.

        While the orchestrator stops, whoever can go on later waits for that: a refusal would spoil
        what it does for ever. Whoever cannot is better off with what it has.
        """
        await trio.lowlevel.checkpoint()
        if self.stopping and not self.ledger.ends_for_good(task):
            await trio.sleep_forever()

    def working(self) -> Iterator[TaskRecord]:
        """Yield everybody who works now: sessions in a turn, and detached tasks.

        What is joined works within one of these.
        """
        for id_ in self._awake:
            session = self.ledger.sessions[id_]
            if session.root.acting:
                yield session.root
            yield from (task for task in session.outstanding.values() if task.acting)

    @property
    def is_working(self) -> bool:
        return next(self.working(), None) is not None

    def close(self) -> None:
        """Take no more facts."""
        self.closed = True
        self.stir()

    async def wait_startable(self) -> None:
        """Wait until a detached task is due."""
        await trio.lowlevel.checkpoint()
        while self.stopping or not self.ledger.startable:
            await self._startable.park()

    async def wait_wakeable(self) -> None:
        """Wait until a session is due for a turn."""
        await trio.lowlevel.checkpoint()
        while self.stopping or not self.ledger.wakeable:
            await self._wakeable.park()
