"""A server that is cut off from the database denies nothing, shows nothing old, and says so."""

from collections.abc import AsyncGenerator
from pathlib import Path

import attrs
import httpx2
import pytest
import trio

from orchestrator import JournalInUseError, MemoryJournal
from tests.kit import worker
from tests.postgres import PostgresServer
from tests.server.cluster_kit import Client, Cluster, Report, open_cluster
from tests.server.database_proxy import WRITERS, DatabaseProxy, serve_database_proxy
from tests.server.kit import serving
from tests.server.server_process import PATIENCE

pytestmark = pytest.mark.realtime

LEASE = 3
ANSWER_SECONDS = 5
SLACK = 4
"""For a machine that is busy."""


@attrs.frozen
class Parted:
    """Two servers on one database; a proxy stands between the database and the first one."""

    proxy: DatabaseProxy
    cluster: Cluster
    cut: Client
    whole: Client

    async def wait_taken_over(self, run: str) -> None:
        """Wait until the second server answers for a run of the first one."""
        await wait_for(self.whole, f"/v1/runs/{run}")


async def wait_for(client: Client, path: str) -> None:
    """Ask a server until it answers with 200."""
    with trio.fail_after(PATIENCE):
        while (await client.http.get(path)).status_code != 200:  # noqa: ASYNC110 (a process)
            await trio.sleep(0.1)


@pytest.fixture
async def parted(
    postgres: str, postgres_server: PostgresServer, tmp_path: Path
) -> AsyncGenerator[Parted]:
    database = postgres.partition("@/")[2].partition("?")[0]
    direct = f"{postgres}&lease={LEASE}"
    async with trio.open_nursery() as nursery, open_cluster(tmp_path, direct) as cluster:
        proxy = await nursery.start(serve_database_proxy, postgres_server.folder)
        through = f"postgresql://postgres@127.0.0.1:{proxy.port}/{database}?lease={LEASE}"
        cut = await cluster.start(journal=through)
        yield Parted(proxy, cluster, cut, await cluster.start())
        proxy.open()
        nursery.cancel_scope.cancel()


async def begin_at(client: Client, many: int) -> list[str]:
    """Begin runs, and return their ids: some in each shard that the server holds."""
    return [await client.begin("quick", f"{number}") for number in range(many)]


async def test_a_former_writer_denies_no_acknowledged_run(parted: Parted) -> None:
    first = await parted.cut.begin("quick", "before")
    parted.proxy.hold_all()
    await parted.wait_taken_over(first)
    runs = await begin_at(parted.whole, 12)
    # The ways of readers open first, as after a real outage: TCP backs off.
    parted.proxy.hold_only(WRITERS)
    seen: set[int] = set()
    with trio.move_on_after(2):
        while True:
            for run in runs:
                seen.add((await parted.cut.http.get(f"/v1/runs/{run}")).status_code)
    parted.proxy.open()
    assert seen <= {200, 503}
    for run in runs:
        await wait_for(parted.cut, f"/v1/runs/{run}")


async def begin_here(parted: Parted) -> tuple[str, Report]:
    """Begin a run of the first server: the shard of a new session may be at the other one."""
    while True:
        run = await parted.cut.begin("editor", "go on")
        call = await parted.cluster.oracle.next()
        if call.process == parted.cut.server.pid:
            return run, call
        await call.answer("elsewhere")


async def test_a_server_past_its_lease_shows_no_old_state(parted: Parted) -> None:
    run, call = await begin_here(parted)
    parted.proxy.hold_all()
    await parted.wait_taken_over(run)
    again = await parted.cluster.oracle.next()
    assert again.process == parted.whole.server.pid
    await again.answer("elsewhere")
    assert (await parted.whole.end_of(run))["status"] == "completed"
    with trio.fail_after(ANSWER_SECONDS + SLACK):
        answer = await parted.cut.http.get(f"/v1/runs/{run}")
    assert answer.status_code == 503, answer.text
    assert answer.headers["retry-after"]
    await call.answer("of the past")


async def test_requests_do_not_wait_long_for_a_silent_database(parted: Parted) -> None:
    run = await parted.cut.begin("quick", "before")
    assert (await parted.cut.http.get("/ready")).status_code == 200
    parted.proxy.hold_all()
    await trio.sleep(LEASE)
    ready = await parted.cut.http.get("/ready")
    assert (ready.status_code, ready.json()["status"]) == (503, "no database")
    assert ready.headers["retry-after"]
    answers: dict[str, httpx2.Response] = {}

    async def ask(method: str, path: str, body: object = None) -> None:
        answers[f"{method} {path}"] = await parted.cut.http.request(method, path, json=body)

    with trio.fail_after(2 * ANSWER_SECONDS + SLACK):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "POST", "/v1/runs", {"model": "quick", "input": ""})
            said = [{"role": "user", "content": "hello"}]
            chat = {"model": "quick", "messages": said}
            nursery.start_soon(ask, "POST", "/v1/chat/completions", chat)
            nursery.start_soon(ask, "GET", "/v1/runs")
            nursery.start_soon(ask, "GET", f"/v1/runs/{run}")
            nursery.start_soon(ask, "GET", "/v1/runs/r_0123456789abcdef")
            nursery.start_soon(ask, "GET", "/v1/tasks/t_0123456789abcdef")
    for asked, answer in answers.items():
        if asked.startswith("POST") and answer.is_success:
            # The shard of a new session was at the other server at the last look: forwarded there.
            forwarded = f"/v1/runs/{answer.headers['x-run-id']}"
            assert (await parted.whole.http.get(forwarded)).status_code == 200, asked
        else:
            assert answer.status_code == 503, asked
            assert answer.headers["retry-after"], asked
    parted.proxy.open()
    await wait_for(parted.cut, "/ready")


async def test_a_count_of_old_runs_does_not_wait_long_for_a_silent_database(parted: Parted) -> None:
    await parted.cut.begin("quick", "before")
    parted.proxy.hold_all()
    body = {"older_than": 0, "dry_run": True}
    with trio.fail_after(2 * ANSWER_SECONDS + SLACK):
        answer = await parted.cut.http.post("/v1/runs/prune", json=body)
    assert answer.status_code == 503, answer.text
    parted.proxy.open()


class LostJournal(MemoryJournal):
    """A journal that another process takes over between the facts and the audit of a request."""

    is_lost = False

    async def wait_audited(self) -> None:
        await super().wait_audited()
        if self.is_lost:
            raise JournalInUseError("here", "process 4711 is writing it")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_journal_lost_before_the_audit_is_no_fault_of_the_server(stream: bool) -> None:
    journal = LostJournal()
    async with serving(worker("fine"), journal=journal) as served:
        journal.is_lost = True
        runs = await served.http.post("/v1/runs", json={"model": "fine", "input": "go"})
        messages = [{"role": "user", "content": "go"}]
        body = {"model": "fine", "messages": messages, "stream": stream}
        chat = await served.http.post("/v1/chat/completions", json=body)
        journal.is_lost = False
    for answer in (runs, chat):
        assert answer.status_code == 503, answer.text
        assert answer.json()["error"]["code"] == "journal_moved"
        assert answer.headers["retry-after"]
