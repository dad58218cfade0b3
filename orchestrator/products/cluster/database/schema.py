"""The tables of journals in a database, in the schema `orchestrator`.

A schema of an unknown version, or one that no orchestrator has made, is refused and not touched.
"""

import secrets
from typing import TYPE_CHECKING, Final, LiteralString

from orchestrator.ports.errors import JournalError

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

MARK: Final = "the journals of delegation-orchestrator"
"""The comment on the table `cluster`: a table of another application has another one, or none."""
NEWER: Final = "it was written by a newer orchestrator; use that one, or a new database"
_LOCK: Final = 7_340_811_906_254_114
_TABLES: Final = (
    "cluster",
    "journals",
    "entries",
    "payloads",
    "sessions",
    "snapshots",
    "summaries",
    "pruned",
    "pruned_sessions",
    "audit",
    "holds",
    "accounts",
)

# One row has the version of the tables, and the cluster that they belong to. A journal has one row,
# which every commit updates: the space that is left on its page takes the next versions of it. No
# table refers to another, since a journal is never deleted, and each reference would lock that row
# once more.
_CREATE: Final[LiteralString] = """
CREATE SCHEMA IF NOT EXISTS orchestrator;
CREATE TABLE orchestrator.cluster (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL,
    id      text NOT NULL,
    name    text NOT NULL,
    shards  integer,
    created timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE orchestrator.cluster IS 'the journals of delegation-orchestrator';
CREATE TABLE orchestrator.journals (
    journal      integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL UNIQUE,
    epoch        bigint NOT NULL DEFAULT 0,           -- how often it was taken over
    commits      bigint NOT NULL DEFAULT 0,           -- changes of its writers so far
    process      integer NOT NULL DEFAULT 0,
    host         text NOT NULL DEFAULT '',
    address      text NOT NULL DEFAULT '',
    until        timestamptz NOT NULL DEFAULT 'epoch',  -- the lease of its writer
    last         bigint NOT NULL DEFAULT 0,           -- the last entry of all
    last_at      double precision NOT NULL DEFAULT 0,
    last_of_none bigint NOT NULL DEFAULT 0,           -- the last entry of no session
    facts        integer NOT NULL DEFAULT 0,          -- the newest version among its facts
    pruned       bigint NOT NULL DEFAULT 0,           -- how many entries were pruned
    result       bigint NOT NULL DEFAULT 0,           -- of the last step of a pruning
    audit_seq    bigint NOT NULL DEFAULT 0,
    audit_hash   text NOT NULL DEFAULT repeat('0', 64),
    audit_pruned_seq  bigint NOT NULL DEFAULT 0,
    audit_pruned_hash text NOT NULL DEFAULT repeat('0', 64)
) WITH (fillfactor = 50);
CREATE TABLE orchestrator.entries (
    journal  integer NOT NULL,
    seq      bigint NOT NULL,
    at       double precision NOT NULL,
    session  text NOT NULL,
    kind     text NOT NULL,
    version  integer NOT NULL,
    body     text NOT NULL,
    previous bigint NOT NULL,
    checksum bigint NOT NULL,
    PRIMARY KEY (journal, seq)
);
CREATE INDEX entries_of_a_session ON orchestrator.entries (journal, session, seq);
CREATE TABLE orchestrator.payloads (
    journal integer NOT NULL,
    digest  text NOT NULL,
    string  text NOT NULL,
    PRIMARY KEY (journal, digest)
);
CREATE TABLE orchestrator.sessions (
    session  text NOT NULL,
    journal  integer NOT NULL,
    first    bigint NOT NULL,
    last     bigint NOT NULL,
    used     text,
    checksum bigint NOT NULL,
    PRIMARY KEY (session, journal)
) WITH (fillfactor = 80);
CREATE INDEX sessions_of_a_journal ON orchestrator.sessions (journal, first);
CREATE TABLE orchestrator.snapshots (
    session  text NOT NULL,
    journal  integer NOT NULL,
    seq      bigint NOT NULL,
    layout   text NOT NULL,
    state    bytea NOT NULL,
    checksum bigint NOT NULL,
    PRIMARY KEY (session, journal)
);
ALTER TABLE orchestrator.snapshots ALTER COLUMN state SET STORAGE EXTERNAL;
CREATE TABLE orchestrator.summaries (
    session  text NOT NULL,
    journal  integer NOT NULL,
    seq      bigint NOT NULL,
    body     text NOT NULL,
    checksum bigint NOT NULL,
    PRIMARY KEY (session, journal)
);
CREATE TABLE orchestrator.pruned (
    number   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    journal  integer NOT NULL,
    used     text NOT NULL,
    checksum bigint NOT NULL
);
CREATE TABLE orchestrator.pruned_sessions (
    journal integer NOT NULL,
    session text NOT NULL,
    PRIMARY KEY (journal, session)
);
CREATE TABLE orchestrator.holds (
    model text PRIMARY KEY,
    until timestamptz NOT NULL
);
CREATE TABLE orchestrator.audit (
    journal integer NOT NULL,
    seq     bigint NOT NULL,
    at      double precision NOT NULL,
    actor   text NOT NULL,
    owner   text NOT NULL,
    action  text NOT NULL,
    target  text NOT NULL,
    outcome text NOT NULL,
    peer    text NOT NULL,
    count   integer NOT NULL,
    hash    text NOT NULL,
    PRIMARY KEY (journal, seq)
);
CREATE TABLE orchestrator.accounts (
    account text NOT NULL,                            -- a budget that several journals share
    journal text NOT NULL,
    part    text NOT NULL,                            -- the usage and reservations of the journal
    PRIMARY KEY (account, journal)
) WITH (fillfactor = 50);
"""

