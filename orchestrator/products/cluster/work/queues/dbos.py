"""DBOS as the work queue: each attempt of a dispatch is a workflow without steps.

Writers speak SQL only. A worker runs the threads of DBOS, which claim workflows and wait here until
their dispatch is finished: they meet trio in `_Deliveries` only. Claims are no leases, so the
claims of dead workers are *stranded*, and the writer sends the next attempt.
"""

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, LiteralString, cast

import msgspec
import trio

from orchestrator.ports.errors import JournalError, JournalInUseError
from orchestrator.products.cluster.database.address import parse_address
from orchestrator.products.cluster.database.connection import problem_of
from orchestrator.products.cluster.database.database import Database
from orchestrator.products.cluster.database.wakeups import Wakeups
from orchestrator.products.cluster.work.dispatch import Dispatch, DispatchId, Tenure, WorkerId
from orchestrator.products.cluster.work.queues.place_names import queue_name
from orchestrator.products.cluster.work.work_queue import Delivery, WorkQueue

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

NAME: Final = "orchestrator"
WORKFLOW: Final = "orchestrator_dispatch"
POLL_SECONDS: Final = 0.05
POOL: Final = 3
"""How many connections the threads of DBOS share in a worker."""
RELEASE_SECONDS: Final = 10.0
KEEP_SECONDS: Final = 600
"""How long ended dispatches are kept, to recognize a repeated one."""

_SEND: Final[LiteralString] = """
with mine as materialized (
    select from orchestrator.journals where name = %(journal)s and epoch = %(epoch)s
), sent as (
    select dbos.enqueue_workflow(
        workflow_name => 'orchestrator_dispatch', queue_name => new.queue,
        positional_args => array[new.dispatch], workflow_id => new.key,
        app_version => 'orchestrator', application_name => 'orchestrator')
    from mine, unnest(%(queues)s::text[], %(dispatches)s::json[], %(keys)s::text[])
         as new (queue, dispatch, key)
)
select (select count(*) from mine), (select count(*) from sent)
"""
# A workflow that was not claimed is as if it had never been. A new writer may rely on what is
# queued: it does not get the journal in the midst of this.
_WITHDRAW: Final[LiteralString] = """
with mine as materialized (
    select from orchestrator.journals where name = %(journal)s and epoch = %(epoch)s
    for share
), withdrawn as (
    delete from dbos.workflow_status
    where workflow_uuid = any(%(keys)s) and status = 'ENQUEUED' and exists (select from mine)
    returning workflow_uuid
), inputs as (
    delete from dbos.workflow_input
    where workflow_uuid in (select workflow_uuid from withdrawn)
)
select (select count(*) from mine), (select count(*) from withdrawn)
"""
_OPEN: Final[LiteralString] = """
select workflow_uuid from dbos.workflow_status
where workflow_uuid = any(%(keys)s)
  and (status = 'ENQUEUED' or status = 'PENDING' and executor_id = any(%(live)s))
"""
_CLAIMED: Final[LiteralString] = """
select count(*)::integer from dbos.workflow_status
where status = 'PENDING' and executor_id = %(worker)s
"""
_SWEEP: Final[LiteralString] = """
with ended as (
    delete from dbos.workflow_status
    where name = 'orchestrator_dispatch' and status <> 'ENQUEUED'
      and (status <> 'PENDING'
           or executor_id not in (select id from orchestrator.workers))
      and updated_at < extract(epoch from clock_timestamp()) * 1000 - %(keep)s * 1000
    returning workflow_uuid
)
delete from dbos.workflow_input where workflow_uuid in (select workflow_uuid from ended)
"""


class _Payload(msgspec.Struct):
    """What DBOS carries."""

    id: DispatchId
    attempt: int
    journal: str
    place: str


class _ReleasedError(BaseException):
    """A worker ends while it holds a dispatch.

    DBOS records no outcome for an error that is not an `Exception`: the workflow stays claimed.
    """


