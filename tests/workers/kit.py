"""Helpers for tests of lent work: leaves by name, journals to write, receivers to kill."""

import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final, cast

import trio

from orchestrator.products.cluster.database.connection import connect
from orchestrator.products.cluster.database.schema import install_schema
from orchestrator.products.cluster.work import Dispatch, DispatchId, Exchange, Tenure, WorkerId
from orchestrator.products.cluster.work.postgres.exchange import open_exchange
from tests.workers.memory import MemoryExchange

ROOT: Final = Path(__file__).parent.parent.parent
LEASE: Final = 1.0
JOURNAL: Final = "shard-1"
WORKER: Final = WorkerId("w-here")
IN_DATABASES: Final = ("absurd", "documented")


class Leaf:
    """One work queue, empty, with journals that can be taken over."""

    def __init__(self, name: str, url: str = "") -> None:
        self.name = name
        self.url = url
        self.memory = MemoryExchange()
        if url:
            with connect(url, application="test") as connection:
                install_schema(connection, "the database of the test")

    def take_over(self, journal: str = JOURNAL) -> Tenure:
        """Make the test the writer of a journal, and fence the one before."""
        if not self.url:
            return self.memory.take_over(journal)
        with connect(self.url, application="test") as connection:
            row = connection.execute(
                "insert into orchestrator.journals (name, epoch) values (%s, 1) on conflict"
                " (name) do update set epoch = journals.epoch + 1 returning epoch",
                [journal],
            ).fetchone()
        assert row is not None
        return Tenure(journal, cast("int", row[0]))

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Exchange]:
        if not self.url:
            await trio.lowlevel.checkpoint()
            yield self.memory
            return
        queue = documented_queue() if self.name == "documented" else self.name
        async with open_exchange(self.url, queue=queue, lease=LEASE) as exchange:
            yield exchange


def documented_queue() -> str:
    """Return the name of the queue that the documents show, as a user would save it."""
    name = "table_queue"
    if name not in sys.modules:
        text = (ROOT / "docs" / "work-queue.md").read_text()
        (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        module = ModuleType(name)
        exec(compile(code, "docs/work-queue.md", "exec"), module.__dict__)
        sys.modules[name] = module
    return f"{name}:open_queue"


def dispatches(
    tenure: Tenure, *names: str, place: str = "gpu", attempt: int | None = None
) -> list[Dispatch]:
    number = tenure.epoch * 1000 if attempt is None else attempt
    return [Dispatch(DispatchId(it), number, tenure.journal, place) for it in names]


class Receiver:
    """A process that receives: `tests/workers/receiver.py`."""

    def __init__(self, process: "subprocess.Popen[str]", worker: WorkerId) -> None:
        self._process = process
        self.worker = worker

    async def heard(self) -> str:
        """Return the next line that it prints."""
        assert self._process.stdout is not None
        line = await trio.to_thread.run_sync(self._process.stdout.readline, abandon_on_cancel=True)
        assert line, "the receiver has ended"
        return line.strip()

    async def ask(self, line: str) -> str:
        """Tell it what to do, and return what it prints then."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return await self.heard()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)


@contextmanager
def open_receiver(
    leaf: Leaf, worker: str, slots: int, *, place: str = "gpu"
) -> Generator[Receiver]:
    """Start a process that receives, and kill it at the end."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.workers.receiver"),
            *(leaf.url, leaf.name, worker, place, str(slots)),
        ],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield Receiver(process, WorkerId(worker))
        finally:
            process.kill()


async def received(exchange: Exchange, wanted: Iterable[Dispatch | DispatchId]) -> list[Dispatch]:
    """Receive and finish until all that is wanted has arrived, and return what did.

    Args:
        exchange: where.
        wanted: dispatches, or only their ids if the attempt does not matter.
    """
    missing = set(wanted)
    found: list[Dispatch] = []
    slots = 100 if len(missing) > 100 else 10
    async with exchange.queue.receive(WORKER, "gpu", slots) as deliveries:
        # They end at the same time, as those of a worker with many slots do.
        async with trio.open_nursery() as nursery:
            while missing:
                delivery = await anext(deliveries)
                found.append(delivery.dispatch)
                missing -= {delivery.dispatch, delivery.dispatch.id}
                nursery.start_soon(delivery.finish)
    return found
