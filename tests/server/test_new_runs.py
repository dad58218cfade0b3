"""A run with files and another model, and what it would take before it is begun."""

import base64
from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator.agents import Agent, Hooks, ScriptedModel, Transcript, agent
from orchestrator.products.server.api import simulations
from orchestrator.products.server.state import Settings
from orchestrator.simulation import SimulationSettings, simulate
from tests.fake_provider import Say, Then, open_provider
from tests.kit import worker
from tests.server.kit import TOKEN, Served, serving
from tests.server.runs_kit import ended, problem, started

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
]

NOTES = {
    "type": "data",
    "media_type": "text/plain",
    "data": base64.b64encode(b"two roots").decode(),
    "name": "notes.txt",
}
OTHER = "openai:gpt-5-mini"


def reader() -> Agent[str]:
    """Return an agent that says which files it was given."""

    def say(transcript: Transcript) -> str:
        parts = getattr(transcript[0], "parts", ())
        return ", ".join(f"{it.name}: {it.data.decode()}" for it in parts)

    return Agent("reader", model=ScriptedModel.always(say))


@agent
async def count(words: list[str]) -> int:
    """Count words."""
    await trio.lowlevel.checkpoint()
    return len(words)


async def test_the_files_of_a_run_come_with_its_goal() -> None:
    async with serving(reader(), count) as served:
        run = await started(served, "reader", "what is in it?", parts=[NOTES])
        assert (await ended(served, run["id"]))["output"] == "notes.txt: two roots"

        for name, parts, status in (
            ("reader", [{**NOTES, "data": ""}], 400),
            ("reader", [{**NOTES, "data": "no base64"}], 400),
            ("count", [NOTES], 422),
        ):
            body = {"agent": name, "input": ["a"], "parts": parts}
            answer = await served.http.post("/v1/runs", json=body)
            assert answer.status_code == status, answer.text


async def test_a_run_takes_a_model_that_the_operator_allows_and_keeps_it_over_a_restart(
    tmp_path: Path,
) -> None:
    settings = Settings(token=TOKEN, language_models=(OTHER,))
    async with open_provider(Then.SILENCE) as provider:
        options: dict[str, Any] = {
            "journal": tmp_path / "journal.db",
            "environ": {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": provider.url},
            "settings": settings,
        }
        async with serving(worker(says="my own"), **options) as served:
            models = (await served.http.get("/v1/models")).json()
            assert models["language_models"] == [OTHER]
            assert models["data"][0]["language_model"] == "scripted"
            run = await started(served, "worker", language_model=OTHER)
            await provider.wait_asked()

        provider.replies = [Say(text="the other one")]
        async with serving(worker(says="my own"), **options) as served:
            assert (await ended(served, run["id"]))["output"] == "the other one"
            own = await started(served, "worker")
            assert (await ended(served, own["id"]))["output"] == "my own"


async def refusal(served: Served, path: str = "/v1/runs", **body: Any) -> tuple[int, Any]:
    answer = await served.http.post(path, json={"input": "go", **body})
    return answer.status_code, problem(answer)["code"]


async def test_only_allowed_and_available_models_are_accepted() -> None:
    named = Agent("named", model=OTHER)
    async with serving(worker(), count, named) as served:
        # The key of its service is missing.
        assert (await served.http.get("/v1/models")).json()["language_models"] == []
        for model, agent_name, expected in (
            ("openai:gpt-5", "worker", (404, "language_model_not_found")),
            (OTHER, "worker", (422, "invalid_language_model")),
            (OTHER, "count", (422, "invalid_language_model")),
        ):
            found = await refusal(served, agent=agent_name, language_model=model)
            assert found == expected


async def test_a_simulation_equals_the_library_and_calls_no_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A busy machine plays fewer seeds in the usual time.
    monkeypatch.setattr(simulations, "SECONDS", 600)
    async with open_provider(Then.SILENCE) as provider:
        helper = Agent("helper", model=OTHER)
        boss = Agent("boss", model="openai:gpt-5", delegates=[helper])
        environ = {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": provider.url}
        async with serving(boss, environ=environ) as served:
            body = {"agent": "boss", "input": "go", "seeds": 3, "fan_out": "4,2"}
            answer = await served.http.post("/v1/simulations", json=body)
            cheaper = {**body, "language_model": OTHER, "budget": {"usd": 0}}
            broke = await served.http.post("/v1/simulations", json=cheaper)
            runs = (await served.http.get("/v1/runs")).json()["data"]
        assert (provider.heard, runs) == ([], [])
    found = answer.json()
    settings = SimulationSettings(seeds=3, fan_out="4,2")
    report = await trio.to_thread.run_sync(simulate, boss, "go", settings)
    assert report.cost is not None
    assert found["seconds"]["p95"] == report.makespan.p95
    assert found["cost"]["p50"] == pytest.approx(report.cost.p50 * 1e6)
    assert (found["sentence"], found["seeds"]) == (report.sentence, 3)
    assert broke.json()["endings"] == {"over_budget": 3}


async def test_code_runs_in_a_simulation_only_if_that_is_asked_for() -> None:
    hooked = Agent("hooked", model=ScriptedModel.always("x"), hooks=[Hooks()])
    above = Agent("above", model=ScriptedModel.always("x"), delegates=[hooked])
    async with serving(count, above) as served:
        path = "/v1/simulations"
        assert await refusal(served, path, agent="above") == (409, "runs_code")
        words = {"agent": "count", "input": ["a", "b"], "seeds": 1}
        assert await refusal(served, path, **words) == (409, "runs_code")
        allowed = await served.http.post(path, json={**words, "run_code": True})
        assert allowed.json()["endings"] == {"succeeded": 1}


async def test_a_simulation_ends_with_its_client_and_one_that_is_too_large_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def tree(levels: int) -> Agent[str]:
        below = [tree(levels - 1)] if levels else []
        return Agent(f"level-{levels}", model="openai:gpt-5", delegates=below)

    async with serving(tree(3)) as served:
        limiter = served.server.state.simulations
        body = {"agent": "level-3", "input": "go", "fan_out": "20"}
        monkeypatch.setattr(simulations, "SECONDS", 3600)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: served.http.post("/v1/simulations", json=body))
            while not limiter.borrowed_tokens:  # noqa: ASYNC110
                await trio.sleep(0.01)
            assert (await served.http.get("/health")).status_code == 200
            nursery.cancel_scope.cancel()
        with trio.fail_after(20):
            while limiter.borrowed_tokens:  # noqa: ASYNC110
                await trio.sleep(0.01)

        monkeypatch.setattr(simulations, "SECONDS", 0.05)
        answer = await served.http.post("/v1/simulations", json=body)
        assert (answer.status_code, problem(answer)["code"]) == (422, "too_large")
