"""Runs over HTTP: begun, looked at, listed, drawn, cancelled and deleted."""

import json
from pathlib import Path
from typing import Any

import msgspec
import networkx as nx
import pytest
import trio

from orchestrator.agents import Agent, Failure, ModelError, Pipeline, ScriptedModel
from orchestrator.agents.pipelines.pipeline import PipelineContext
from orchestrator.delegation import DeliveryCapability
from orchestrator.delegation.events import DoorOpened, TaskRequested, TurnStarted
from orchestrator.products.history import export_formats
from orchestrator.products.server.api import lookup
from orchestrator.products.server.state import Settings
from orchestrator.products.server.transport.json_body import MOST_MESSAGES
from tests.kit import worker
from tests.server.kit import TOKEN, Served, serving
from tests.server.runs_kit import boss, ended, problem, started

pytestmark = pytest.mark.realtime


async def test_a_run_works_in_the_background() -> None:
    async with serving(worker(says="it is done")) as served:
        answer = await served.http.post(
            "/v1/runs", json={"model": "worker", "input": "do it", "metadata": {"a": "b"}}
        )
        run = await ended(served, answer.json()["id"])

    assert answer.status_code == 202
    assert answer.headers["x-run-id"] == run["id"]
    assert answer.json()["status"] in {"queued", "in_progress"}
    assert answer.json()["seq"] < run["seq"]
    assert run["status"] == "completed"
    assert (run["input"], run["output"], run["error"]) == ("do it", "it is done", None)
    assert run["kind"] == "run"
    assert run["metadata"] == {"a": "b"}
    assert run["tasks"] == {"succeeded": 1}
    assert run["usage"]["calls"] == 1
    assert run["usage"]["unpriced"] == 0
    assert run["created"] <= run["started"] <= run["ended"]


async def test_a_text_over_the_limit_is_refused_by_every_route() -> None:
    settings = Settings(token=TOKEN, text_limit=100)
    long = "x" * 101
    async with serving(worker(says="ok"), settings=settings) as served:
        run = (await started(served, "worker"))["id"]
        new = {"model": "worker"}
        session = (await served.http.post("/v1/sessions", json=new)).json()["id"]
        chat = {**new, "messages": [{"role": "user", "content": long}]}
        answers = [
            await served.http.post(path, json=body)
            for path, body in (
                ("/v1/runs", {**new, "input": long}),
                (f"/v1/sessions/{session}/messages", {"text": long}),
                (f"/v1/tasks/{run}/steer", {"text": long}),
                ("/v1/chat/completions", chat),
                ("/v1/responses", {**new, "input": long}),
            )
        ]

    assert [(it.status_code, problem(it)["code"]) for it in answers] == [(413, "text_too_long")] * 5


