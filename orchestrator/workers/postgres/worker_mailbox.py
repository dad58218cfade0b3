"""The end of a worker in a table of letters: asks in batches, again until it is answered."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, LiteralString

import trio

from agents import raising_one_error
from orchestrator.postgres.database import Database
from orchestrator.postgres.wakeups import POLL_SECONDS, Bell, Wakeups, channel
from orchestrator.workers.dispatch import RunId, WorkerId
from orchestrator.workers.mailbox import Request, WorkerMailbox

if TYPE_CHECKING:
    from orchestrator.postgres.connection import Connection

STOP: Final = -1
"""The number of the letter that says that a run must stop."""
IDLE_SECONDS: Final = 30.0
CLOSE_SECONDS: Final = 1.0

# An answer counts for as long as its writer writes the journal: what a writer said that was fenced
# meanwhile is not heard.
_SEND_AND_RECEIVE: Final[LiteralString] = """
with forgotten as (
    delete from orchestrator.letters where run = any(%(forgotten)s)
), sent as (
    insert into orchestrator.letters (run, number, journal, worker, body)
    select run, number, journal, %(worker)s, body
    from unnest(%(runs)s::text[], %(numbers)s::integer[], %(journals)s::text[],
                %(bodies)b::bytea[]) as new (run, number, journal, body)
    on conflict (run, number) do nothing
), received as (
    delete from orchestrator.letters using orchestrator.journals
    where letters.worker = %(worker)s and letters.answer is not null
      and journals.name = letters.journal and journals.epoch = letters.received
    returning letters.run, letters.number, letters.answer
)
select run, number, answer, null from received
union all
select null, null, null, pg_notify(channel, '')::text
from unnest(%(channels)s::text[]) as told (channel)
"""


class _Ask:
    def __init__(self, request: Request) -> None:
        self.request = request
        self.answered = trio.Event()
        self.answer = b""


class _WorkerMailbox:
    def __init__(self, database: Database, worker: WorkerId, bell: Bell) -> None:
        self._database = database
        self._worker = worker
        self._bell = bell
        self._asks: dict[tuple[RunId, int], _Ask] = {}
        self._unsent: list[Request] = []
        self._runs: dict[RunId, trio.Event] = {}
        """The runs that are not forgotten, and whether each must stop."""
        self._forgotten: list[RunId] = []

    async def ask(self, request: Request) -> bytes:
        key = (request.run, request.number)
        assert key not in self._asks, f"{key} is asked already"
        ask = self._asks[key] = _Ask(request)
        self._runs.setdefault(request.run, trio.Event())
        self._unsent.append(request)
        self._bell.ring()
        try:
            await ask.answered.wait()
        finally:
            del self._asks[key]
        return ask.answer

    async def wait_stopped(self, run: RunId) -> None:
        await self._runs.setdefault(run, trio.Event()).wait()

    def forget(self, run: RunId) -> None:
        self._runs.pop(run, None)
        self._forgotten.append(run)
        self._bell.ring()

    async def carry_forever(self) -> None:
        """Send what is asked, and hand out answers, in as few statements as there can be."""
        rung = True
        while True:
            requests = self._unsent
            self._unsent = []
            if not rung:
                # The database may have crashed, and lost the letters.
                requests = [it.request for it in self._asks.values()]
            await self.carry(requests, tell=rung)
            pause = POLL_SECONDS if self._runs else IDLE_SECONDS
            rung = await self._bell.wait(pause)

    async def carry(self, requests: Sequence[Request], *, tell: bool) -> None:
        forgotten = self._forgotten
        self._forgotten = []
        journals = {it.journal for it in requests} if tell else ()
        found = await self._database.run(
            partial(
                _send_and_receive,
                {
                    "worker": self._worker,
                    "forgotten": forgotten,
                    "runs": [it.run for it in requests],
                    "numbers": [it.number for it in requests],
                    "journals": [it.journal for it in requests],
                    "bodies": [it.body for it in requests],
                    "channels": [channel("journal", it) for it in journals],
                },
            )
        )
        for run, number, answer in found:
            if number == STOP:
                if (stopped := self._runs.get(run)) is not None:
                    stopped.set()
            elif (ask := self._asks.get((run, number))) is not None:
                ask.answer = answer
                ask.answered.set()


def _send_and_receive(
    parameters: dict[str, object], connection: "Connection"
) -> list[tuple[RunId, int, bytes]]:
    cursor = connection.execute(_SEND_AND_RECEIVE, parameters, binary=True)
    return [
        (RunId(run), number, answer)
        for run, number, answer, _ in cursor
        if isinstance(run, str)
        and isinstance(number, int)
        and isinstance(answer, bytes)
    ]


@asynccontextmanager
async def open_worker_mailbox(
    database: Database, wakeups: Wakeups, worker: WorkerId
) -> AsyncGenerator[WorkerMailbox]:
    """Open the mailbox of a worker."""
    with wakeups.bell(channel("worker", worker)) as bell, raising_one_error():
        mailbox = _WorkerMailbox(database, worker, bell)
        try:
            # This nursery owns the task that carries letters.
            async with trio.open_nursery() as nursery:
                nursery.start_soon(mailbox.carry_forever)
                yield mailbox
                nursery.cancel_scope.cancel()
        finally:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await mailbox.carry([], tell=False)
