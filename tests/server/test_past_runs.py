"""Large runs of the past are read in a process of their own, once for all that ask."""

from pathlib import Path

import pytest
import trio

from orchestrator.products.server import past_runs
from tests.kit import own_processes, worker
from tests.server.kit import Served, serving

pytestmark = pytest.mark.realtime

FORMATS = ("svg", "html")


async def evicted_run(served: Served) -> str:
    run = await served.orchestrator.run(worker(), "do it")
    served.orchestrator._engine.book.cache.evict_resting()
    return run.id


async def answers_of(served: Served, run: str) -> list[tuple[int, str, bytes]]:
    paths = [f"/v1/runs/{run}", *(f"/v1/runs/{run}/tree?format={it}" for it in FORMATS)]
    answers = [await served.http.get(path) for path in paths]
    return [(it.status_code, it.headers["content-type"], it.content) for it in answers]


async def test_a_process_for_past_runs_answers_like_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(worker(), journal=tmp_path / "journal.db") as served:
        run = await evicted_run(served)
        here = await answers_of(served, run)
        assert await served.server.state.journals.first.past_runs.ask(run) is None

        monkeypatch.setattr(past_runs, "LARGE_FACTS", 1)
        elsewhere = await served.server.state.journals.first.past_runs.ask(run)
        there = await answers_of(served, run)

        listed = (await served.http.get("/v1/runs")).json()["data"]
        others = (await served.http.get("/v1/runs?status=failed")).json()["data"]

    assert [it["id"] for it in listed] == [run]
    assert others == []
    assert elsewhere == here[0][2]
    assert there == here
    assert {status for status, _, _ in there} == {200}


async def test_concurrent_readers_share_one_process_for_past_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_runs, "LARGE_FACTS", 1)
    async with serving(worker(), journal=tmp_path / "journal.db") as served:
        run = await evicted_run(served)
        ask = served.server.state.journals.first.past_runs.ask
        before = own_processes()
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(ask, run)
            while not (begun := own_processes() - before):  # noqa: ASYNC110 (none tells us)
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        assert len(begun) == 1
        with trio.fail_after(20):
            while own_processes() & begun:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert await ask(run)


async def test_a_deleted_run_is_not_found_in_another_process_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_runs, "LARGE_FACTS", 1)
    async with serving(worker(), journal=tmp_path / "journal.db") as served:
        run = await evicted_run(served)
        await served.http.delete(f"/v1/runs/{run}")
        served.orchestrator._engine.book.cache.evict_resting()
        answer = await served.http.get(f"/v1/runs/{run}")

    assert answer.status_code == 404
