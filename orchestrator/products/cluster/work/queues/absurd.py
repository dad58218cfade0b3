"""Absurd as the work queue: SQL functions in the database of the journals, claims are leases.

Each place is a queue of Absurd, and each attempt of a dispatch a task of it without steps. A claim
is renewed while its receiver lives; one that has run out is claimed by another worker.
"""

import math
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, LiteralString, cast
from uuid import UUID

import attrs
import msgspec
import trio

from orchestrator.agents import raising_one_error
from orchestrator.ports.errors import JournalError, JournalInUseError
from orchestrator.products.cluster.database.database import Database
from orchestrator.products.cluster.database.wakeups import POLL_SECONDS, Bell, Wakeups, channel
from orchestrator.products.cluster.work.dispatch import Dispatch, DispatchId, Tenure, WorkerId
from orchestrator.products.cluster.work.work_queue import Delivery, WorkQueue

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

VERSION: Final = "0.5.1"
_LOCK: Final = 7_340_811_906_254_116
RELEASE_SECONDS: Final = 2.0
KEEP_SECONDS: Final = 600
"""How long ended dispatches are kept, to recognize a repeated one."""
SWEEP_SECONDS: Final = 60.0

_SEND: Final[LiteralString] = """
with mine as materialized (
    select from orchestrator.journals where name = %(journal)s and epoch = %(epoch)s
), sent as (
    select task.created
    from mine, unnest(%(queues)s::text[], %(params)s::jsonb[], %(keys)s::text[])
         as new (queue, params, key)
    cross join lateral absurd.spawn_task(
        new.queue, 'dispatch', new.params,
        jsonb_build_object('idempotency_key', new.key)) as task
), told as (
    select count(pg_notify(channel, '')) as count
    from mine, unnest(%(channels)s::text[]) as it (channel)
)
select (select count(*) from mine), (select count(*) from sent), told.count from told
"""
# A new writer may rely on what is queued: it does not get the journal in the midst of this.
_WITHDRAW: Final[LiteralString] = """
with mine as materialized (
    select from orchestrator.journals where name = %(journal)s and epoch = %(epoch)s
    for share
), withdrawn as (
    select absurd.cancel_task(%(queue)s, task.task_id)
    from mine, absurd.{tasks} as task
    where task.idempotency_key = any(%(keys)s) and task.state = 'pending'
)
select (select count(*) from mine), (select count(*) from withdrawn)
"""
# What is claimed by the dead is claimed again: a claim is a lease.
_OPEN: Final[LiteralString] = """
select idempotency_key from absurd.{tasks}
where idempotency_key = any(%(keys)s) and state in ('pending', 'running', 'sleeping')
"""
_CLAIM: Final[LiteralString] = "select run_id, params from absurd.claim_task(%s, %s, %s, %s)"
# Whatever is not ours any more is left out: the functions would refuse the whole batch.
_RENEW: Final[LiteralString] = """
select absurd.extend_claim(%(queue)s, held.run_id, %(seconds)s)
from (select run_id from absurd.{runs}
      where run_id = any(%(ids)s) and state = 'running' and claimed_by = %(worker)s
      order by run_id for update) as held
"""
_FINISH: Final[LiteralString] = """
select absurd.complete_run(%(queue)s, held.run_id)
from (select run_id from absurd.{runs}
      where run_id = any(%(ids)s) and state = 'running' and claimed_by = %(worker)s
      order by run_id for update) as held
"""
_RELEASE: Final[LiteralString] = """
with released as (
    select absurd.fail_run(%(queue)s, held.run_id, '{{"name": "released"}}',
                           absurd.current_time())
    from (select run_id from absurd.{runs}
          where state = 'running' and claimed_by = %(worker)s
          order by run_id for update) as held
)
select count(*), pg_notify(%(channel)s, '') from released
"""


class _Params(msgspec.Struct):
    """The parameters of a task of Absurd."""

    id: DispatchId
    attempt: int
    journal: str


@attrs.frozen
class _Claim:
    run: UUID
    dispatch: Dispatch


def _queue_name(place: str) -> str:
    """Return the queue of a place: readable if the place is, else a digest. Tables are named so."""
    if re.fullmatch(r"[a-z0-9_.-]{1,40}", place):
        return f"orchestrator_{place}"
    return f"orchestrator#{blake2b(place.encode(), digest_size=16).hexdigest()}"


def _key(dispatch: Dispatch) -> str:
    return f"{dispatch.id}#{dispatch.attempt}"


