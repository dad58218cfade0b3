"""A carrier of lent work in the memory of one process, for tests on the jumping clock."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager

import attrs
import trio

from orchestrator.kernel.errors import JournalInUseError
from orchestrator.products.cluster.work import (
    Beat,
    Delivery,
    Dispatch,
    DispatchId,
    ExecutionId,
    Request,
    Tenure,
    WorkerId,
    WorkerSeen,
)

_Key = tuple[DispatchId, int]


class MemoryExchange:
    """Who writes which journal, and all that writers and workers say to each other."""

    def __init__(self) -> None:
        self.epochs: dict[str, int] = {}
        self.queue = MemoryQueue(self)
        self.presence = MemoryPresence()
        self.letters: dict[tuple[ExecutionId, int], _Letter] = {}
        self.stops: dict[ExecutionId, Tenure] = {}
        self.changed = trio.lowlevel.ParkingLot()

    def take_over(self, journal: str) -> Tenure:
        """Make the caller the writer of a journal, and fence the one before."""
        self.epochs[journal] = self.epochs.get(journal, 0) + 1
        self.changed.unpark_all()
        return Tenure(journal, self.epochs[journal])

    def check(self, writer: Tenure) -> None:
        if self.epochs.get(writer.journal) != writer.epoch:
            raise JournalInUseError(writer.journal, "another process has taken it over")

    @asynccontextmanager
    async def writer_mailbox(self, writer: Tenure) -> AsyncGenerator["MemoryWriterMailbox"]:
        await trio.lowlevel.checkpoint()
        yield MemoryWriterMailbox(self, writer)

    @asynccontextmanager
    async def worker_mailbox(self, worker: WorkerId) -> AsyncGenerator["MemoryWorkerMailbox"]:
        await trio.lowlevel.checkpoint()
        yield MemoryWorkerMailbox(self, worker)

    def lose_letters(self) -> None:
        """Crash: tables that are not logged are empty afterwards."""
        self.letters.clear()
        self.stops.clear()
        self.changed.unpark_all()


@attrs.define
class _Letter:
    request: Request
    received: int = 0
    answer: bytes | None = None


class MemoryWorkerMailbox:
    def __init__(self, exchange: MemoryExchange, worker: WorkerId) -> None:
        self._exchange = exchange
        self._worker = worker

    async def ask(self, request: Request) -> bytes:
        assert request.worker == self._worker
        await trio.lowlevel.checkpoint()
        key = (request.execution, request.number)
        letters = self._exchange.letters
        try:
            while True:
                letter = letters.get(key)
                if letter is None:
                    letter = letters[key] = _Letter(request)
                    self._exchange.changed.unpark_all()
                elif letter.answer is not None:
                    del letters[key]
                    return letter.answer
                await self._exchange.changed.park()
        except trio.Cancelled:
            if not request.stays:
                letters.pop(key, None)
            raise

    async def wait_stopped(self, run: ExecutionId) -> None:
        await trio.lowlevel.checkpoint()
        while run not in self._exchange.stops:
            await self._exchange.changed.park()

    def forget(self, run: ExecutionId) -> None:
        self._exchange.stops.pop(run, None)
        letters = self._exchange.letters
        for key in [key for key, it in letters.items() if key[0] == run and not it.request.stays]:
            del letters[key]


class MemoryWriterMailbox:
    def __init__(self, exchange: MemoryExchange, writer: Tenure) -> None:
        self._exchange = exchange
        self._writer = writer
        self._answers: dict[tuple[ExecutionId, int], bytes | None] = {}

    async def receive(self) -> Sequence[Request]:
        await trio.lowlevel.checkpoint()
        while True:
            self._exchange.check(self._writer)
            if requests := list(self._new_requests()):
                return requests
            await self._exchange.changed.park()

    def _new_requests(self) -> "list[Request]":
        new: list[Request] = []
        for key, letter in self._exchange.letters.items():
            if letter.request.journal != self._writer.journal:
                continue
            if letter.received == self._writer.epoch:
                continue
            letter.received = self._writer.epoch
            if key not in self._answers:
                self._answers[key] = None
                new.append(letter.request)
            elif (again := self._answers[key]) is not None:
                self.answer(letter.request, again)
        return new

    async def catch_up(self) -> None:
        await trio.lowlevel.checkpoint()
        # Who receives is woken by each letter, and hears it before the next look at workers.

    def answer(self, request: Request, body: bytes) -> None:
        key = (request.execution, request.number)
        self._answers[key] = body
        letter = self._exchange.letters.get(key)
        if letter is not None and self._is_mine():
            letter.answer = body
            self._exchange.changed.unpark_all()

    def drop_answer(self, request: Request) -> None:
        key = (request.execution, request.number)
        if key in self._answers:
            self._answers[key] = None

    def stop(self, worker: WorkerId, run: ExecutionId) -> None:
        if self._is_mine():
            self._exchange.stops[run] = self._writer
            self._exchange.changed.unpark_all()

    def forget(self, run: ExecutionId) -> None:
        for key in [key for key in self._answers if key[0] == run]:
            del self._answers[key]

    def _is_mine(self) -> bool:
        return self._exchange.epochs.get(self._writer.journal) == self._writer.epoch


class MemoryPresence:
    def __init__(self) -> None:
        self._seen: dict[WorkerId, tuple[Beat, int, float, float, float]] = {}

    async def beat(self, beat: Beat, *, seconds: float) -> None:
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
        _, beats, since, _, _ = self._seen.get(beat.worker, (beat, 0, now, now, now))
        self._seen[beat.worker] = (beat, beats + 1, since, now, now + seconds)

    async def leave(self, worker: WorkerId) -> None:
        await trio.lowlevel.checkpoint()
        self._seen.pop(worker, None)

    async def workers(self) -> Sequence[WorkerSeen]:
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
        return [
            WorkerSeen(
                beat=beat,
                beats=beats,
                since=now - since,
                silent=now - last,
                promised=until - last,
                alive=now <= until,
            )
            for beat, beats, since, last, until in self._seen.values()
        ]


@attrs.define
class _Sent:
    dispatch: Dispatch
    holder: WorkerId | None = None
    finished: bool = False


class MemoryQueue:
    def __init__(self, exchange: MemoryExchange) -> None:
        self._exchange = exchange
        self._sent: dict[_Key, _Sent] = {}
        self._changed = trio.lowlevel.ParkingLot()

    async def send(self, writer: Tenure, dispatches: Sequence[Dispatch]) -> None:
        await trio.lowlevel.checkpoint()
        self._exchange.check(writer)
        for dispatch in dispatches:
            self._sent.setdefault((dispatch.id, dispatch.attempt), _Sent(dispatch))
        self._changed.unpark_all()

    async def withdraw(self, writer: Tenure, dispatches: Sequence[Dispatch]) -> None:
        await trio.lowlevel.checkpoint()
        self._exchange.check(writer)
        for dispatch in dispatches:
            sent = self._sent.get((dispatch.id, dispatch.attempt))
            if sent is not None and sent.holder is None:
                sent.finished = True

    async def stranded(
        self, dispatches: Sequence[Dispatch], live: AbstractSet[WorkerId]
    ) -> Sequence[Dispatch]:
        await trio.lowlevel.checkpoint()
        return [
            dispatch
            for dispatch in dispatches
            if (sent := self._sent.get((dispatch.id, dispatch.attempt))) is None
            or sent.finished
            or (sent.holder is not None and sent.holder not in live)
        ]

    @property
    def sent(self) -> int:
        """How many dispatches were sent."""
        return len(self._sent)

    def lose(self) -> None:
        """Forget everything, as a database that was restored does."""
        self._sent.clear()

    def redeliver(self) -> None:
        """Deliver everything that has no end once more, as if all claims had run out."""
        for sent in self._sent.values():
            sent.holder = None
        self._changed.unpark_all()

    @asynccontextmanager
    async def receive(
        self, worker: WorkerId, place: str, slots: int
    ) -> AsyncGenerator[AsyncIterator[Delivery]]:
        await trio.lowlevel.checkpoint()
        deliveries = _MemoryDeliveries(self, worker, place, slots)
        try:
            yield deliveries
        finally:
            deliveries.give_back()

    async def claim(self, worker: WorkerId, place: str) -> _Sent | None:
        """Return what waits for a worker, or None after anything has changed."""
        for sent in self._sent.values():
            waits = sent.holder is None and not sent.finished
            if waits and sent.dispatch.place == place:
                await trio.lowlevel.checkpoint()
                if sent.holder is None and not sent.finished:
                    sent.holder = worker
                    return sent
                return None
        await self.wait_changed()
        return None

    async def wait_changed(self) -> None:
        await self._changed.park()

    def wake(self) -> None:
        self._changed.unpark_all()


class _MemoryDeliveries:
    def __init__(self, queue: MemoryQueue, worker: WorkerId, place: str, slots: int) -> None:
        self._queue = queue
        self._worker = worker
        self._place = place
        self._slots = slots
        self._held: list[_MemoryDelivery] = []

    def __aiter__(self) -> "_MemoryDeliveries":
        return self

    async def __anext__(self) -> Delivery:
        while True:
            self._held = [delivery for delivery in self._held if delivery.open]
            if len(self._held) >= self._slots:
                await self._queue.wait_changed()
                continue
            sent = await self._queue.claim(self._worker, self._place)
            if sent is not None:
                delivery = _MemoryDelivery(self._queue, sent)
                self._held.append(delivery)
                return delivery

    def give_back(self) -> None:
        for delivery in self._held:
            if delivery.open and delivery.sent.holder == self._worker:
                delivery.sent.holder = None
        self._queue.wake()


class _MemoryDelivery:
    def __init__(self, queue: MemoryQueue, sent: _Sent) -> None:
        self._queue = queue
        self.sent = sent
        self.open = True

    @property
    def dispatch(self) -> Dispatch:
        return self.sent.dispatch

    async def finish(self) -> None:
        await trio.lowlevel.checkpoint()
        self.open = False
        self.sent.finished = True
        self._queue.wake()
