"""The times until which providers refuse calls, shared by all processes that use one database.

A row has the hold of a model, by the clock of the database. One connection listens for changes, and
the process keeps the holds in memory, so no call waits for the database. While the database is
away, each process asks its providers for itself.
"""

import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, LiteralString

import trio

from orchestrator.agents import raising_one_error
from orchestrator.agents.models.wrappers.shared_hold import LONGEST_HOLD
from orchestrator.loggers import logger_of
from orchestrator.ports.errors import JournalError
from orchestrator.products.cluster.database.database import Database
from orchestrator.products.cluster.database.wakeups import Bell, channel, open_wakeups

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

CHANNEL: Final = channel("holds", "all")
_EXTEND: Final[LiteralString] = """
INSERT INTO orchestrator.holds VALUES (%s, clock_timestamp() + %s * interval '1 second')
ON CONFLICT (model) DO UPDATE SET until = greatest(holds.until, excluded.until)
"""
_READ: Final[LiteralString] = """
SELECT model, extract(epoch FROM until - clock_timestamp())
FROM orchestrator.holds WHERE until > clock_timestamp()
"""


class SharedHolds:
    """The holds of all models. `open_shared_holds` makes it."""

    def __init__(self) -> None:
        self.until: Final[dict[str, float]] = {}
        """The end of the hold of each model, by trio's clock."""
        self._untold: set[str] = set()
        """The models whose hold the others do not know yet."""
        self._needed = trio.Event()
        self._bell: Bell | None = None

    def of(self, model: str) -> "DatabaseHold":
        """Return the hold of a model, and share holds from now on."""
        self._needed.set()
        return DatabaseHold(self, model)

    def tell(self, model: str) -> None:
        """Tell the other processes about a hold."""
        self._untold.add(model)
        if self._bell is not None:
            self._bell.ring()

    async def share_forever(self, url: str) -> None:
        """Tell and hear holds, until cancelled, or until the database refuses it for good."""
        await self._needed.wait()
        name = "orchestrator holds"
        try:
            async with open_wakeups(url, application=name) as wakeups:
                with wakeups.bell(CHANNEL) as bell:
                    self._bell = bell
                    while True:
                        await self._exchange(Database(url, name))
                        # It rings also when the connection is back after an outage.
                        await bell.wait(math.inf)
        except JournalError as exc:
            logger_of("cluster").warning("refusals of providers are not shared: %s", exc)

    async def _exchange(self, database: Database) -> None:
        """Tell and hear holds, over a connection for this moment: refusals are seldom."""
        now, exchange = trio.current_time(), partial(_exchange, self._take_untold())
        try:
            self._hear(now, await database.run(exchange))
        finally:
            await database.aclose()

    def _take_untold(self) -> Mapping[str, float]:
        now, untold = trio.current_time(), self._untold
        self._untold = set()
        return {it: self.until[it] - now for it in untold if self.until[it] > now}

    def _hear(self, now: float, holds: Mapping[str, float]) -> None:
        for model, seconds in holds.items():
            # Counted from before the statement: it is never longer than the other process said.
            until = now + min(seconds, LONGEST_HOLD)
            self.until[model] = max(self.until.get(model, until), until)


class DatabaseHold:
    """The hold of one model (`SharedHold`)."""

    def __init__(self, holds: SharedHolds, model: str) -> None:
        self._holds = holds
        self._model = model

    def seconds_left(self) -> float:
        until = self._holds.until.get(self._model)
        return 0.0 if until is None else max(0.0, until - trio.current_time())

    def extend(self, seconds: float) -> None:
        if seconds > self.seconds_left():
            self._holds.until[self._model] = trio.current_time() + seconds
            self._holds.tell(self._model)


def _exchange(told: Mapping[str, float], connection: "Connection") -> dict[str, float]:
    """Store holds, and return all of them, in seconds from now; blocking."""
    for model, seconds in told.items():
        connection.execute(_EXTEND, (model, seconds))
    if told:
        connection.execute("SELECT pg_notify(%s, '')", (CHANNEL,))
    return {str(model): float(str(left)) for model, left in connection.execute(_READ)}


@asynccontextmanager
async def open_shared_holds(url: str) -> AsyncGenerator[SharedHolds]:
    """Share holds over a database from the first use of a model."""
    holds = SharedHolds()
    with raising_one_error():
        # This nursery owns the task that tells and hears holds.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(holds.share_forever, url)
            yield holds
            nursery.cancel_scope.cancel()