VERSION: Final = 1
"""The version of the tables. Raise it with any change of them."""


def install_schema(connection: "Connection", address: str, cluster: str = "") -> str:
    """Create the tables where there are none, all or nothing, and return the cluster's id;
    blocking.

    An empty `cluster` is any one. Raise `JournalError` if the schema is newer, not ours, or that of
    another cluster.
    """
    version, id_ = _look(connection, address, cluster)
    if version:
        return id_
    with connection.transaction():
        # One process at a time, and the others find what it made.
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        version, id_ = _look(connection, address, cluster)
        if not version:
            connection.execute(_CREATE)
            id_ = secrets.token_hex(8)
            connection.execute(
                "INSERT INTO orchestrator.cluster (version, id, name) VALUES (%s, %s, %s)",
                (VERSION, id_, cluster),
            )
    return id_


def require_schema(connection: "Connection", address: str, cluster: str = "") -> bool:
    """Return whether the tables are there, for who only reads; they are never created. Raise
    `JournalError` if the schema is newer, not ours, or that of another cluster.
    """
    version, _ = _look(connection, address, cluster)
    return bool(version)


def _look(connection: "Connection", address: str, cluster: str) -> tuple[int, str]:
    """Return the version of the tables, 0 if there are none, and the id of the cluster."""
    found = connection.execute(
        "SELECT obj_description(to_regclass('orchestrator.cluster'), 'pg_class'),"
        " (SELECT count(*) FROM pg_class JOIN pg_namespace"
        " ON pg_namespace.oid = relnamespace"
        " WHERE nspname = 'orchestrator' AND relname = ANY(%s))",
        (list(_TABLES),),
    ).fetchone()
    assert found is not None
    mark, tables = found
    if mark != MARK:
        if tables:
            raise JournalError(
                address,
                "its schema orchestrator has tables of another application; use another database",
            )
        return 0, ""
    row = connection.execute("SELECT version, id, name FROM orchestrator.cluster").fetchone()
    if row is None:
        raise JournalError(address, "its table orchestrator.cluster is empty; restore a copy of it")
    version, id_, name = int(str(row[0])), str(row[1]), str(row[2])
    if version != VERSION:
        raise JournalError(address, f"its tables are of version {version}: {NEWER}")
    if cluster and name != cluster:
        owner = f"the cluster {name!r}" if name else "a cluster without a name"
        raise JournalError(
            address,
            f"it belongs to {owner}, not to {cluster!r}: each cluster has a database of its own",
        )
    return version, id_