class _AbsurdQueue:
    def __init__(self, database: Database, wakeups: Wakeups, lease: float) -> None:
        self._database = database
        self._wakeups = wakeups
        self._lease = max(1, math.ceil(lease))
        self._known: set[str] = set()

    async def send(self, writer: Tenure, dispatches: Sequence[Dispatch]) -> None:
        places = {it.place for it in dispatches}
        for place in places:
            await self._create(place)
        parameters = {
            "journal": writer.journal,
            "epoch": writer.epoch,
            "queues": [_queue_name(it.place) for it in dispatches],
            "params": [
                msgspec.json.encode(_Params(it.id, it.attempt, it.journal)).decode()
                for it in dispatches
            ],
            "keys": [_key(it) for it in dispatches],
            "channels": [channel("place", it) for it in places],
        }
        rows = await self._database.run(lambda it: it.execute(_SEND, parameters).fetchall())
        _require_mine(writer, rows)

    async def withdraw(self, writer: Tenure, dispatches: Sequence[Dispatch]) -> None:
        await trio.lowlevel.checkpoint()
        for place in {it.place for it in dispatches}:
            await self._create(place)
            parameters = {
                "journal": writer.journal,
                "epoch": writer.epoch,
                "queue": _queue_name(place),
                "keys": [_key(it) for it in dispatches if it.place == place],
            }
            rows = await self._database.run(partial(_execute, _WITHDRAW, parameters))
            _require_mine(writer, rows)

    async def stranded(
        self, dispatches: Sequence[Dispatch], live: AbstractSet[WorkerId]
    ) -> Sequence[Dispatch]:
        await trio.lowlevel.checkpoint()
        open_keys: set[object] = set()
        for place in {it.place for it in dispatches}:
            await self._create(place)
            parameters = {
                "queue": _queue_name(place),
                "keys": [_key(it) for it in dispatches if it.place == place],
            }
            rows = await self._database.run(partial(_execute, _OPEN, parameters))
            open_keys.update(key for (key,) in rows)
        return [it for it in dispatches if _key(it) not in open_keys]

    @asynccontextmanager
    async def receive(
        self, worker: WorkerId, place: str, slots: int
    ) -> AsyncGenerator[AsyncIterator[Delivery]]:
        await self._create(place)
        with self._wakeups.bell(channel("place", place)) as bell, raising_one_error():
            claims = _Claims(self._database, bell, worker, place, slots=slots, lease=self._lease)
            try:
                # This nursery owns what claims, and what renews claims.
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(claims.claim_forever)
                    nursery.start_soon(claims.renew_forever)
                    yield claims
                    nursery.cancel_scope.cancel()
            finally:
                with trio.move_on_after(RELEASE_SECONDS, shield=True):
                    await claims.release()

    async def _create(self, place: str) -> None:
        if place not in self._known:
            await self._database.run(partial(_create_queue, _queue_name(place)))
            self._known.add(place)
        else:
            await trio.lowlevel.checkpoint()


class _Claims:
    """The claims of one worker at one place."""

    def __init__(
        self,
        database: Database,
        bell: Bell,
        worker: WorkerId,
        place: str,
        *,
        slots: int,
        lease: int,
    ) -> None:
        self._database = database
        self._bell = bell
        self._worker = worker
        self._place = place
        self._queue = _queue_name(place)
        self._slots = slots
        self._lease = lease
        self._held: set[UUID] = set()
        self._waiting: deque[_Claim] = deque()
        self._arrived = trio.Event()
        self._finished: list[UUID] = []
        self._finishes = trio.Lock()

    def __aiter__(self) -> "_Claims":
        return self

    async def __anext__(self) -> Delivery:
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            self._arrived = trio.Event()
            await self._arrived.wait()
        return _AbsurdDelivery(self, self._waiting.popleft())

    async def claim_forever(self) -> None:
        while True:
            free = self._slots - len(self._held)
            claims = await self._claim(free) if free > 0 else ()
            for claim in claims:
                self._held.add(claim.run)
                self._waiting.append(claim)
            if claims:
                self._arrived.set()
            # Less than what was asked for is all there is.
            all_taken = len(claims) < free or not free
            await self._bell.wait(POLL_SECONDS if all_taken else 0)

    async def _claim(self, quantity: int) -> Sequence[_Claim]:
        parameters = (self._queue, self._worker, self._lease, quantity)
        rows = await self._database.run(lambda it: it.execute(_CLAIM, parameters).fetchall())
        return [_Claim(cast("UUID", run), self._dispatch(params)) for run, params in rows]

    def _dispatch(self, params: object) -> Dispatch:
        it = msgspec.convert(params, _Params)
        return Dispatch(it.id, it.attempt, it.journal, self._place)

    async def renew_forever(self) -> None:
        swept = trio.current_time()
        while True:
            await trio.sleep(self._lease / 3)
            if self._held:
                await self._execute(_RENEW, ids=list(self._held), seconds=self._lease)
            if trio.current_time() > swept + SWEEP_SECONDS:
                swept = trio.current_time()
                await self._execute(
                    "select absurd.cleanup_tasks(%(queue)s, %(keep)s, 10000)", keep=KEEP_SECONDS
                )

    async def finish(self, run: UUID) -> None:
        """Complete a claim, and with it all others that end at the same time."""
        self._held.discard(run)
        self._finished.append(run)
        self._bell.ring()
        async with self._finishes:
            if run in self._finished:
                runs = self._finished
                self._finished = []
                await self._execute(_FINISH, ids=runs)

    async def release(self) -> None:
        """Give back the claimed dispatches, also those whose answer was lost."""
        await self._execute(_RELEASE, channel=channel("place", self._place))

    async def _execute(self, statement: LiteralString, **parameters: object) -> None:
        await self._database.run(
            partial(
                _execute, statement, {"queue": self._queue, "worker": self._worker, **parameters}
            )
        )


