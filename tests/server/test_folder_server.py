"""A server of a folder: one journal that is damaged, lost or another's stops nothing but itself."""

import sqlite3
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import httpx2
import pytest
import trio

from orchestrator import JournalError, Machine, Orchestrator, open_orchestrator
from orchestrator.agents import Agent, raising_one_error
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.sandbox.choice import SandboxChoice
from orchestrator.backends import journals_at
from orchestrator.delegation import SessionId
from orchestrator.delegation.events import Entry, SessionOpened
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.kernel.journal.journals import HeldJournal, Journals
from orchestrator.kernel.journal.shards import shard_names
from orchestrator.products.cluster.database.servers import ClusterView, ServerPlace
from orchestrator.products.server.cluster import router
from orchestrator.products.server.cluster.cluster_server import (
    ClusterServer,
    ClusterSettings,
    open_cluster_server,
)
from orchestrator.products.server.cluster.shard_keeper import ShardKeeper
from orchestrator.products.server.keys.changes import add_key
from orchestrator.products.server.keys.file import make_keys_file
from orchestrator.products.server.keys.key import KeyLimits
from orchestrator.products.server.state import Settings
from orchestrator.products.server.transport.listener import Listening
from tests.journal.contract.kit import append, message
from tests.kit import worker
from tests.server.kit import NO_CERTIFICATES, TOKEN

pytestmark = pytest.mark.realtime

WORKER = worker("worker")


@attrs.define
class Disk:
    """Opens orchestrators, or fails as a disk does."""

    damaged: Sequence[str] = ()
    fails: trio.Event = attrs.field(factory=trio.Event)
    """Set: what is open fails."""
    may_open: trio.Event = attrs.field(factory=trio.Event)
    opens: trio.Event = attrs.field(factory=trio.Event)
    said: list[str] = attrs.field(factory=list[str])

    @asynccontextmanager
    async def open(self, held: HeldJournal) -> AsyncGenerator[Orchestrator]:
        if held.name in self.damaged:
            raise JournalError(held.name, "it is damaged")
        fails = self.fails
        if fails.is_set():
            fails = trio.Event()
            self.opens.set()
            await self.may_open.wait()

        async def fail() -> None:
            await fails.wait()
            raise JournalError(held.name, "the disk is gone")

        async with open_orchestrator(held.journal, machine=Machine(environ={})) as orchestrator:
            with raising_one_error():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(fail)
                    yield orchestrator
                    nursery.cancel_scope.cancel()


@attrs.frozen
class Served:
    """A server of a folder, and a client of it."""

    cluster: ClusterServer
    http: httpx2.AsyncClient

    @property
    def names(self) -> list[str]:
        return [it.name for it in self.cluster.server.state.journals]


@asynccontextmanager
async def serving(
    journals: Journals, disk: Disk, keys: Path | None = None, agents: Sequence[Agent] = (WORKER,)
) -> AsyncGenerator[Served]:
    settings = ClusterSettings(
        secret=b"secret" * 8,
        open_orchestrator=disk.open,
        clock=time.time,
        redactor=Redactor([]),
        sandbox=SandboxChoice("none"),
        report=disk.said.append,
        host="",
    )
    async with (
        open_cluster_server(
            journals,
            {it.name: it for it in agents},
            Settings(token=TOKEN, may_default_approve=True, keys=keys),
            Listening(port=0),
            push={},
            cluster=settings,
        ) as cluster,
        httpx2.AsyncClient(
            base_url=cluster.server.addresses[0],
            headers={"authorization": f"Bearer {TOKEN}"},
            timeout=30,
            verify=NO_CERTIFICATES,
        ) as http,
    ):
        yield Served(cluster, http)


@pytest.fixture
def journals(tmp_path: Path) -> Journals:
    return journals_at(f"{tmp_path / 'runs'}/")


async def test_a_damaged_journal_with_a_waiting_session_stops_no_server(journals: Journals) -> None:
    session = SessionId("r_0123456789abcdef")
    begun = SessionOpened(session, "worker", kind=SessionKind.RUN)
    async with journals.open_free() as held:
        append(held.journal, [Entry(0, 0.5, session, begun), message(session)])
        await held.journal.wait_durable(2)
    disk = Disk(damaged=["journal.db"])

    async with serving(journals, disk) as served:
        assert served.names == ["journal-2.db"]
        assert (await served.http.get("/ready")).status_code == 200
    assert disk.said == ["journal.db cannot be taken: it is damaged"]


