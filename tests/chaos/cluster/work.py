"""The processes of a round: a writer or standby with its client, and a worker.

The writer is a library program; the worker is the command `orchestrator worker`.
"""

import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

# Imported late elsewhere, and here before anything is forked.
import docstring_parser  # noqa: F401
import networkx as nx  # noqa: F401
import psycopg  # noqa: F401
import trio

from orchestrator import Machine, Orchestrator, open_orchestrator
from orchestrator.agents import Agent, raising_one_error
from orchestrator.cli.agent_file import load_agents
from orchestrator.cli.commands.worker import worker
from orchestrator.delegation import Reply
from orchestrator.delegation.events import MessageReceived
from orchestrator.kernel.doors.session import Session
from orchestrator.kernel.errors import JournalInUseError
from orchestrator.products.cluster.database.connection import UnreachableError
from orchestrator.products.cluster.journal import journal as postgres_journal  # noqa: F401
from orchestrator.products.cluster.work import Delivery, Exchange, WorkerId
from orchestrator.products.cluster.work.postgres import exchange as postgres_exchange  # noqa: F401
from orchestrator.products.cluster.work.queues import absurd  # noqa: F401
from orchestrator.products.cluster.worker import process as worker_process
from tests.chaos.cluster.home import Home

TEAM: Final = str(Path(__file__).parent / "team.py")
ASK: Final = "do all of it"
JOINED: Final = 8
DETACHED: Final = 8
BUYERS: Final = 4
SHOP_CALLS: Final = 10
"""Too few for all buyers: two for the shop, three for each buyer."""
JOURNAL: Final = "chaos"
FENCED: Final = 2
STANDBY_SECONDS: Final = 0.1
"""How often a standby looks whether the journal is free."""
WORKER_LEASE: Final = 2.0
SLOTS: Final = 4
GRACE: Final = 2


def work_as_writer() -> int:
    """Write the journal as soon as it is free, until all is done; return 2 if it was fenced."""
    address = os.environ["ORCHESTRATOR_JOURNAL"]
    home = Home.of_process()
    boss = load_agents(TEAM)["boss"]
    is_writer = False

    async def work() -> None:
        nonlocal is_writer
        async with open_orchestrator(
            address, machine=Machine(workspace=home.folder, environ={"PATH": os.environ["PATH"]})
        ) as orchestrator:
            is_writer = True
            home.write(home.receipts, "writer", name=os.environ["CHAOS_NAME"])
            await _converse(home, orchestrator, boss)

    while True:
        try:
            trio.run(work)
        except JournalInUseError as exc:
            if is_writer:
                print(f"orchestrator: {exc}", flush=True)
                return FENCED
            trio.run(trio.sleep, STANDBY_SECONDS)
        except UnreachableError as exc:
            if is_writer or exc.lasting:
                raise
            trio.run(trio.sleep, STANDBY_SECONDS)
        else:
            home.write(home.receipts, "done", name=os.environ["CHAOS_NAME"])
            return 0


async def _converse(home: Home, orchestrator: Orchestrator, boss: Agent[Any]) -> None:
    """Say what was not said, wait until the session is idle, and take all replies."""
    known = home.receipts.read("session")
    id_ = known[0]["session"] if known else None

    def take(reply: Reply) -> None:
        home.write(home.receipts, "reply", turn=reply.turn, text=reply.text)

    async def take_replies(session: Session) -> None:
        async for reply in session.replies:
            take(reply)

    async with orchestrator.open_session(boss, session=id_) as session:
        if id_ is None:
            home.write(home.receipts, "session", session=session.id)
        entries = await orchestrator.read.entries(session.id)
        with raising_one_error():
            async with trio.open_nursery() as beside:
                beside.start_soon(take_replies, session)
                if not any(isinstance(it.event, MessageReceived) for it in entries):
                    take(await session.ask(ASK))
                await session.wait_idle()
                beside.cancel_scope.cancel()
        # The last replies may have come in the moment of the cancel.
        with suppress(trio.WouldBlock):
            while True:
                take(session.replies.receive_nowait())


def work_as_worker() -> int:
    """Run lent calls until a signal comes."""
    if os.environ.get("CHAOS_TWICE"):
        _deliver_twice()
    return worker(TEAM, place="gpu", slots=SLOTS, lease=WORKER_LEASE, grace=GRACE)


class _SecondDelivery:
    """The same dispatch once more."""

    def __init__(self, delivery: Delivery) -> None:
        self.dispatch = delivery.dispatch

    async def finish(self) -> None:
        await trio.lowlevel.checkpoint()


class _DoublingQueue:
    """A work queue that delivers everything twice, at the same time."""

    def __init__(self, exchange: Exchange) -> None:
        self._queue = exchange.queue

    @asynccontextmanager
    async def receive(
        self, worker: WorkerId, place: str, slots: int
    ) -> AsyncGenerator[AsyncIterator[Any]]:
        async with self._queue.receive(worker, place, slots) as deliveries:
            yield _Twice(deliveries)


class _Twice:
    """Each delivery, and then the same dispatch once more."""

    def __init__(self, deliveries: AsyncIterator[Delivery]) -> None:
        self._deliveries = deliveries
        self._second: Any = None

    def __aiter__(self) -> "_Twice":
        return self

    async def __anext__(self) -> Any:
        await trio.lowlevel.checkpoint()
        second, self._second = self._second, None
        if second is not None:
            return second
        delivery = await anext(self._deliveries)
        self._second = _SecondDelivery(delivery)
        return delivery


class _DoublingExchange:
    def __init__(self, exchange: Exchange) -> None:
        self.queue = _DoublingQueue(exchange)
        self.presence = exchange.presence


def _deliver_twice() -> None:
    init: Any = worker_process.Worker.__init__

    def init_doubling(self: Any, exchange: Exchange, *args: Any, **options: Any) -> None:
        init(self, _DoublingExchange(exchange), *args, **options)

    worker_process.Worker.__init__ = init_doubling  # type: ignore[method-assign]
