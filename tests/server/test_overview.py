"""The overview sums up runs by day and by agent, from their summaries."""

from typing import Any

import pytest

from orchestrator.agents import Agent, ModelError, ScriptedModel
from orchestrator.models import Price
from orchestrator.products.server.api import overview
from tests.kit import worker
from tests.server.kit import Served, serving
from tests.server.runs_kit import ended

pytestmark = pytest.mark.realtime
PRICE = Price(input=1.0, output=1_000.0)
BROKEN = Agent("broken", model=ScriptedModel.always(ModelError("400: no")))
PRICED = Agent("priced", model=ScriptedModel.always("done", price=PRICE))


async def run_all(served: Served, *agents: str) -> None:
    for agent in agents:
        begun = await served.http.post("/v1/runs", json={"model": agent, "input": "go"})
        await ended(served, begun.json()["id"])


async def figures(served: Served, **query: Any) -> Any:
    answer = await served.http.get("/v1/overview", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_overview_adds_up_the_runs_of_each_day_and_agent() -> None:
    async with serving(PRICED, BROKEN) as served:
        await run_all(served, "priced", "priced", "broken")
        found = await figures(served, days=7)
        some = await figures(served, days=7, agent="priced")
    total = found["total"]
    assert total["runs"] == 3
    assert total["statuses"] == {"completed": 2, "failed": 1}
    assert total["micro_usd"] > 0
    # At midnight the runs may be of two days.
    assert len(found["days"]) == 7
    assert sum(it["runs"] for it in found["days"]) == 3
    agents = {it["agent"]: it for it in found["agents"]}
    assert agents["broken"]["statuses"] == {"failed": 1}
    assert agents["priced"]["micro_usd"] == total["micro_usd"]
    assert agents["priced"]["p50"] > 0
    # Two runs have no 95th percentile.
    assert agents["priced"]["p95"] is None
    assert some["total"]["runs"] == 2
    assert [it["agent"] for it in some["agents"]] == ["priced"]


async def test_the_days_of_the_overview_have_the_time_zone_of_the_reader() -> None:
    async with serving(worker("worker")) as served:
        east = await figures(served, days=1, minutes_east=840)
        west = await figures(served, days=1, minutes_east=-600)
    # The two zones are a day apart.
    assert east["days"][0]["day"] > west["days"][0]["day"]


async def test_an_overview_of_very_many_runs_says_that_it_is_not_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overview, "MOST_RUNS", 1)
    monkeypatch.setattr(overview, "LOOKED_AT_MOST", 1)
    async with serving(worker("worker")) as served:
        await run_all(served, "worker", "worker")
        found = await figures(served)
    assert (found["total"]["runs"], found["is_complete"]) == (1, False)


async def test_a_wrong_number_of_days_is_refused() -> None:
    async with serving(worker("worker")) as served:
        answer = await served.http.get("/v1/overview", params={"days": 0})
    assert answer.status_code == 400