async def test_a_request_of_too_many_pieces_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes its time in the event loop: 300,000 stop it for half a minute."""
    async with serving(worker(says="ok")) as served:
        new = {"model": "worker"}
        session = (await served.http.post("/v1/sessions", json=new)).json()["id"]
        message = {"role": "user", "content": "x"}
        part = {"type": "url", "media_type": "text/plain", "url": "https://x.example"}
        tool = {"type": "function", "function": {"name": "look"}}
        chat = "/v1/chat/completions"
        answers = [
            await served.http.post(path, json=body)
            for path, body in (
                (chat, {**new, "messages": [message] * (MOST_MESSAGES + 1)}),
                (chat, {**new, "messages": [message], "tools": [tool] * 1_001}),
                ("/v1/responses", {**new, "input": [message] * (MOST_MESSAGES + 1)}),
                (f"/v1/sessions/{session}/messages", {"text": "x", "parts": [part] * 1_001}),
            )
        ]
        monkeypatch.setattr("orchestrator.products.server.api_call.MOST_MESSAGES", 3)
        again = {**new, "input": [message] * 3}
        first = (await served.http.post("/v1/responses", json=again)).json()
        again["previous_response_id"] = first["id"]
        answers.append(await served.http.post("/v1/responses", json=again))

    assert [problem(it)["code"] for it in answers] == [*["invalid_body"] * 4, "too_many_messages"]


async def test_children_of_a_run_detach_and_wake_it() -> None:
    """The client can come back, so no turn has to wait for its tasks."""
    async with serving(boss()) as served:
        run = await ended(served, (await started(served, "boss"))["id"])
        kept = await served.orchestrator.read.entries(run["id"])

    requested = [it.event for it in kept if isinstance(it.event, TaskRequested)]
    opened = [it.event for it in kept if isinstance(it.event, DoorOpened)]
    turns = [it.event for it in kept if isinstance(it.event, TurnStarted)]
    assert {it.mode for it in requested} == {"detached"}
    assert {it.capability for it in opened} == {DeliveryCapability.POLL}
    assert {it.capability for it in turns} == {DeliveryCapability.POLL}
    assert len(turns) > 1
    assert run["output"].startswith("heard: ")
    assert run["tasks"] == {"succeeded": 3}


async def test_a_webhook_makes_a_run_push() -> None:
    pushed: list[str] = []

    async def push(session: Any, reply: Any) -> None:
        await trio.lowlevel.checkpoint()
        pushed.append(reply.text)

    async with serving(worker(), push=push) as served:
        run = await ended(served, (await started(served, "worker"))["id"])
        kept = await served.orchestrator.read.entries(run["id"])

    assert pushed == ["done"]
    opened = [it.event for it in kept if isinstance(it.event, DoorOpened)]
    assert [it.capability for it in opened] == [DeliveryCapability.PUSH]


async def test_a_pipeline_gets_its_json_input() -> None:
    class Order(msgspec.Struct):
        count: int

    async def program(hands: PipelineContext, order: Order) -> str:
        await trio.lowlevel.checkpoint()
        return f"{order.count} of them"

    shop = Pipeline[Order, str]("shop", program=program, input=Order, output=str)
    async with serving(shop) as served:
        run = await ended(served, (await started(served, "shop", {"count": 3}))["id"])
        wrong = await served.http.post(
            "/v1/runs", json={"agent": "shop", "input": {"count": "many"}}
        )

    assert run["output"] == "3 of them"
    assert wrong.status_code == 422
    assert problem(wrong)["param"] == "input"


async def test_an_agent_that_takes_text_reads_json_as_text() -> None:
    async with serving(worker()) as served:
        run = await started(served, "worker", {"a": [1, 2]})

    assert json.loads(run["input"]) == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"model": "nobody", "input": "x"}, 404, "model_not_found"),
        ({"input": "x"}, 404, "model_not_found"),
        ({"model": "worker"}, 400, "invalid_body"),
        ({"model": "worker", "input": "x", "metadata": {"a": 1}}, 400, "invalid_body"),
        ([], 400, "invalid_body"),
    ],
)
async def test_an_invalid_run_is_refused_with_its_code(body: Any, status: int, code: str) -> None:
    async with serving(worker()) as served:
        answer = await served.http.post("/v1/runs", json=body)
        runs = (await served.http.get("/v1/runs")).json()

    assert (answer.status_code, problem(answer)["code"]) == (status, code)
    assert runs["data"] == []


async def test_the_same_key_begins_one_run(tmp_path: Path) -> None:
    """Also at the same time, and also after a restart."""
    body = {"model": "worker", "input": "once"}
    key = {"idempotency-key": "k1"}
    answers: list[Any] = []

    async def send(served: Served) -> None:
        answers.append(await served.http.post("/v1/runs", json=body, headers=key))

    async with serving(worker(), journal=tmp_path / "journal.db") as served:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(send, served)
        await ended(served, answers[0].json()["id"])
    async with serving(worker(), journal=tmp_path / "journal.db") as served:
        await send(served)
        other = await served.http.post("/v1/runs", json={**body, "input": "twice"}, headers=key)
        runs = (await served.http.get("/v1/runs")).json()["data"]

    assert [it.status_code for it in answers] == [202] * 6
    assert {it.json()["id"] for it in answers} == {runs[0]["id"]}
    assert len(runs) == 1
    assert other.status_code == 422
    assert problem(other)["code"] == "idempotency_key_reused"


async def test_why_a_run_failed_is_typed() -> None:
    error = ModelError("slow down", kind=Failure.RATE_LIMIT, retry_after=7)
    tired = Agent("tired", model=ScriptedModel.always(error))
    async with serving(tired) as served:
        run = await ended(served, (await started(served, "tired"))["id"])

    assert run["status"] == "failed"
    assert run["error"]["code"] == "rate_limit"
    assert run["error"]["retry_after"] == 7
    assert "slow down" in run["error"]["message"]


async def test_all_runs_are_listed_newest_first_page_by_page(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    async with serving(worker(), journal=journal) as served:
        old = await served.orchestrator.run(worker(), "in Python")
        made = [await started(served, "worker", str(n)) for n in range(4)]
        for run in made:
            await ended(served, run["id"])
    async with serving(worker(), journal=journal) as served:
        seen: list[Any] = []
        pages: list[Any] = []
        after = ""
        while not pages or pages[-1]["has_more"]:
            answer = await served.http.get(f"/v1/runs?limit=2{after}")
            pages.append(answer.json())
            seen += pages[-1]["data"]
            after = f"&after={pages[-1]['last_id']}"
        nothing = await served.http.get("/v1/runs?after=r_none")

    assert [len(page["data"]) for page in pages] == [2, 2, 1]
    assert [it["about"] for it in seen] == ["3", "2", "1", "0", "in Python"]
    assert seen[-1]["id"] == old.id
    assert seen[-1]["kind"] == "program"
    assert nothing.status_code == 404


async def test_runs_are_listed_by_how_far_they_are() -> None:
    async with serving(worker(), worker("slow", seconds=1_000)) as served:
        slow = await started(served, "slow")
        quick = await started(served, "worker")
        await ended(served, quick["id"])
        completed = (await served.http.get("/v1/runs?status=completed")).json()
        running = (await served.http.get("/v1/runs?status=in_progress")).json()
        wrong = await served.http.get("/v1/runs?status=tired&limit=1000")

    assert [it["id"] for it in completed["data"]] == [quick["id"]]
    assert [it["id"] for it in running["data"]] == [slow["id"]]
    assert wrong.status_code == 400
    assert problem(wrong)["code"] == "invalid_query"


async def test_root_failures_are_listed_without_their_ancestors() -> None:
    async def both(context: PipelineContext, goal: str) -> str:
        await context.delegate(worker("fine"), goal)
        return str(await context.delegate(broken, goal))

    error = ModelError("no money", kind=Failure.QUOTA)
    broken = Agent("broken", model=ScriptedModel.always(error))
    pair = Pipeline("pair", program=both, input=str)
    async with serving(pair, worker()) as served:
        run = (await started(served, "pair"))["id"]
        await ended(served, run)
        await ended(served, (await started(served, "worker"))["id"])

        found = (await served.http.get(f"/v1/runs/{run}/failures")).json()
        listed = (await served.http.get("/v1/runs?failures=true")).json()["data"]
        assert [it["id"] for it in listed] == [run]
        assert listed[0]["tasks"] == {"succeeded": 1, "failed": 2}
    assert found["total"] == 1
    (failure,) = found["data"]
    assert failure["path"] == "/pair/broken[1]"
    assert "no money" in failure["error"]


async def test_a_list_is_read_once_and_shows_later_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(worker(), journal=tmp_path / "journal.db") as served:
        runs = [(await started(served, "worker"))["id"] for _ in range(3)]
        for run in runs:
            await ended(served, run)
        opened = await served.http.post("/v1/sessions", json={"model": "worker"})
        chat = opened.json()["id"]
        served.orchestrator._engine.book.cache.evict_resting()

        async def listed(path: str = "/v1/runs") -> dict[str, Any]:
            found = (await served.http.get(path)).json()["data"]
            return {it["id"]: it for it in found}

        before = await listed()
        assert [*before] == [chat, *reversed(runs)]
        # What is kept takes no place of what may be read.
        monkeypatch.setattr(lookup, "READ_AT_MOST", 1)
        assert await listed() == before
        assert [*await listed("/v1/sessions")] == [chat]

        await served.http.post(f"/v1/sessions/{chat}/messages", json={"text": "Hello"})
        await served.http.get(f"/v1/sessions/{chat}/inbox?wait=30")
        await served.http.delete(f"/v1/runs/{runs[0]}")
        served.orchestrator._engine.book.cache.evict_resting()

        monkeypatch.undo()
        after = await listed()
        assert [*after] == [chat, runs[2], runs[1]]
        assert (before[chat]["about"], after[chat]["about"]) == ("", "Hello")


async def test_a_run_at_rest_is_read_from_the_journal(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    async with serving(boss(), journal=journal) as served:
        before = await ended(served, (await started(served, "boss"))["id"])
        tree = (await served.http.get(f"/v1/runs/{before['id']}/tree")).json()
    async with serving(boss(), journal=journal) as served:
        after = (await served.http.get(f"/v1/runs/{before['id']}")).json()
        again = (await served.http.get(f"/v1/runs/{before['id']}/tree")).json()

    assert {**after, "seq": 0} == {**before, "seq": 0}
    assert again == tree


async def test_the_tree_is_a_graph_that_networkx_reads() -> None:
    async with serving(boss()) as served:
        run = await ended(served, (await started(served, "boss"))["id"])
        answer = await served.http.get(f"/v1/runs/{run['id']}/tree")

    graph = nx.node_link_graph(answer.json(), edges="edges")
    assert answer.headers["content-type"] == "application/json"
    assert {node["path"] for _, node in graph.nodes(data=True)} == {
        "/boss",
        "/boss/helper[1]",
        "/boss/helper[2]",
    }


@pytest.mark.parametrize(
    ("wanted", "media", "has"),
    [
        ("text", "text/plain; charset=utf-8", "boss"),
        ("mermaid", "text/vnd.mermaid; charset=utf-8", "flowchart"),
        ("dot", "text/vnd.graphviz; charset=utf-8", "digraph"),
        ("svg", "image/svg+xml", "<svg"),
        ("graphml", "application/graphml+xml", "<graphml"),
        ("json", "application/json", '"nodes"'),
        ("trace", "application/json", '"traceEvents"'),
        ("html", "text/html; charset=utf-8", "<!doctype html>"),
    ],
)
async def test_the_tree_is_drawn_in_every_format(wanted: str, media: str, has: str) -> None:
    async with serving(boss()) as served:
        run = await ended(served, (await started(served, "boss"))["id"])
        answer = await served.http.get(f"/v1/runs/{run['id']}/tree?format={wanted}")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == media
    assert has in answer.text
    is_page = wanted in {"svg", "html"}
    assert ("sandbox" in answer.headers.get("content-security-policy", "")) is is_page


@pytest.mark.parametrize("wanted", ["text", "mermaid", "dot", "svg", "json", "trace"])
async def test_a_large_tree_is_drawn_in_a_thread_and_looks_the_same(
    wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(boss()) as served:
        run = await ended(served, (await started(served, "boss"))["id"])
        path = f"/v1/runs/{run['id']}/tree?format={wanted}"
        small = await served.http.get(path)
        monkeypatch.setattr(export_formats, "DRAWN_IN_LOOP", 0)
        large = await served.http.get(path)

    assert large.status_code == 200
    assert large.text == small.text


async def test_cancelling_a_run_joins_its_whole_tree() -> None:
    slow = worker("helper", seconds=1_000)
    async with serving(boss(helper=slow)) as served:
        run = await started(served, "boss")
        await until_tasks(served, run["id"], 3)
        answer = await served.http.post(f"/v1/runs/{run['id']}/cancel")
        again = await served.http.post(f"/v1/runs/{run['id']}/cancel")
        tree = (await served.http.get(f"/v1/runs/{run['id']}/tree")).json()

    assert answer.status_code == 200
    assert answer.json()["status"] == "cancelled"
    assert {it["status"] for it in tree["nodes"][1:]} == {"cancelled"}
    assert all(it["ended"] for it in tree["nodes"])
    assert again.json()["status"] == "cancelled"


async def test_cancelling_an_ended_run_returns_it_unchanged() -> None:
    async with serving(worker()) as served:
        run = await ended(served, (await started(served, "worker"))["id"])
        answer = await served.http.post(f"/v1/runs/{run['id']}/cancel")

    assert answer.json() == run


async def test_a_deleted_run_cannot_be_read(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    async with serving(boss(), journal=journal) as served:
        run = await ended(served, (await started(served, "boss"))["id"])
        tree = (await served.http.get(f"/v1/runs/{run['id']}/tree")).json()
        child = tree["nodes"][1]["id"]
        deleted = await served.http.delete(f"/v1/runs/{run['id']}")
        twice = await served.http.delete(f"/v1/runs/{run['id']}")
    async with serving(boss(), journal=journal) as served:
        paths = [f"/v1/runs/{run['id']}{it}" for it in ("", "/tree", "/events")]
        paths += [f"/v1/tasks/{child}", f"/v1/tasks/{child}/transcript"]
        gone = [await served.http.get(path) for path in paths]
        listed = (await served.http.get("/v1/runs")).json()

    assert deleted.status_code == 200
    assert deleted.json()["deleted"] is True
    assert twice.status_code == 404
    assert [it.status_code for it in gone] == [404] * 5
    assert listed["data"] == []


async def test_an_unknown_run_is_answered_with_404() -> None:
    async with serving(worker()) as served:
        answers = [
            await served.http.request(method, path)
            for method, path in [
                ("GET", "/v1/runs/r_nobody"),
                ("GET", "/v1/runs/r_nobody/tree"),
                ("GET", "/v1/runs/r_nobody/events"),
                ("DELETE", "/v1/runs/r_nobody"),
                ("POST", "/v1/runs/r_nobody/cancel"),
            ]
        ]

    assert [it.status_code for it in answers] == [404] * 5
    assert {problem(it)["code"] for it in answers} == {"not_found"}


async def until_tasks(served: Served, run: str, count: int) -> None:
    """Wait until so many tasks of a run are at work."""
    seq = 0
    tree = served.orchestrator.tree(run)
    while len(tree.find(status={"running", "waiting"})) < count - 1:
        seq = await served.orchestrator.wait_changed(after=seq)
