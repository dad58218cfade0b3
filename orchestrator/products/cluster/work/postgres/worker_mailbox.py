"""The end of a worker in a table of letters: asks in batches, and again after a lost connection.

Postgres empties the table when it crashes, and then every connection is lost. So a letter is
written once for each connection, however long its answer takes.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, LiteralString

import trio

from orchestrator.agents import raising_one_error
from orchestrator.products.cluster.database.database import Database
from orchestrator.products.cluster.database.wakeups import Bell, Wakeups, channel
from orchestrator.products.cluster.work.dispatch import ExecutionId, WorkerId
from orchestrator.products.cluster.work.mailbox import Request, WorkerMailbox

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

STOP: Final = -1
"""The number of the letter that says that an execution must stop."""
LOOK_SECONDS: Final = 5.0
"""How often a worker that waits for an answer looks without a wake-up."""
IDLE_SECONDS: Final = 30.0
CLOSE_SECONDS: Final = 3.0
"""The seconds in which a closing mailbox sends its last messages."""

# An answer counts for as long as its writer writes the journal: what a writer said that was fenced
# meanwhile is not heard.
_SEND_AND_RECEIVE: Final[LiteralString] = """
with withdrawn as (
    delete from orchestrator.letters using unnest(
        %(withdrawn_executions)s::text[], %(withdrawn_numbers)s::integer[])
        as old (execution, number)
    where letters.execution = old.execution and letters.number = old.number
), sent as (
    insert into orchestrator.letters (execution, number, journal, worker, body)
    select execution, number, journal, %(worker)s, body
    from unnest(%(executions)s::text[], %(numbers)s::integer[], %(journals)s::text[],
                %(bodies)b::bytea[]) as new (execution, number, journal, body)
    on conflict (execution, number) do nothing
), received as (
    delete from orchestrator.letters using orchestrator.journals
    where letters.worker = %(worker)s and letters.answer is not null
      and journals.name = letters.journal and journals.epoch = letters.received
    returning letters.execution, letters.number, letters.answer
)
select execution, number, answer, null from received
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
        self._asks: dict[tuple[ExecutionId, int], _Ask] = {}
        self._unsent: list[Request] = []
        self._executions: dict[ExecutionId, trio.Event] = {}
        """The executions that are not forgotten, and whether each must stop."""
        self._withdrawn: list[tuple[ExecutionId, int]] = []
        self._connection: Connection | None = None
        """The one over which the letters were written that wait for an answer."""

    async def ask(self, request: Request) -> bytes:
        key = (request.execution, request.number)
        assert key not in self._asks, f"{key} is asked already"
        ask = self._asks[key] = _Ask(request)
        if key in self._withdrawn:
            self._withdrawn.remove(key)
        self._executions.setdefault(request.execution, trio.Event())
        self._unsent.append(request)
        self._bell.ring()
        try:
            await ask.answered.wait()
        finally:
            del self._asks[key]
            if not (ask.answered.is_set() or request.stays):
                self._withdraw(*key)
        return ask.answer

    async def wait_stopped(self, execution: ExecutionId) -> None:
        await self._executions.setdefault(execution, trio.Event()).wait()

    def forget(self, execution: ExecutionId) -> None:
        self._executions.pop(execution, None)
        self._withdraw(execution, STOP)

    def _withdraw(self, execution: ExecutionId, number: int) -> None:
        self._withdrawn.append((execution, number))
        self._bell.ring()

    async def carry_forever(self) -> None:
        """Send requests and hand out answers, in as few statements as possible."""
        while True:
            await self.carry()
            await self._bell.wait(LOOK_SECONDS if self._executions else IDLE_SECONDS)

    async def carry(self) -> None:
        # Asked and withdrawn within one batch, it must not be written after it is deleted.
        withdrawn = self._withdrawn
        gone = set(withdrawn)
        unsent = [it for it in self._unsent if (it.execution, it.number) not in gone]
        self._withdrawn, self._unsent = [], []
        unanswered = [it.request for it in self._asks.values()]
        found = await self._database.run(
            partial(self._send_and_receive, withdrawn, unsent, unanswered)
        )
        for execution, number, answer in found:
            if number == STOP:
                if (stopped := self._executions.get(execution)) is not None:
                    stopped.set()
            elif (ask := self._asks.get((execution, number))) is not None:
                ask.answer = answer
                ask.answered.set()

    def _send_and_receive(
        self,
        withdrawn: Sequence[tuple[ExecutionId, int]],
        unsent: Sequence[Request],
        unanswered: Sequence[Request],
        connection: "Connection",
    ) -> list[tuple[ExecutionId, int, bytes]]:
        requests = list(unsent)
        if connection is not self._connection:
            # Those that stay may be among them without an ask; all others are asked.
            known = {(it.execution, it.number) for it in unsent}
            requests += [it for it in unanswered if (it.execution, it.number) not in known]
        cursor = connection.execute(
            _SEND_AND_RECEIVE,
            {
                "worker": self._worker,
                "withdrawn_executions": [execution for execution, _ in withdrawn],
                "withdrawn_numbers": [number for _, number in withdrawn],
                "executions": [it.execution for it in requests],
                "numbers": [it.number for it in requests],
                "journals": [it.journal for it in requests],
                "bodies": [it.body for it in requests],
                "channels": [channel("journal", it) for it in {it.journal for it in requests}],
            },
            binary=True,
        )
        found = [
            (ExecutionId(execution), number, answer)
            for execution, number, answer, _ in cursor
            if isinstance(execution, str) and isinstance(number, int) and isinstance(answer, bytes)
        ]
        self._connection = connection
        return found


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
                await mailbox.carry()
