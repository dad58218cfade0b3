"""The servers of a database: who is alive, by the clock of the database, and who holds which shard.

A server says that it is alive for one lease. Whether it may write is decided by the journals alone.
"""

import platform
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, LiteralString

import attrs

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

CHANNEL: Final = ("servers", "all")
"""The channel that is notified when a server comes or goes, or releases a shard."""
_LOCK: Final = 7_340_811_906_254_115
_CREATE: Final[LiteralString] = """
CREATE TABLE IF NOT EXISTS orchestrator.servers (
    id      text PRIMARY KEY,
    address text NOT NULL,
    until   timestamptz NOT NULL
);
ALTER TABLE orchestrator.servers ADD COLUMN IF NOT EXISTS host text NOT NULL DEFAULT '';
ALTER TABLE orchestrator.servers ADD COLUMN IF NOT EXISTS network text NOT NULL DEFAULT ''
"""
_CREATE_SHARED: Final[LiteralString] = """
CREATE TABLE IF NOT EXISTS orchestrator.server_secret (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    secret text NOT NULL
)
"""
# Made in the database: a statement with it could be in a log. Both are strong random numbers.
_MAKE_SHARED: Final[LiteralString] = """
INSERT INTO orchestrator.server_secret (secret)
VALUES (replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''))
ON CONFLICT DO NOTHING
"""
_BEAT: Final[LiteralString] = """
INSERT INTO orchestrator.servers (id, address, host, network, until)
VALUES (%s, %s, %s, %s, clock_timestamp() + %s * interval '1 second')
ON CONFLICT (id) DO UPDATE SET address = excluded.address, host = excluded.host,
    network = excluded.network, until = excluded.until
"""
_SERVERS: Final[LiteralString] = """
SELECT id, address, host, network FROM orchestrator.servers
WHERE until > clock_timestamp() ORDER BY id
"""
_SHARDS: Final[LiteralString] = """
SELECT name, epoch, process, host, address, extract(epoch FROM until - clock_timestamp())
FROM orchestrator.journals
WHERE starts_with(name, 'shard-') AND until > clock_timestamp()
"""
_FIND: Final[LiteralString] = """
SELECT name FROM orchestrator.sessions JOIN orchestrator.journals USING (journal)
WHERE session = %s
"""


@attrs.frozen(kw_only=True)
class ShardWriter:
    """The process that writes a shard."""

    process: int
    host: str
    address: str
    epoch: int
    seconds_left: float
    """How long no other process may take the shard over."""


@attrs.frozen
class ServerPlace:
    """Where a server is."""

    address: str
    """Where the others reach it."""
    host: str
    """The name of its machine in facts."""
    network: str
    """The network name of its machine: only there a loopback address leads to it."""


@attrs.frozen(kw_only=True)
class ClusterView:
    """The servers and shards of a database at one moment."""

    servers: Mapping[str, ServerPlace]
    """The servers that are alive, by their ids, in order."""
    writers: Mapping[str, ShardWriter]
    """The writers of the shards that have one."""


def install_servers(connection: "Connection", shards: int | None, default: int) -> int:
    """Create the table of servers, and return how many shards there are; blocking."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        connection.execute(_CREATE)
        row = connection.execute(
            "UPDATE orchestrator.cluster SET shards = coalesce(shards, %s) RETURNING shards",
            (default if shards is None else shards,),
        ).fetchone()
    assert row is not None, "a database with journals has one row of its own"
    return int(str(row[0]))


def install_secret(connection: "Connection") -> str:
    """Return the secret of the servers, which is made once; blocking."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        connection.execute(_CREATE_SHARED)
        connection.execute(_MAKE_SHARED)
        row = connection.execute("SELECT secret FROM orchestrator.server_secret").fetchone()
    assert row is not None, "it was made just now, or before"
    return str(row[0])


def beat(connection: "Connection", id_: str, *, address: str, host: str, seconds: float) -> None:
    """Say that a server is alive for some seconds, and where others reach it; blocking."""
    connection.execute(_BEAT, (id_, address, host, platform.node(), seconds))


def read_view(connection: "Connection") -> ClusterView:
    """Return who is alive, and who holds which shard; blocking."""
    return ClusterView(
        servers={
            str(id_): ServerPlace(*map(str, place)) for id_, *place in connection.execute(_SERVERS)
        },
        writers={
            str(name): ShardWriter(
                process=int(str(process)),
                host=str(host),
                address=str(served_at),
                epoch=int(str(epoch)),
                seconds_left=float(str(left)),
            )
            for name, epoch, process, host, served_at, left in connection.execute(_SHARDS)
        },
    )


def find_journal(connection: "Connection", session: str) -> str | None:
    """Return the name of the journal that has a session; blocking."""
    row = connection.execute(_FIND, (session,)).fetchone()
    return None if row is None else str(row[0])


def leave(connection: "Connection", id_: str) -> None:
    """Say that a server is alive no more, and forget those that died; blocking."""
    connection.execute(
        "DELETE FROM orchestrator.servers WHERE id = %s OR until < clock_timestamp()", (id_,)
    )


def notify(connection: "Connection", channel: str) -> None:
    """Tell the other servers to look again; blocking."""
    connection.execute("SELECT pg_notify(%s, '')", (channel,))


def others(view: ClusterView, id_: str) -> Sequence[ServerPlace]:
    """Return where the other servers are."""
    return [at for it, at in view.servers.items() if it != id_]
