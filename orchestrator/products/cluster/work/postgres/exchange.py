"""All that a process needs to lend or to borrow over Postgres, on two connections.

One executes statements, and waits through an outage; the other listens.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Final, Protocol

from orchestrator.ports.errors import OrchestratorError
from orchestrator.products.cluster.database.database import Database, open_database
from orchestrator.products.cluster.database.schema import install_schema
from orchestrator.products.cluster.database.wakeups import Wakeups, open_wakeups
from orchestrator.products.cluster.work.dispatch import Tenure, WorkerId
from orchestrator.products.cluster.work.mailbox import WorkerMailbox, WriterMailbox
from orchestrator.products.cluster.work.postgres.presence import PostgresPresence
from orchestrator.products.cluster.work.postgres.schema import install
from orchestrator.products.cluster.work.postgres.worker_mailbox import open_worker_mailbox
from orchestrator.products.cluster.work.postgres.writer_mailbox import open_writer_mailbox
from orchestrator.products.cluster.work.work_queue import WorkQueue

QUEUE_VARIABLE: Final = "ORCHESTRATOR_QUEUE"
DEFAULT_QUEUE: Final = "absurd"
LEASE_SECONDS: Final = 10.0
"""How long a claim of a worker holds that says nothing."""


class PostgresExchange:
    """The exchange of one process. `open_exchange` makes one."""

    def __init__(self, database: Database, wakeups: Wakeups, queue: WorkQueue) -> None:
        self._database = database
        self._wakeups = wakeups
        self.queue = queue
        self.presence = PostgresPresence(database)

    def writer_mailbox(self, writer: Tenure) -> AbstractAsyncContextManager[WriterMailbox]:
        return open_writer_mailbox(self._database, self._wakeups, writer)

    def worker_mailbox(self, worker: WorkerId) -> AbstractAsyncContextManager[WorkerMailbox]:
        return open_worker_mailbox(self._database, self._wakeups, worker)


@asynccontextmanager
async def open_exchange(
    url: str,
    *,
    queue: str = DEFAULT_QUEUE,
    application: str = "orchestrator",
    lease: float = LEASE_SECONDS,
) -> AsyncGenerator[PostgresExchange]:
    """Open the exchange of a process, before it takes a journal.

    Args:
        url: of the database.
        queue: the work queue: `absurd`, or `module:function` for one of your own.
        application: what `pg_stat_activity` shows.
        lease: for how many seconds a claim of a silent worker holds.

    Raises:
        JournalError: the database cannot be used.
        OrchestratorError: there is no such work queue.
    """
    open_queue = _opener(queue)
    async with (
        open_database(url, application=application) as database,
        open_wakeups(url, application=f"{application}: wake-ups") as wakeups,
    ):
        # A worker may be there before any writer.
        await database.run(lambda it: install_schema(it, database.address))
        await database.run(lambda it: install(it, database.address))
        async with open_queue(database, wakeups, lease=lease) as work_queue:
            yield PostgresExchange(database, wakeups, work_queue)


def exchange_opener(
    database: str, environ: Mapping[str, str], *, queue: str | None = None
) -> Callable[[], AbstractAsyncContextManager[PostgresExchange]]:
    """Return the function with which a writer connects to the work queue of a database.

    Args:
        database: its address.
        environ: ORCHESTRATOR_QUEUE in it may name the queue.
        queue: the name of the queue; by default the one in `environ`, else `absurd`.
    """
    return partial(
        open_exchange,
        database,
        queue=queue or environ.get(QUEUE_VARIABLE) or DEFAULT_QUEUE,
        application="orchestrator writer",
    )


class OpenQueue(Protocol):
    """Opens a work queue in a database."""

    def __call__(
        self, database: Database, wakeups: Wakeups, *, lease: float
    ) -> AbstractAsyncContextManager[WorkQueue]: ...


def _opener(name: str) -> OpenQueue:
    """Return what opens the queue of a name; only this queue is imported."""
    match name.partition(":"):
        case "absurd", "", "":
            from orchestrator.products.cluster.work.queues.absurd import open_absurd_queue

            return open_absurd_queue
        case module, ":", function:
            try:
                opener: OpenQueue = getattr(import_module(module), function)
            except (ImportError, AttributeError, ValueError) as exc:
                raise OrchestratorError(
                    f"the work queue {name!r} cannot be imported: {exc}"
                ) from exc
            return opener
        case _:
            raise OrchestratorError(
                f"there is no work queue {name!r}: use absurd, or module:function"
            )
