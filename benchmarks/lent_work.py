"""Measures the cost of lent work: the CPU of the writer, of the worker and of Postgres.

A dispatch is sent, a worker receives it, asks the writer twice (to begin, and with its answer) and
finishes it. Nothing of a journal or a model is in it.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs
import trio

from orchestrator.products.cluster.work import (
    Dispatch,
    DispatchId,
    Exchange,
    ExecutionId,
    Request,
    Tenure,
    WorkerId,
)
from orchestrator.products.cluster.work.postgres.exchange import open_exchange
from tests.postgres import PostgresServer, open_postgres
from tests.workers.kit import Leaf

ROOT: Final = Path(__file__).parent.parent
AT_ONCE: Final = 400
ALONE: Final = 60
WORKER: Final = WorkerId("bench")


@attrs.frozen
class LentWork:
    """Milliseconds a dispatch."""

    writer: float
    worker: float
    postgres: float
    alone: float
    """From sending a lone one until its answer is here, the median, in wall time."""

    @property
    def total(self) -> float:
        return self.writer + self.worker + self.postgres


async def work(url: str, queue: str, count: int) -> None:
    """Receive so many dispatches, ask twice for each, and end."""
    async with (
        open_exchange(url, queue=queue) as exchange,
        exchange.worker_mailbox(WORKER) as mailbox,
        exchange.queue.receive(WORKER, "gpu", 200) as deliveries,
        trio.open_nursery() as nursery,
    ):

        async def run(dispatch: Dispatch) -> None:
            id_ = ExecutionId(f"run of {dispatch.id}")
            for number, body in enumerate((b"begin", b"x" * 1000)):
                request = Request(dispatch.journal, WORKER, id_, number, body)
                await mailbox.ask(request)
            mailbox.forget(id_)

        print("ready", flush=True)
        for _ in range(count):
            delivery = await anext(deliveries)

            @nursery.start_soon
            async def finish(delivery: object = delivery) -> None:
                await run(delivery.dispatch)  # type: ignore[attr-defined]
                await delivery.finish()  # type: ignore[attr-defined]


class _Writer:
    def __init__(self, exchange: Exchange, tenure: Tenure) -> None:
        self._exchange = exchange
        self._tenure = tenure
        self._answered: dict[ExecutionId, trio.Event] = {}

    async def answer_forever(self) -> None:
        async with self._exchange.writer_mailbox(self._tenure) as mailbox:
            while True:
                for request in await mailbox.receive():
                    mailbox.answer(request, b"y" * 1000)
                    if request.number == 1:
                        self._answered.setdefault(request.execution, trio.Event()).set()
                        mailbox.forget(request.execution)

    async def lend(self, *names: str) -> None:
        dispatches = [Dispatch(DispatchId(it), 1000, self._tenure.journal, "gpu") for it in names]
        await self._exchange.queue.send(self._tenure, dispatches)
        for name in names:
            run = ExecutionId(f"run of {name}")
            await self._answered.setdefault(run, trio.Event()).wait()


async def _lend(url: str, queue: str, leaf: Leaf, server: PostgresServer) -> LentWork:
    tenure = leaf.take_over()
    async with open_exchange(url, queue=queue) as exchange:
        writer = _Writer(exchange, tenure)
        with subprocess.Popen(  # noqa: ASYNC220 (it takes no time)
            [sys.executable, "-m", __spec__.name, url, queue, str(AT_ONCE + ALONE + 1)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        ) as worker:
            assert worker.stdout is not None
            await trio.to_thread.run_sync(worker.stdout.readline)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(writer.answer_forever)
                await writer.lend("warm")
                before = seconds_of(worker.pid), postgres_seconds(server)
                start = time.process_time()
                await writer.lend(*(f"d{number}" for number in range(AT_ONCE)))
                own = time.process_time() - start
                after = seconds_of(worker.pid), postgres_seconds(server)
                walls: list[float] = []
                for number in range(ALONE):
                    began = time.perf_counter()
                    await writer.lend(f"alone {number}")
                    walls.append(time.perf_counter() - began)
                # The last answer is sent by then: without it the worker would never end.
                await trio.to_thread.run_sync(worker.wait)
                nursery.cancel_scope.cancel()
    return LentWork(
        writer=own * 1000 / AT_ONCE,
        worker=(after[0] - before[0]) * 1000 / AT_ONCE,
        postgres=(after[1] - before[1]) * 1000 / AT_ONCE,
        alone=statistics.median(walls) * 1000,
    )


def seconds_of(pid: int) -> float:
    """Return the seconds of CPU of a process."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    # Its own and those of its children that have ended.
    ticks = sum(int(it) for it in words[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def postgres_seconds(server: PostgresServer) -> float:
    """Return the seconds of CPU of a server, with all its processes."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()
    return sum(seconds_of(it) for it in (server.pid, *map(int, children.split())))


def measure_lent_work(queues: tuple[str, ...] = ("absurd",)) -> Mapping[str, LentWork]:
    """Measure each queue on a Postgres of its own that flushes to the disk."""
    found: dict[str, LentWork] = {}
    with open_postgres(fsync=True) as server:
        for queue in queues:
            with server.new_database() as url:
                leaf = Leaf(queue, url)
                found[queue] = trio.run(_lend, url, queue, leaf, server)
    return found


if __name__ == "__main__":
    match sys.argv[1:]:
        case [address, name, number]:
            trio.run(work, address, name, int(number))
        case names:
            for key, it in measure_lent_work(tuple(names) or ("absurd",)).items():
                print(
                    f"{key}: writer {it.writer:.2f} ms, worker {it.worker:.2f} ms,"
                    f" Postgres {it.postgres:.2f} ms, all {it.total:.2f} ms;"
                    f" one at a time {it.alone:.1f} ms"
                )
