"""`/ready` says whether every agent that is served can run, and why one cannot."""

from pathlib import Path

import pytest

from orchestrator.agents import Agent, Compaction, ScriptedModel
from tests.kit import worker
from tests.server.kit import serving
from tests.server.server_process import server_process

pytestmark = pytest.mark.realtime

MODEL = ScriptedModel.always("done")
KEYLESS = Agent("keyless", model="openai:gpt-5-mini")


async def test_an_agent_without_a_key_makes_the_server_unready() -> None:
    async with serving(worker("fine"), KEYLESS) as served:
        ready = await served.http.get("/ready")
        health = await served.http.get("/health")
        answer = await served.openai.chat.completions.create(
            model="fine", messages=[{"role": "user", "content": "go"}]
        )

    assert ready.status_code == 503
    assert ready.json()["status"] == "agents cannot run"
    assert list(ready.json()["agents"]) == ["keyless"]
    assert "OPENAI_API_KEY" in ready.json()["agents"]["keyless"]
    assert health.status_code == 200
    # The others work all the same.
    assert answer.choices[0].message.content


@pytest.mark.parametrize(
    "agent",
    [
        Agent("boss", model=MODEL, delegates=[KEYLESS]),
        Agent("boss", model=MODEL, compaction=Compaction(window=9_000, summarizer="openai:gpt-5")),
    ],
    ids=["a delegate", "a summarizer"],
)
async def test_so_does_a_model_that_it_needs_further_down(agent: Agent) -> None:
    async with serving(agent) as served:
        ready = await served.http.get("/ready")

    assert ready.status_code == 503
    assert "OPENAI_API_KEY" in ready.json()["agents"]["boss"]


async def test_a_server_with_its_keys_is_ready_and_shows_no_key() -> None:
    environ = {"OPENAI_API_KEY": "sk-never-shown-to-anyone"}
    async with serving(KEYLESS, environ=environ) as served:
        ready = await served.http.get("/ready")

    assert ready.status_code == 200
    assert ready.json() == {"status": "ok", "agents": {}}


async def test_serve_warns_when_it_starts(tmp_path: Path) -> None:
    file = """
from orchestrator.agents import Agent
keyless = Agent("keyless", model="anthropic:some-model")
"""
    async with server_process(tmp_path, file) as server:
        async with server.http() as http:
            assert (await http.get("/ready")).status_code == 503
            assert (await http.get("/health")).status_code == 200
        assert await server.terminate() == 0

    assert "warning: agent keyless cannot run" in server.errors
    assert "ANTHROPIC_API_KEY" in server.errors