async def test_a_server_replaces_its_failed_only_journal(journals: Journals) -> None:
    disk = Disk()
    async with serving(journals, disk) as served:
        disk.fails.set()
        await disk.opens.wait()
        ready = await served.http.get("/ready")
        assert (ready.status_code, ready.json()["status"]) == (503, "no journal")
        disk.may_open.set()
        with trio.fail_after(5):
            while not served.names:
                await trio.lowlevel.checkpoint()
        assert (await served.http.get("/ready")).status_code == 200
        body = {"model": "worker", "input": "go"}
        begun = await served.http.post("/v1/runs", json=body)
        assert begun.status_code == 202, begun.text
    assert disk.said == ["journal.db failed and is let go: the disk is gone"]


async def test_a_server_that_drains_takes_no_journal_for_a_client_that_asks(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "WAIT_SECONDS", 0)
    async with open_orchestrator(journals.address), open_orchestrator(journals.address) as second:
        run = await second.run(WORKER, "go")
    async with serving(journals, Disk()) as served:
        served.cluster.server.state.is_draining = True
        answer = await served.http.get(f"/v1/runs/{run.id}")
        assert answer.json()["error"]["code"] == "no_writer"
        assert served.names == ["journal.db"]


async def test_a_run_of_another_owner_is_unknown_in_every_journal(
    journals: Journals, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.json"
    make_keys_file(keys)
    _, token = add_key(keys, "ann", now=time.time())
    ann = {"authorization": f"Bearer {token}"}
    async with open_orchestrator(journals.address) as orchestrator:
        run = await orchestrator.run(WORKER, "go")
        async with serving(journals, Disk(), keys) as served:

            async def ask(path: str, **headers: str) -> tuple[int, str]:
                answer = await served.http.get(path, headers=headers)
                error = answer.json()["error"]
                return answer.status_code, error["message"].replace(run.id, "ID")

            unknown = "r_0123456789abcdef"
            status, said = await ask(f"/v1/runs/{unknown}", **ann)
            assert await ask(f"/v1/runs/{run.id}", **ann) == (404, said.replace(unknown, "ID"))
            assert status == 404
            assert (await ask(f"/v1/tasks/{run.id}", **ann))[0] == 404
            seen = await served.http.get(f"/v1/runs/{run.id}")
            assert (seen.status_code, seen.json()["id"]) == (200, run.id)


async def test_pruning_includes_unused_journals_and_excludes_those_in_use(
    journals: Journals,
) -> None:
    async with (
        open_orchestrator(journals.address) as first,
        open_orchestrator(journals.address) as second,
        open_orchestrator(journals.address) as third,
    ):
        for orchestrator in (first, second, third):
            await orchestrator.run(WORKER, "go")
    body = {"older_than": 0}
    async with serving(journals, Disk()) as served, open_orchestrator(journals.address):
        assert served.names == ["journal.db"]
        path = "/v1/runs/prune"
        dry = (await served.http.post(path, json={**body, "dry_run": True})).json()
        told: list[str] = []
        read = served.cluster.server.state.journals.first.read
        with read.watch_pruning(lambda: told.append("pruned")):
            gone = (await served.http.post(path, json=body)).json()
        left = (await served.http.get("/v1/runs")).json()["data"]
    for found in (dry, gone):
        assert (found["runs"], found["journals_in_use"]) == (2, 1)
    assert len(left) == 1
    # When its own journal was pruned, and when all were.
    assert told == ["pruned", "pruned"]


async def test_a_key_causes_no_lease_of_a_journal_that_it_cannot_see(
    journals: Journals, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.json"
    make_keys_file(keys)
    _, token = add_key(keys, "ann", now=time.time())
    async with open_orchestrator(journals.address), journals.open_free() as held:
        append(held.journal, [message("r_1")])
        await held.journal.wait_durable(1)
    async with serving(journals, Disk(), keys) as served:
        ann = {"authorization": f"Bearer {token}"}
        answer = await served.http.get("/v1/runs/r_1", headers=ann)
        assert answer.status_code == 404
        assert served.names == ["journal.db"]


async def test_unreadable_runs_are_left_out_of_lists_and_logged(
    journals: Journals, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        open_orchestrator(journals.address) as one,
        open_orchestrator(journals.address) as two,
        open_orchestrator(journals.address) as three,
    ):
        good = await one.run(WORKER, "go")
        bad = await two.run(WORKER, "go")
        await three.run(WORKER, "go")
    files = [journals.store(name).file for name in journals.names()]
    assert files[1] is not None
    assert files[2] is not None
    with sqlite3.connect(files[1]) as connection:
        connection.execute("UPDATE entries SET body = '{' WHERE session = ?", [bad.id])
    connection.close()
    files[2].write_bytes(b"no journal" * 1000)

    async with serving(journals, Disk()) as served:
        listed = await served.http.get("/v1/runs")
        assert listed.status_code == 200, listed.text
        assert [it["id"] for it in listed.json()["data"]] == [good.id]
        body = {"answer": "deny"}
        answer = await served.http.post("/v1/approvals/a_none", json=body)
        assert answer.status_code == 404, answer.text
    assert f"{bad.id} is left out of lists" in caplog.text
    assert "journal-3.db is left out of lists" in caplog.text


async def test_the_limits_of_a_key_are_counted_in_the_first_journal_of_a_folder(
    journals: Journals, tmp_path: Path
) -> None:
    """A server that begins with another one, because a run holds the first, begins no new day."""
    keys = tmp_path / "keys.json"
    make_keys_file(keys)
    limits = KeyLimits(tokens_per_day=1_000_000)
    _, token = add_key(keys, "ann", now=time.time(), limits=limits)
    ann = {"authorization": f"Bearer {token}"}
    body = {"model": "worker", "input": "go"}

    async def begin(served: Served, **headers: str) -> tuple[int, Any]:
        answer = await served.http.post("/v1/runs", json=body, headers=headers)
        return answer.status_code, answer.json()

    may_end, has_ended = trio.Event(), trio.Event()

    async def write_first(task_status: trio.TaskStatus[None]) -> None:
        async with open_orchestrator(journals.address):
            task_status.started()
            await may_end.wait()
        has_ended.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(write_first)
        async with serving(journals, Disk(), keys) as served:
            assert served.names == ["journal-2.db"]
            for more in ({}, {"idempotency-key": "k"}):
                status, refused = await begin(served, **ann, **more)
                assert (status, refused["error"]["code"]) == (503, "no_writer")
            status, other = await begin(served)
            assert status == 202
            may_end.set()
            await has_ended.wait()
            status, begun = await begin(served, **ann)
            assert status == 202, begun
            assert served.names == ["journal-2.db", "journal.db"]
            assert journals.find(SessionId(begun["id"])) == "journal.db"
            assert journals.find(SessionId(other["id"])) == "journal-2.db"


class Holder:
    """Takes all shards but one."""

    def __init__(self, damaged: str) -> None:
        self.damaged = damaged
        self.names: list[str] = []
        self.tried: list[str] = []

    @property
    def staying(self) -> list[Any]:
        return [SimpleNamespace(name=it, orchestrator=self) for it in self.names]

    working = 0

    def on_released(self, receive: object) -> None:
        pass

    async def take(self, open_journal: object, name: str) -> None:
        await trio.lowlevel.checkpoint()
        self.tried.append(name)
        if name == self.damaged:
            raise JournalError(name, "it is damaged")
        self.names.append(name)


async def test_a_damaged_shard_keeps_no_server_from_starting_and_is_tried_last() -> None:
    names = shard_names(4)
    holder, said = Holder(names[0]), list[str]()
    view = ClusterView(servers={it: ServerPlace("", "", "") for it in ("me", "other")}, writers={})

    class Database:
        async def run(self, work: object) -> ClusterView:
            await trio.lowlevel.checkpoint()
            return view

    def ignore(given: object) -> object:
        return given

    keeper = ShardKeeper(
        cast("Any", SimpleNamespace(store=ignore)),
        cast("Any", holder),
        cast("Any", SimpleNamespace(end_stale=ignore)),
        cast("Any", Database()),
        id_="me",
        address="http://me",
        host="",
        shards=4,
        lease=9,
        grace=0,
        report=said.append,
    )
    await keeper.begin()
    assert said == [f"{names[0]} cannot be taken: it is damaged"]
    assert sorted(holder.tried) == sorted(names[:2])
    holder.tried.clear()
    await keeper.begin()
    assert holder.tried == [names[2]]
    await keeper.leave()
    assert not await keeper.take("journal.db")
