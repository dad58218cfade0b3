"""Old runs are deleted for good by the operator, who learns how many before."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from orchestrator.backends import store_at
from orchestrator.products.server.console.topics import RunsTopic
from tests.kit import worker
from tests.server.keys_kit import serving_with_keys
from tests.server.kit import TOKEN
from tests.server.runs_kit import ended, started

pytestmark = pytest.mark.realtime

ALL = {"older_than": 0}


async def test_a_dry_run_counts_the_runs_that_pruning_deletes(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    agents = (worker(), worker("sleeper", seconds=3600))
    async with serving_with_keys(*agents, folder=tmp_path, journal=journal) as keyed:
        served = keyed.served
        http = served.http
        past = [(await started(served, "worker"))["id"] for _ in range(3)]
        for run in past:
            await ended(served, run)
        awake = (await started(served, "sleeper"))["id"]
        chat = (await http.post("/v1/sessions", json={"model": "worker"})).json()["id"]
        await http.post(f"/v1/sessions/{chat}/messages", json={"text": "Hello"})
        await http.get(f"/v1/sessions/{chat}/inbox?wait=30")
        ann = keyed.new_token("ann")
        assert (await keyed.ask(ann, "POST", "/v1/runs/prune", ALL)).status_code == 403

        dry = await http.post("/v1/runs/prune", json={**ALL, "dry_run": True})
        assert dry.json() | {"freed": 0} == {
            "object": "pruning",
            "dry_run": True,
            "runs": 3,
            "active": 2,
            "freed": 0,
            "journals_in_use": 0,
        }
        young = await http.post("/v1/runs/prune", json={"older_than": 3600})
        assert young.json()["runs"] == 0
        assert len((await http.get("/v1/runs")).json()["data"]) == 5

        gone = (await http.post("/v1/runs/prune", json=ALL)).json()
        assert (gone["runs"], gone["active"]) == (3, 2)
        left = [it["id"] for it in (await http.get("/v1/runs")).json()["data"]]
        assert left == [chat, awake]
        assert (await http.get(f"/v1/runs/{past[0]}")).status_code == 404
        assert (await http.post(f"/v1/runs/{awake}/cancel")).status_code == 200
    with store_at(journal).open_reader(verify=False) as reader:
        rows = [it.event for it in reader.audit().rows if it.event.action == "prune_runs"]
    assert [(it.actor, it.count) for it in rows if it.outcome == "accepted"] == [("key:default", 3)]
    assert TOKEN not in str(rows)


async def test_pages_learn_that_runs_were_pruned_deleted_or_left_memory(tmp_path: Path) -> None:
    async with serving_with_keys(
        worker(), folder=tmp_path, journal=tmp_path / "journal.db"
    ) as keyed:
        served = keyed.served
        runs = [(await started(served, "worker"))["id"] for _ in range(3)]
        for run in runs:
            await ended(served, run)
        state = served.server.state
        found = state.keys.find(TOKEN)
        assert found is not None
        topic = RunsTopic([state.journals.first], lambda: None, found[0])
        with ExitStack() as stack:
            await topic.open(stack)
            assert topic.take() == {"begins": True, "runs": [], "deleted": []}
            assert topic.take() is None

            await served.http.delete(f"/v1/runs/{runs[0]}")
            served.orchestrator._engine.book.cache.evict_resting()
            assert topic.take() == {"begins": False, "runs": [], "deleted": [runs[0]]}

            new = (await started(served, "worker"))["id"]
            await ended(served, new)
            served.orchestrator._engine.book.cache.evict_resting()
            assert topic.take() == {"begins": True, "runs": [], "deleted": []}

            await served.http.post("/v1/runs/prune", json=ALL)
            assert topic.take() == {"begins": True, "runs": [], "deleted": []}
