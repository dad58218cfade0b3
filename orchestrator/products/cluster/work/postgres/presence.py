"""The list of live workers in Postgres, by the clock of the database."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, LiteralString, cast

import trio

from orchestrator.products.cluster.database.database import Database
from orchestrator.products.cluster.work.dispatch import ExecutionId, WorkerId
from orchestrator.products.cluster.work.presence import Beat, WorkerSeen

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

BEATS_A_SWEEP: Final = 100
# Nothing hangs on when a beat is on the disk: another one follows.
_BEAT: Final[LiteralString] = """
insert into orchestrator.workers
    (id, host, place, slots, version, executions, beats, since, heard, promised)
values (%(id)s, %(host)s, %(place)s, %(slots)s, %(version)s, %(executions)s, 1,
        clock_timestamp(), clock_timestamp(), %(promised)s)
on conflict (id) do update set
    host = excluded.host, place = excluded.place, slots = excluded.slots,
    version = excluded.version, executions = excluded.executions, beats = workers.beats + 1,
    heard = excluded.heard, promised = excluded.promised
"""
# The dead are shown for an hour. What they said stays until a writer has heard it, or the journal
# has had none for a day.
_SWEEP: Final[LiteralString] = """
with dead as (
    delete from orchestrator.workers
    where heard + make_interval(secs => promised) < clock_timestamp() - interval '1 hour'
)
delete from orchestrator.letters
where worker not in (select id from orchestrator.workers)
  and (answer is not null or journal not in (
      select name from orchestrator.journals where until > clock_timestamp()
      or last_at > extract(epoch from clock_timestamp() - interval '1 day')))
"""
_LEAVE: Final[LiteralString] = "delete from orchestrator.workers where id = %(id)s"
_WORKERS: Final[LiteralString] = """
select id, host, place, slots, version, executions, beats,
       extract(epoch from clock_timestamp() - since)::double precision,
       extract(epoch from clock_timestamp() - heard)::double precision, promised
from orchestrator.workers order by since, id
"""


class PostgresPresence:
    """Presence in a table of the database that the workers share."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._beats = 0

    async def beat(self, beat: Beat, *, seconds: float) -> None:
        self._beats += 1
        sweeps = self._beats % BEATS_A_SWEEP == 1
        await self._database.run(
            partial(
                _beat,
                sweeps,
                {
                    "id": beat.worker,
                    "host": beat.host,
                    "place": beat.place,
                    "slots": beat.slots,
                    "version": beat.version,
                    "executions": sorted(beat.executions),
                    "promised": seconds,
                },
            )
        )

    async def leave(self, worker: WorkerId) -> None:
        await self._database.run(lambda it: it.execute(_LEAVE, {"id": worker}))

    async def workers(self) -> Sequence[WorkerSeen]:
        rows = await self._database.run(lambda it: it.execute(_WORKERS).fetchall())
        connected = trio.current_time() - self._database.connected_at
        return [_seen(row, connected) for row in rows]


def _beat(sweeps: bool, parameters: dict[str, object], connection: "Connection") -> None:
    with connection.transaction():
        connection.execute("set local synchronous_commit = off")
        connection.execute(_BEAT, parameters)
    if sweeps:
        connection.execute(_SWEEP)


def _seen(row: tuple[object, ...], connected: float) -> WorkerSeen:
    id_, host, place, slots, version, executions, beats, since, silent, promised = cast(
        "tuple[Any, ...]", row
    )
    beat = Beat(
        worker=WorkerId(id_),
        host=host,
        place=place,
        slots=slots,
        version=version,
        executions=frozenset(map(ExecutionId, executions)),
    )
    return WorkerSeen(
        beat=beat,
        beats=beats,
        since=since,
        silent=silent,
        promised=promised,
        # While we were away from the database, they may have been away too.
        alive=silent <= promised or connected <= promised,
    )
