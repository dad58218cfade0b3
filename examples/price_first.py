"""A pipeline that is priced before it runs: simulated many times in virtual time, without a model.

The simulation runs the real orchestrator on the agents of this file, with the prices of a small
model. The real run then has a budget: ten times the highest simulated cost.
"""

import trio
from models import NAMED

from orchestrator import Agent, ScriptedModel, budget, map_each, open_orchestrator
from orchestrator.models import Price
from orchestrator.simulation import SimulationSettings, simulate

plan = Agent("plan", model=NAMED or ScriptedModel.always('["tides", "wind"]'), output=list[str])
research = Agent("research", model=NAMED or ScriptedModel.always("Notes."))
write = Agent("write", model=NAMED or ScriptedModel.always("A brief."))
brief = (plan >> map_each(research) >> write).named("brief")
SETTINGS = SimulationSettings(fan_out=8, price=Price(input=0.25, output=2), seeds=20)


async def run_within(usd: float) -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(usd=usd):
            run = await orchestrator.run(brief, "A swim")
        print(run.output, "for", run.usage.calls, "calls")


if __name__ == "__main__":
    report = simulate(brief, "A swim", SETTINGS)
    seconds, cost = report.makespan, report.cost
    assert cost is not None, "every model has a price"
    print(f"{report.tasks.p50} tasks, {seconds.p50:.0f} s, ${cost.p50:.4f}")
    print(f"95 of 100 runs: less than {seconds.p95:.0f} s and ${cost.p95:.4f}")
    trio.run(run_within, 10 * cost.max)


# prints:
# 12 tasks, 35 s, $0.0069
# 95 of 100 runs: less than 43 s and $0.0084
# A brief. for 4 calls
