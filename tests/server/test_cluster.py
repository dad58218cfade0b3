"""Several servers with the same journals: whichever is asked, the writer of a session answers."""

import os
import signal
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx2
import pytest
import trio

from orchestrator.kernel.journal.shards import shard_of
from orchestrator.products.server.console.sign_in import HEADER as PAGE_SECRET
from orchestrator.products.server.keys.changes import add_key
from orchestrator.products.server.keys.file import FILE, make_keys_file
from orchestrator.products.server.keys.key import KeyLimits
from tests.postgres import PostgresServer
from tests.server.cluster_kit import SHARDS, TOKEN, Client, Cluster, open_cluster
from tests.server.server_process import PATIENCE, ROOT

pytestmark = pytest.mark.realtime


LEASE = 2


@pytest.fixture(params=["folder", "postgres"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Cluster]:
    if request.param == "postgres":
        url = request.getfixturevalue("postgres")
        journal = f"{url}{'&' if '?' in url else '?'}lease={LEASE}"
    else:
        journal = f"{tmp_path / 'journals'}/"
    async with open_cluster(tmp_path, journal) as opened:
        yield opened


async def test_any_server_answers_for_all_sessions(cluster: Cluster) -> None:
    first, second = await cluster.start(), await cluster.start()
    oracle = cluster.oracle

    run = await first.begin("editor", "look", **{"idempotency-key": "once"})
    call = await oracle.next()
    again = await second.begin("editor", "look", **{"idempotency-key": "once"})
    assert again == run, "the key finds what it made at the other server"
    tree = await second.get(f"/v1/runs/{run}/tree")
    task = tree["nodes"][-1]["id"]
    assert (await second.get(f"/v1/tasks/{task}"))["run"] == run
    await call.answer("yes")
    assert (await second.end_of(run))["output"] == "the helper has ended"

    other = await second.begin("quick", "go")
    for client in (first, second):
        await client.end_of(other)
        listed = [it["id"] for it in (await client.get("/v1/runs"))["data"]]
        assert listed == [other, run], "newest first, whichever journal has it"
        page = await client.get("/v1/runs?limit=1")
        rest = await client.get(f"/v1/runs?after={page['last_id']}")
        assert [it["id"] for it in page["data"] + rest["data"]] == [other, run]
        missing = await client.http.get("/v1/runs/r_0123456789abcdef")
        assert missing.status_code == 404


async def test_a_person_in_the_console_reaches_the_sessions_of_all_servers(
    cluster: Cluster,
) -> None:
    first, second = await cluster.start(), await cluster.start()
    run = await first.begin("editor", "look")
    call = await cluster.oracle.next()
    for client in (first, second):
        own = {"sec-fetch-site": "same-origin", "origin": client.server.url}
        async with httpx2.AsyncClient(base_url=client.server.url, headers=own) as page:
            signed_in = await page.post("/console/login", json={"token": TOKEN})
            page.headers[PAGE_SECRET] = signed_in.json()["secret"]
            shown = await page.get(f"/v1/runs/{run}")
            assert shown.status_code == 200, shown.text
            foreign = {"origin": "http://evil.example"}
            path = f"/v1/runs/{run}/cancel"
            assert (await page.post(path, headers=foreign)).status_code == 403
            assert (await page.post("/console/logout")).status_code == 204
            assert (await page.get(f"/v1/runs/{run}")).status_code == 401
    await call.answer("yes")


async def test_a_conversation_goes_on_at_any_server(cluster: Cluster) -> None:
    """Its responses are in its journal, whichever server is asked, and lock it for all."""
    first, second = await cluster.start(), await cluster.start()
    made = await first.http.post("/v1/conversations", json={"metadata": {"a": "b"}})
    id_ = made.json()["id"]
    body = {"input": "look", "conversation": id_}

    begun = await second.http.post(
        "/v1/responses", json={"model": "helper", "background": True, **body}
    )
    assert begun.status_code == 200, begun.text
    call = await cluster.oracle.next()
    for client in (first, second):
        locked = await client.http.post("/v1/responses", json={"model": "quick", **body})
        assert locked.json()["error"]["code"] == "conversation_locked"
    await call.answer("yes")
    await second.end_of(begun.json()["run"])
    for number, client in enumerate((first, second)):
        for _ in range(2):
            answer = await client.http.post(
                "/v1/responses",
                json={"model": "quick", **body},
                headers={"idempotency-key": f"key {number}"},
            )
            assert answer.status_code == 200, answer.text
    for client in (first, second):
        items = await client.get(f"/v1/conversations/{id_}/items?order=asc")
        assert [it["content"][0]["text"] for it in items["data"]] == [
            *("look", "it said yes"),
            *("look", "42"),
            *("look", "42"),
        ]


async def test_cancels_and_approvals_reach_the_writer(database: Cluster) -> None:
    first, second = await database.start(), await database.start()

    run = await first.begin("editor", "cancel me")
    call = await database.oracle.next()
    cancel = await second.http.post(f"/v1/runs/{run}/cancel", json={})
    assert cancel.json()["status"] == "cancelled", cancel.text
    with trio.fail_after(1):
        await call.wait_ended()

    run = await first.begin("asker", "may I?")
    await second.wait_fact(run, "ApprovalAsked")
    (asked,) = (await first.get("/v1/approvals"))["data"]
    assert asked["run"] == run
    assert (await second.get("/v1/approvals"))["data"] == [asked]
    answer = await second.http.post(f"/v1/approvals/{asked['id']}", json={"answer": "once"})
    if answer.status_code == 200:
        await (await database.oracle.next()).answer("approved")
        assert (await second.end_of(run))["output"] == "it said approved"
    else:
        # Where no sandbox is a wall, the token of the test may not approve: at any server.
        assert answer.json()["error"]["code"] == "missing_scope", answer.text


async def test_a_crashed_server_s_sessions_go_on_at_another(cluster: Cluster) -> None:
    first, second = await cluster.start(), await cluster.start()

    run = await first.begin("editor", "survive")
    call = await cluster.oracle.next()
    await first.server.kill()
    await call.wait_ended()
    with trio.fail_after(10):
        status = (await second.get(f"/v1/runs/{run}"))["status"]
    assert status == "in_progress"
    call = await cluster.oracle.next()
    assert call.process == second.server.pid
    await call.answer("late")
    assert (await second.end_of(run))["output"] == "the helper has ended"


@pytest.fixture
async def database(postgres: str, tmp_path: Path) -> AsyncGenerator[Cluster]:
    journal = f"{postgres}{'&' if '?' in postgres else '?'}lease={LEASE}"
    async with open_cluster(tmp_path, journal) as opened:
        yield opened


async def test_a_server_that_stops_hands_over_and_no_request_is_lost(database: Cluster) -> None:
    first, second = await database.start(), await database.start()
    run = await first.begin("editor", "go on")
    call = await database.oracle.next()
    assert call.process == first.server.pid
    answers: list[int] = []

    async def ask(client: Client, key: str) -> None:
        body = {"model": "quick", "input": ""}
        headers = {"idempotency-key": key}
        try:
            answer = await client.http.post("/v1/runs", json=body, headers=headers)
        except httpx2.TransportError:
            # It listens no more: a balancer asks the other one.
            answer = await second.http.post("/v1/runs", json=body, headers=headers)
        answers.append(answer.status_code)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(ask, first, f"first {number}")
            nursery.start_soon(ask, second, f"second {number}")
        first.server.signal(signal.SIGTERM)
        await call.answer("in time")
        assert await first.server.wait() == 0
    assert answers == [202] * 40
    # No lease has to end: what was let go is taken at once.
    with trio.fail_after(LEASE):
        assert (await second.get(f"/v1/runs/{run}"))["id"] == run
    assert (await second.end_of(run))["output"] == "the helper has ended"
    assert len((await second.get("/v1/runs?limit=100"))["data"]) == 41


async def test_a_server_stopped_past_its_lease_writes_no_more(database: Cluster) -> None:
    first = await database.start()
    run = await first.begin("editor", "fence me")
    old_call = await database.oracle.next()
    second = await database.start()
    # It is handed over where the run is at rest only; here its call goes on at the first server.
    first.server.signal(signal.SIGSTOP)
    with trio.fail_after(PATIENCE):
        call = await database.oracle.next()
    assert call.process == second.server.pid, "it goes on where its shard went"
    before = (await second.get(f"/v1/runs/{run}"))["seq"]
    first.server.signal(signal.SIGCONT)
    await old_call.answer("of the past")
    await call.answer("of the present")
    ended = await second.end_of(run)
    assert ended["status"] == "completed"
    assert ended["seq"] > before
    transcripts = [
        await second.get(f"/v1/tasks/{node['id']}/transcript")
        for node in (await second.get(f"/v1/runs/{run}/tree"))["nodes"]
    ]
    said = [it["text"] for page in transcripts for it in page["data"]]
    assert "it said of the present" in said
    assert not [text for text in said if "of the past" in text]
    # The old server goes on: it has lost its shards, and asks the new writers.
    assert (await first.get(f"/v1/runs/{run}"))["status"] == "completed"
    assert "was lost" in first.server.errors


async def test_a_client_that_hangs_up_cancels_its_tree_at_the_writer(database: Cluster) -> None:
    """A chat completion belongs to its request, also when another server runs it."""
    first, second = await database.start(), await database.start()
    body = {"model": "editor", "messages": [{"role": "user", "content": "hang up"}]}
    begun = trio.Event()
    for number in range(20):
        # Until a key has its home at the other server.
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def ask(key: str = f"k{number}") -> None:
                    headers = {"idempotency-key": key}
                    await first.http.post("/v1/chat/completions", json=body, headers=headers)

                nursery.start_soon(ask)
                call = await database.oracle.next()
                scope.cancel()
        await call.wait_ended()
        if call.process == second.server.pid:
            begun.set()
            break
    assert begun.is_set()


async def test_a_client_cannot_pose_as_a_server(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, f"{tmp_path / 'journals'}/") as cluster:
        first = await cluster.start()
        headers = {"x-orchestrator-forwarded": f"8.8.8.8 {'0' * 64}"}
        answer = await first.http.get("/v1/runs", headers=headers)
        assert answer.status_code == 200
        wrong = httpx2.AsyncClient(base_url=first.server.url, headers=headers)
        async with wrong:
            assert (await wrong.get("/v1/runs")).status_code == 401
    # What servers sign with is made of no token that a client may have.
    secret = trio.Path(tmp_path / "journals" / "cluster_secret")
    assert (await secret.stat()).st_mode & 0o777 == 0o600
    assert len((await secret.read_text()).strip()) == 64


async def test_options_that_fit_no_cluster_are_refused_with_a_sentence(
    database: Cluster, postgres: str, tmp_path: Path
) -> None:
    await (await database.start()).server.kill()
    command = [sys.executable, "-m", "orchestrator", "serve", "agents_file.py"]
    command += ["--port", "0", "--journal", postgres]

    async def refused(*options: str, **environ: str) -> str:
        ended = await trio.run_process(
            [*command, *options],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environ},
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
        assert ended.returncode == 2
        return ended.stderr.decode()

    token = {"ORCHESTRATOR_API_KEY": TOKEN, "ORACLE": "0"}
    assert "ORCHESTRATOR_API_KEY" in await refused(ORACLE="0")
    wrong = await refused("--shards", "8", **token)
    assert "--shards is 8" in wrong
    assert f"has {SHARDS}" in wrong
    assert "--address" in await refused("--address", "10.0.0.5", **token)


async def test_the_runs_of_a_key_with_limits_are_counted_in_one_shard(
    database: Cluster, tmp_path: Path
) -> None:
    """Whichever server is asked: its runs at once, and its day, are those of one ledger."""
    make_keys_file(tmp_path / "home" / FILE)
    limits = KeyLimits(runs_at_once=2)
    _, token = add_key(tmp_path / "home" / FILE, "bot", now=time.time(), limits=limits)
    first, second = await database.start(), await database.start()
    bot = {"authorization": f"Bearer {token}"}

    runs = [await first.begin("editor", "1", **bot)]
    runs.append(await second.begin("editor", "2", **{**bot, "idempotency-key": "k"}))
    assert len({shard_of(run, SHARDS) for run in runs}) == 1
    for client in (first, second):
        body = {"model": "quick", "input": ""}
        refused = await client.http.post("/v1/runs", json=body, headers=bot)
        assert refused.status_code == 429, refused.text
        assert refused.json()["error"]["code"] == "too_many_runs"


NEWER = """
from orchestrator.products.cluster.journal import acquisition

acquisition.FACTS_VERSION = 99
"""


async def test_shards_of_a_newer_version_stay_with_the_newer_server(
    postgres: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """An old server refuses them and serves the rest; requests at it reach the newer one."""
    journal = f"{postgres}{'&' if '?' in postgres else '?'}lease={LEASE}"
    for name in ("new", "old"):
        await trio.Path(tmp_path / name).mkdir()
    async with (
        open_cluster(tmp_path / "new", journal) as newer,
        open_cluster(tmp_path / "old", journal) as older,
    ):
        file = trio.Path(tmp_path / "new" / "agents_file.py")
        await file.write_text(NEWER + await file.read_text())
        new = await newer.start()
        runs = [await new.begin("quick", f"{number}") for number in range(12)]
        database = postgres.partition("@/")[2].partition("?")[0]
        postgres_server.execute("UPDATE orchestrator.journals SET facts = 99", database=database)
        old = await older.start()
        with trio.fail_after(PATIENCE):
            for run in runs:
                while (answer := await old.http.get(f"/v1/runs/{run}")).status_code != 200:
                    assert answer.status_code == 503, answer.text
        assert "version 99" in old.server.errors
        more = await old.begin("quick", "more")
        assert (await new.end_of(more))["output"] == "42"
