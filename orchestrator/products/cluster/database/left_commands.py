"""Commands that stayed on a machine when another one took the journal over.

The new writer puts them into a table. A process on the first machine, now or at its next start,
ends the processes with their tags, and marks them. The words of a writer hold only in its epoch.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, LiteralString, NoReturn

import trio

from orchestrator.agents import raising_one_error
from orchestrator.agents.tools.terminal.process_tags import kill_tagged
from orchestrator.ports.errors import JournalInUseError
from orchestrator.products.cluster.database.database import Database, open_database
from orchestrator.products.cluster.database.wakeups import Wakeups, channel, open_wakeups

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

POLL_SECONDS: Final = 5.0
"""How often a table that mostly is empty is looked at without a wake-up."""
_LOCK: Final = 7_340_811_906_254_116
_TABLE: Final[LiteralString] = """
create schema if not exists orchestrator;
create table if not exists orchestrator.left_commands (
    journal text not null,
    host text not null,
    tag text not null,
    ended boolean not null default false,
    primary key (host, journal, tag)
)
"""
_ASK: Final[LiteralString] = """
with mine as (
    select from orchestrator.journals where name = %(journal)s and epoch = %(epoch)s for share
),
asked as (
    insert into orchestrator.left_commands (journal, host, tag)
    select %(journal)s, host, tag
    from unnest(%(hosts)s::text[], %(tags)s::text[]) as left_ones (host, tag), mine
    on conflict do nothing
)
select count(*) from mine
"""
_ENDED_ONES: Final[LiteralString] = """
select tag from orchestrator.left_commands where journal = %(journal)s and ended
"""
_FORGET: Final[LiteralString] = """
delete from orchestrator.left_commands
where journal = %(journal)s and tag = any(%(tags)s) and ended and exists (
    select from orchestrator.journals
    where name = %(journal)s and epoch = %(epoch)s for share
)
"""
_LEFT: Final[LiteralString] = """
select tag from orchestrator.left_commands where host = %s and not ended
"""
_ENDED: Final[LiteralString] = """
update orchestrator.left_commands set ended = true
where host = %s and tag = any(%s) and not ended returning journal
"""


def _install(connection: "Connection") -> None:
    found = connection.execute("select to_regclass('orchestrator.left_commands')")
    if found.fetchone() == (None,):
        with connection.transaction():
            connection.execute("select pg_advisory_xact_lock(%s)", [_LOCK])
            connection.execute(_TABLE)


def _notify(connection: "Connection", *channels: str) -> None:
    for each in channels:
        connection.execute("select pg_notify(%s, '')", [each])


class PostgresLeftCommands:
    """The left commands of one journal, for its writer. `open_left_commands` opens it."""

    def __init__(self, database: Database, wakeups: Wakeups, journal: str, epoch: int) -> None:
        self._database = database
        self._wakeups = wakeups
        self._mine = {"journal": journal, "epoch": epoch}
        self._channel = channel("ended", journal)

    async def ask(self, commands: Mapping[str, str]) -> None:
        """Ask for the end of commands; the machine of each is given by its tag."""
        hosts = [*commands.values()]
        values = {**self._mine, "hosts": hosts, "tags": [*commands]}

        def ask(connection: "Connection") -> bool:
            is_mine = connection.execute(_ASK, values).fetchone() != (0,)
            _notify(connection, *(channel("left", host) for host in {*hosts}))
            return is_mine

        if not await self._database.run(ask):
            raise JournalInUseError(self._mine["journal"], "another process has taken it over")

    async def wait_ended(self) -> Sequence[str]:
        """Wait until commands have ended, and return their tags, again until they are forgotten.

        It only reads, so a lost answer is read again.
        """

        def read(connection: "Connection") -> list[str]:
            return [str(tag) for (tag,) in connection.execute(_ENDED_ONES, self._mine)]

        with self._wakeups.bell(self._channel) as bell:
            while True:
                if ended := await self._database.run(read):
                    return ended
                await bell.wait(POLL_SECONDS)

    async def forget(self, tags: Sequence[str]) -> None:
        """Drop commands whose end is durable in the journal."""
        values = {**self._mine, "tags": [*tags]}
        await self._database.run(lambda it: it.execute(_FORGET, values))


@asynccontextmanager
async def open_left_commands(
    url: str, *, journal: str, epoch: int
) -> AsyncGenerator[PostgresLeftCommands]:
    """Open the table for the writer of a journal; raise `JournalError` without a connection."""
    application = f"orchestrator: commands left by {journal}"
    async with (
        open_database(url, application=application) as database,
        open_wakeups(url, application=application) as wakeups,
    ):
        await database.run(_install)
        yield PostgresLeftCommands(database, wakeups, journal, epoch)


async def _kill(tags: Sequence[str]) -> Sequence[str]:
    """Kill the processes with these tags, and return the tags without a process."""
    return await trio.to_thread.run_sync(lambda: [tag for tag in tags if not kill_tagged(tag)])


class CommandsLeftHere:
    """Ends the leftover commands on this machine, for writers elsewhere."""

    def __init__(
        self,
        database: Database,
        wakeups: Wakeups,
        host: str,
        *,
        kill: Callable[[Sequence[str]], Awaitable[Sequence[str]]] = _kill,
    ) -> None:
        """Look for them; `kill` ends processes by tag, and returns the tags that have none left."""
        self._database = database
        self._wakeups = wakeups
        self._host = host
        self._kill = kill

    async def end_now(self) -> None:
        """End the present leftovers, and report them."""

        def left(connection: "Connection") -> list[str]:
            _install(connection)
            return [str(tag) for (tag,) in connection.execute(_LEFT, [self._host])]

        if tags := await self._database.run(left):
            ended = await self._kill(tags)
            await self._database.run(partial(_mark_ended, self._host, ended))

    async def end_forever(self) -> NoReturn:
        """End the present leftovers, and all that are requested later."""
        with self._wakeups.bell(channel("left", self._host)) as bell:
            while True:
                await self.end_now()
                await bell.wait(POLL_SECONDS)


@asynccontextmanager
async def end_left_commands(url: str, host: str) -> AsyncGenerator[None]:
    """End the leftovers on this machine before the block begins, and new ones during it.

    Use it once in each long-lived process: a server, a worker. Raise `JournalError` if the database
    is out of reach.
    """
    application = f"orchestrator: commands left on {host}"
    with raising_one_error():
        async with (
            open_database(url, application=application) as database,
            open_wakeups(url, application=application) as wakeups,
            trio.open_nursery() as nursery,
        ):
            here = CommandsLeftHere(database, wakeups, host)
            await here.end_now()
            nursery.start_soon(here.end_forever)
            try:
                yield
            finally:
                nursery.cancel_scope.cancel(reason="the process stops")


def _mark_ended(host: str, tags: Sequence[str], connection: "Connection") -> None:
    journals = {str(it) for (it,) in connection.execute(_ENDED, [host, [*tags]])}
    _notify(connection, *(channel("ended", journal) for journal in journals))