class _AbsurdDelivery:
    def __init__(self, claims: _Claims, claim: _Claim) -> None:
        self._claims = claims
        self._claim = claim

    @property
    def dispatch(self) -> Dispatch:
        return self._claim.dispatch

    async def finish(self) -> None:
        await self._claims.finish(self._claim.run)


def _execute(
    statement: LiteralString, parameters: dict[str, Any], connection: "Connection"
) -> list[tuple[object, ...]]:
    from psycopg import sql

    queue = parameters["queue"]
    filled = sql.SQL(statement).format(
        runs=sql.Identifier(f"r_{queue}"), tasks=sql.Identifier(f"t_{queue}")
    )
    return connection.execute(filled, parameters).fetchall()


def _require_mine(writer: Tenure, rows: Sequence[tuple[object, ...]]) -> None:
    if not rows[0][0]:
        raise JournalInUseError(writer.journal, "another process has taken it over")


def _create_queue(queue: str, connection: "Connection") -> None:
    known = "select from absurd.queues where queue_name = %s"
    if connection.execute(known, [queue]).fetchone() is None:
        with connection.transaction():
            connection.execute("select pg_advisory_xact_lock(%s)", [_LOCK])
            connection.execute("select absurd.create_queue(%s)", [queue])


def _install(address: str, connection: "Connection") -> None:
    """Install Absurd where it is missing; raise `JournalError` for another version; blocking."""
    # The catalog itself: what `to_regproc` has not found once it does not find while it waits.
    missing = (
        "select not exists (select from pg_proc join pg_namespace on pronamespace ="
        " pg_namespace.oid where nspname = 'absurd' and proname = 'get_schema_version')"
    )
    if connection.execute(missing).fetchone() == (True,):
        with connection.transaction():
            connection.execute("select pg_advisory_xact_lock(%s)", [_LOCK])
            if connection.execute(missing).fetchone() == (True,):
                connection.execute(_schema_sql(address))
    found = connection.execute("select absurd.get_schema_version()").fetchone()
    if found != (VERSION,):
        version = None if found is None else found[0]
        raise JournalError(
            address,
            f"Absurd {version} is installed there, and workers need Absurd {VERSION}: run"
            f" `absurdctl migrate` of that version, or use another database",
        )


def _schema_sql(address: str) -> bytes:
    try:
        import absurdctl  # type: ignore[import-untyped]  # an extra
    except ImportError as exc:
        raise JournalError(
            address,
            "workers need Absurd, which is not installed there:"
            " pip install 'delegation-orchestrator[workers]'",
        ) from exc
    return cast("str", absurdctl.BUNDLED_SCHEMA_SQL).encode()


@asynccontextmanager
async def open_absurd_queue(
    database: Database, wakeups: Wakeups, *, lease: float
) -> AsyncGenerator[WorkQueue]:
    """Use Absurd in a database, installed if it is missing; the lease is rounded up."""
    await database.run(partial(_install, database.address))
    yield _AbsurdQueue(database, wakeups, lease)