def _key(dispatch: Dispatch) -> str:
    return f"{dispatch.id}#{dispatch.attempt}"


class _DbosQueue:
    def __init__(self, url: str, database: Database) -> None:
        self._url = parse_address(url).url
        self._database = database

    async def send(self, writer: Tenure, dispatches: Sequence[Dispatch]) -> None:
        parameters = {
            "journal": writer.journal,
            "epoch": writer.epoch,
            "queues": [queue_name(it.place) for it in dispatches],
            "dispatches": [
                msgspec.json.encode(_Payload(it.id, it.attempt, it.journal, it.place)).decode()
                for it in dispatches
            ],
            "keys": [_key(it) for it in dispatches],
        }
        await self._write(writer, _SEND, parameters)

    async def withdraw(self, writer: Tenure, dispatches: Sequence[Dispatch]) -> None:
        parameters = {
            "journal": writer.journal,
            "epoch": writer.epoch,
            "keys": [_key(it) for it in dispatches],
        }
        await self._write(writer, _WITHDRAW, parameters)

    async def _write(
        self, writer: Tenure, statement: LiteralString, parameters: dict[str, Any]
    ) -> None:
        rows = await self._database.run(lambda it: it.execute(statement, parameters).fetchall())
        if not rows[0][0]:
            raise JournalInUseError(writer.journal, "another process has taken it over")

    async def stranded(
        self, dispatches: Sequence[Dispatch], live: AbstractSet[WorkerId]
    ) -> Sequence[Dispatch]:
        parameters = {"keys": [_key(it) for it in dispatches], "live": sorted(live)}
        rows = await self._database.run(lambda it: it.execute(_OPEN, parameters).fetchall())
        open_keys = {key for (key,) in rows}
        return [it for it in dispatches if _key(it) not in open_keys]

    @asynccontextmanager
    async def receive(
        self, worker: WorkerId, place: str, slots: int
    ) -> AsyncGenerator[AsyncIterator[Delivery]]:
        await self._database.run(lambda it: it.execute(_SWEEP, {"keep": KEEP_SECONDS}))
        deliveries = _Deliveries(trio.lowlevel.current_trio_token())
        await trio.to_thread.run_sync(
            partial(self._launch, worker, queue_name(place), slots, deliveries)
        )
        try:
            yield deliveries
        finally:
            with trio.move_on_after(RELEASE_SECONDS, shield=True):
                await self._wait_recorded(worker, deliveries)
            with trio.move_on_after(RELEASE_SECONDS, shield=True):
                await trio.to_thread.run_sync(_destroy, abandon_on_cancel=True)
            deliveries.release()

    async def _wait_recorded(self, worker: WorkerId, deliveries: "_Deliveries") -> None:
        """Wait until the threads of DBOS have recorded the finished dispatches."""
        while True:
            row = await self._database.run(
                lambda it: it.execute(_CLAIMED, {"worker": worker}).fetchone()
            )
            if not row or cast("int", row[0]) <= deliveries.open_count():
                return
            await trio.sleep(POLL_SECONDS)

    def _launch(self, worker: WorkerId, queue: str, slots: int, deliveries: "_Deliveries") -> None:
        from dbos import DBOS, DBOSClient

        def hold(payload: dict[str, Any]) -> None:
            deliveries.hold(payload)

        try:
            client = DBOSClient(
                system_database_url=self._url, application_name=NAME, system_database_pool_size=1
            )
            client.register_queue(queue, worker_concurrency=0, polling_interval_sec=POLL_SECONDS)
            client.destroy()
            DBOS(
                config={
                    "name": NAME,
                    "application_version": NAME,
                    "executor_id": worker,
                    "system_database_url": self._url,
                    "sys_db_pool_size": POOL,
                    "log_level": "ERROR",
                }
            )
            DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)(hold)
            DBOS.listen_queues([queue])
            DBOS.launch()
            _give_slots(queue, slots)
        except Exception as exc:  # noqa: BLE001 (a foreign engine, whose errors are its own)
            _destroy()
            raise JournalError(self._database.address, problem_of(self._url, exc)) from None


