"""The end of a writer in a table of letters: receives and answers in batches, while it writes.

Each statement is conditional on the epoch of the journal: a writer that was fenced says nothing.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, LiteralString

import trio

from orchestrator.agents import raising_one_error
from orchestrator.ports.errors import JournalInUseError
from orchestrator.products.cluster.database.database import Database
from orchestrator.products.cluster.database.wakeups import Bell, Wakeups, channel
from orchestrator.products.cluster.work.dispatch import ExecutionId, Tenure, WorkerId
from orchestrator.products.cluster.work.mailbox import Request, WriterMailbox
from orchestrator.products.cluster.work.postgres.worker_mailbox import CLOSE_SECONDS

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

LOOK_SECONDS: Final = 5.0
"""How often a writer looks without a wake-up."""

# What an earlier writer received or answered is received again: its answers are heard no more. So
# is, on a new connection, what has no answer: the reply of the last statement may be lost.
_RECEIVE_AND_SEND: Final[LiteralString] = """
with mine as materialized (
    select from orchestrator.journals where name = %(journal)s and epoch = %(epoch)s
), answered as (
    update orchestrator.letters set answer = new.body
    from unnest(%(executions)s::text[], %(numbers)s::integer[], %(bodies)b::bytea[])
         as new (execution, number, body)
    where letters.execution = new.execution and letters.number = new.number
      and letters.received = %(epoch)s and exists (select from mine)
), stopped as (
    insert into orchestrator.letters (execution, number, journal, worker, received, body, answer)
    select execution, -1, %(journal)s, worker, %(epoch)s, '', ''
    from unnest(%(stopped_executions)s::text[], %(stopped_workers)s::text[])
         as new (execution, worker)
    where exists (select from mine)
    on conflict (execution, number) do update set received = excluded.received
    where letters.received < excluded.received
), received as (
    update orchestrator.letters set received = %(epoch)s, answer = null
    where journal = %(journal)s and number >= 0
      and (received < %(epoch)s or answer is null and %(again)s) and exists (select from mine)
    returning worker, execution, number, body
), told as (
    select count(pg_notify(channel, '')) as count
    from unnest(%(channels)s::text[]) as it (channel) where exists (select from mine)
)
select (select count(*) from mine) as mine, told.count, received.*
from told left join received on true order by received.execution, received.number
"""


class _WriterMailbox:
    def __init__(self, database: Database, writer: Tenure, bell: Bell) -> None:
        self._database = database
        self._writer = writer
        self._bell = bell
        self._answers: dict[ExecutionId, dict[int, bytes | None]] = {}
        """The questions of each execution: None until answered, and when the answer is dropped."""
        self._unsent: list[tuple[Request, bytes]] = []
        self._stops: dict[ExecutionId, WorkerId] = {}
        """The executions that must stop, until they are forgotten."""
        self._new_stops: dict[ExecutionId, WorkerId] = {}
        self._inbox: list[Request] = []
        self._inbox_taken = trio.Event()
        self._begun = 0
        """How many statements were begun."""
        self._ended = 0
        self._carried = trio.Event()
        self._news = trio.Event()
        self._fenced: JournalInUseError | None = None
        self._connection: Connection | None = None
        """The execution whose last reply arrived."""

    async def receive(self) -> Sequence[Request]:
        await trio.lowlevel.checkpoint()
        while not self._inbox:
            if self._fenced is not None:
                raise self._fenced
            self._news = trio.Event()
            await self._news.wait()
        requests = self._inbox
        self._inbox = []
        # Its caller hears them without a checkpoint, before any other task goes on.
        self._inbox_taken.set()
        self._inbox_taken = trio.Event()
        return requests

    async def catch_up(self) -> None:
        await trio.lowlevel.checkpoint()
        wanted = self._begun + 1
        self._bell.ring()
        while self._ended < wanted and self._fenced is None:
            await self._carried.wait()
        while self._inbox:
            await self._inbox_taken.wait()

    def answer(self, request: Request, body: bytes) -> None:
        self._answers.setdefault(request.execution, {})[request.number] = body
        self._send(request, body)

    def drop_answer(self, request: Request) -> None:
        # That it was asked stays known: a letter that is late is not taken for a new one.
        if request.execution in self._answers:
            self._answers[request.execution][request.number] = None

    def _send(self, request: Request, body: bytes) -> None:
        self._unsent.append((request, body))
        self._bell.ring()

    def stop(self, worker: WorkerId, execution: ExecutionId) -> None:
        self._stops[execution] = self._new_stops[execution] = worker
        self._bell.ring()

    def forget(self, execution: ExecutionId) -> None:
        self._answers.pop(execution, None)
        self._stops.pop(execution, None)
        self._new_stops.pop(execution, None)

    async def carry_forever(self) -> None:
        """Receive requests and send answers until the journal is taken over."""
        await self.carry()
        while self._fenced is None:
            await self._bell.wait(LOOK_SECONDS)
            await self.carry()

    async def carry(self) -> None:
        answers, stops = self._unsent, self._new_stops
        self._unsent, self._new_stops = [], {}
        self._begun += 1
        is_mine, requests = await self._database.run(
            partial(self._receive_and_send, answers, stops, dict(self._stops))
        )
        if not is_mine:
            self._fenced = JournalInUseError(
                self._writer.journal, "another process has taken it over"
            )
            self._news.set()
        for request in requests:
            self._take(request)
        self._ended += 1
        self._carried.set()
        self._carried = trio.Event()

    def _receive_and_send(
        self,
        answers: Sequence[tuple[Request, bytes]],
        new_stops: Mapping[ExecutionId, WorkerId],
        all_stops: Mapping[ExecutionId, WorkerId],
        connection: "Connection",
    ) -> tuple[bool, list[Request]]:
        again = connection is not self._connection
        # The database may have crashed, and lost the letters.
        stops = all_stops if again else new_stops
        workers = {it.worker for it, _ in answers} | set(stops.values())
        rows = connection.execute(
            _RECEIVE_AND_SEND,
            {
                "journal": self._writer.journal,
                "epoch": self._writer.epoch,
                "again": again,
                "executions": [it.execution for it, _ in answers],
                "numbers": [it.number for it, _ in answers],
                "bodies": [body for _, body in answers],
                "stopped_executions": list(stops),
                "stopped_workers": list(stops.values()),
                "channels": [channel("worker", it) for it in workers],
            },
            binary=True,
        ).fetchall()
        self._connection = connection
        requests = [
            Request(self._writer.journal, WorkerId(worker), ExecutionId(execution), number, body)
            for _, _, worker, execution, number, body in rows
            if isinstance(worker, str)
            and isinstance(execution, str)
            and isinstance(number, int)
            and isinstance(body, bytes)
        ]
        return bool(rows[0][0]), requests

    def _take(self, request: Request) -> None:
        asked = self._answers.setdefault(request.execution, {})
        if request.number not in asked:
            asked[request.number] = None
            self._inbox.append(request)
            self._news.set()
        elif (answer := asked[request.number]) is not None:
            self._send(request, answer)


@asynccontextmanager
async def open_writer_mailbox(
    database: Database, wakeups: Wakeups, writer: Tenure
) -> AsyncGenerator[WriterMailbox]:
    """Open the mailbox of a journal, for the process that writes it."""
    with wakeups.bell(channel("journal", writer.journal)) as bell, raising_one_error():
        mailbox = _WriterMailbox(database, writer, bell)
        try:
            # This nursery owns the task that carries letters.
            async with trio.open_nursery() as nursery:
                nursery.start_soon(mailbox.carry_forever)
                yield mailbox
                nursery.cancel_scope.cancel()
        finally:
            # The last answers may be those on which an execution ends.
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await mailbox.carry()
