"""The one hand that writes the journal.

Deciding and posting are one synchronous step, so no two requests pass the same limit. Whoever
posts then waits until the fact is durable, and only then acts on it.
"""

from collections.abc import Callable, Collection, Sequence

import trio

from delegation import (
    Detach,
    Encoded,
    Ending,
    Ledger,
    Mode,
    Outcome,
    Refuse,
    TaskId,
    TaskRequest,
    decide,
    decode,
    encode,
    in_order,
    root_of,
    unmet,
)
from delegation.events import (
    Entry,
    Event,
    SteeringSeen,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    TurnEnded,
)
from orchestrator.errors import ClosedError
from orchestrator.storage.journal import Journal


class Bookkeeper:
    """Numbers and dates facts, folds them, and has them kept."""

    def __init__(
        self,
        journal: Journal,
        ledger: Ledger,
        *,
        clock: Callable[[], float],
        secrets: Sequence[str] = (),
    ) -> None:
        self.ledger = ledger
        self.clock = clock
        self.closed = False
        self._secrets = [secret.encode() for secret in secrets]
        self._journal = journal
        self._posted = trio.lowlevel.ParkingLot()
        self._startable = trio.lowlevel.ParkingLot()
        self._wakeable = trio.lowlevel.ParkingLot()
        self._joining: dict[TaskId, trio.Event] = {}
        """Who waits for room for a joined task."""
        self._following: dict[TaskId, set[trio.Event]] = {}
        """Who waits for news of a task."""

    def post(self, event: Event) -> None:
        """Make a fact true for all decisions to come. It is not durable yet."""
        self._post(event)
        while self.ledger.hopeless:
            task, need = next(iter(self.ledger.hopeless.items()))
            outcome = Outcome(Ending.REFUSED, error=unmet(need))
            self._post(TaskSettled(task, outcome))

    def _post(self, event: Event) -> None:
        if self.closed:
            raise ClosedError("the orchestrator is closed")
        ledger = self.ledger
        # What cannot be written down must not become true.
        encoded = encode(event)
        if self._secrets and any(map(encoded.body.__contains__, self._secrets)):
            encoded = self._without_secrets(encoded)
            event = decode(encoded)
        entry = Entry(
            ledger.last_seq + 1, self.clock(), ledger.session_of(event), event
        )
        ledger.post(entry)
        self._journal.append(entry, encoded)
        if self._posted:
            self._posted.unpark_all()
        if ledger.startable and self._startable:
            self._startable.unpark_all()
        if ledger.wakeable and self._wakeable:
            self._wakeable.unpark_all()
        if self._joining:
            self._let_in(event)
        if self._following:
            self._tell_followers(event)

    def _let_in(self, event: Event) -> None:
        """Wake those who wait for room, and whose task has it now or has ended."""
        for task in list(self.ledger.joinable):
            if task in self._joining:
                self._joining[task].set()
        if isinstance(event, TaskSettled) and event.task in self._joining:
            self._joining[event.task].set()

    def _tell_followers(self, event: Event) -> None:
        match event:
            case TaskSettled(task) | SteeringSeen(task):
                following = self._following.get(task, ())
            case TurnEnded(session):
                following = self._following.get(root_of(session), ())
            case _:
                return
        for follower in following:
            follower.set()

    def _without_secrets(self, encoded: Encoded) -> Encoded:
        """Return a fact without the keys that somebody let slip: nobody is to read them here."""
        body = encoded.body
        for secret in self._secrets:
            body = body.replace(secret, b"***")
        return Encoded(encoded.kind, encoded.version, body)

    def admit(self, requests: Sequence[TaskRequest]) -> Refuse | None:
        """Decide what is asked for in one call, and post all of it unless it is refused.

        Joined tasks that have room are started with it: whoever asked runs them.
        """
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
        """Wait until one of these has ended, or has seen what it was told."""
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
        await self._journal.wait_durable(self.ledger.last_seq)

    async def wait_posted(self, *, after: int) -> None:
        """Wait until there are more facts than this."""
        await trio.lowlevel.checkpoint()
        while self.ledger.last_seq <= after:
            await self._posted.park()

    async def wait_stirred(self) -> None:
        """Wait until something happens, whatever it is."""
        await self._posted.park()

    def stir(self) -> None:
        """Let whoever waits look again: something has changed that is no fact."""
        self._posted.unpark_all()

    def close(self) -> None:
        """Take no more facts."""
        self.closed = True
        self.stir()

    async def wait_startable(self) -> None:
        """Wait until a detached task is due."""
        await trio.lowlevel.checkpoint()
        while not self.ledger.startable:
            await self._startable.park()

    async def wait_wakeable(self) -> None:
        """Wait until a session is due for a turn."""
        await trio.lowlevel.checkpoint()
        while not self.ledger.wakeable:
            await self._wakeable.park()