class _Deliveries:
    """Where the threads of DBOS meet trio."""

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token
        self._waiting: deque[_DbosDelivery] = deque()
        self._open: set[_DbosDelivery] = set()
        self._arrived = trio.Event()
        self._released = False

    def hold(self, payload: dict[str, Any]) -> None:
        """Wait until a dispatch is finished; in a thread of DBOS, as the workflow."""
        it = msgspec.convert(payload, _Payload)
        dispatch = Dispatch(it.id, it.attempt, it.journal, it.place)
        delivery = _DbosDelivery(dispatch)
        self._token.run_sync_soon(self._arrive, delivery)
        delivery.finished.result()

    def _arrive(self, delivery: "_DbosDelivery") -> None:
        self._open.add(delivery)
        delivery.finished.add_done_callback(lambda _: self._open.discard(delivery))
        if self._released:
            self.release()
        self._waiting.append(delivery)
        self._arrived.set()

    def __aiter__(self) -> "_Deliveries":
        return self

    async def __anext__(self) -> Delivery:
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            self._arrived = trio.Event()
            await self._arrived.wait()
        return self._waiting.popleft()

    def open_count(self) -> int:
        """Return how many dispatches are delivered, or will be, and are not finished."""
        return len(self._open)

    def release(self) -> None:
        """End the waiting threads, and leave their claims stranded."""
        self._released = True
        for it in list(self._open):
            it.finished.set_exception(_ReleasedError())


class _DbosDelivery:
    def __init__(self, dispatch: Dispatch) -> None:
        self.dispatch = dispatch
        self.finished: Future[None] = Future()

    async def finish(self) -> None:
        await trio.lowlevel.checkpoint()
        # The thread records it. Until then a crash strands the dispatch, which is harmless.
        self.finished.set_result(None)


def _give_slots(queue: str, slots: int) -> None:
    """Let the threads of DBOS in this process claim so much at once.

    DBOS keeps the number with the queue, where all workers share it. There it is 0, and each worker
    has its own: no option of DBOS does that. Without this a worker receives nothing.
    """
    from dbos._dbos import _get_dbos_instance  # pyright: ignore[reportPrivateUsage]

    system: Any = _get_dbos_instance()._sys_db  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    read = system.get_queue

    def get_queue(name: str, **options: Any) -> Any:
        found = read(name, **options)
        if found is not None and name == queue:
            found._worker_concurrency = slots  # noqa: SLF001
        return found

    system.get_queue = get_queue


def _destroy() -> None:
    from dbos import DBOS

    DBOS.destroy(destroy_registry=True)


def _install(url: str, address: str, connection: "Connection") -> None:
    """Install the tables of DBOS where they are missing; blocking.

    Raises:
        JournalError: DBOS is not to be had.
    """
    missing = "select to_regproc('dbos.enqueue_workflow') is null"
    if connection.execute(missing).fetchone() != (True,):
        return
    try:
        from dbos import DBOS
    except ImportError as exc:
        raise JournalError(
            address,
            "this work queue needs DBOS, which is not installed there:"
            " pip install 'delegation-orchestrator[dbos]'",
        ) from exc
    try:
        DBOS.migrate(parse_address(url).url)
    except Exception as exc:  # noqa: BLE001 (a foreign engine, whose errors are its own)
        raise JournalError(address, problem_of(url, exc)) from None


@asynccontextmanager
async def open_dbos_queue(
    url: str, database: Database, wakeups: Wakeups, *, lease: float
) -> AsyncGenerator[WorkQueue]:
    """Use DBOS in a database, where it is installed if it is missing.

    Args:
        url: of the database: the threads of DBOS have connections of their own.
        database: the same, for statements.
        wakeups: not used: DBOS looks by itself.
        lease: not used: claims of DBOS do not run out.

    Raises:
        JournalError: DBOS is not to be had.
    """
    await database.run(partial(_install, url, database.address))
    yield _DbosQueue(url, database)
