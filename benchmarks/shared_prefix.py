"""The price of a prefix that 50 siblings share, by the published rules of caches, in virtual time.

Also `python -m benchmarks.shared_prefix`. The floor is one reader of the prefix, at full price.
"""

from functools import partial

import trio
import trio.testing

from benchmarks.measure import Report
from orchestrator import open_orchestrator
from orchestrator.agents import Agent, Model, ScriptedModel, ToolCall
from orchestrator.agents.models.wrappers.leader import with_leader
from tests.caching_provider import ALL, ANTHROPIC, CHARACTERS, CacheRules, CachingProvider

SIBLINGS = 50
CONTEXT = "All of it is in the minutes of the meeting.\n" * 2_000
TARGET = SIBLINGS / 8
CENT = 10_000


async def delegate(model: Model, siblings: int) -> None:
    """Delegate tasks with a shared context."""
    tasks = [{"goal": f"part {number}"} for number in range(siblings)]
    call = ToolCall("delegate_task", {"context": CONTEXT, "tasks": tasks, "background": False})
    worker = Agent("worker", model=model)
    lead = Agent("lead", model=ScriptedModel([call, "done"]), delegates=[worker])
    async with open_orchestrator(":memory:") as orchestrator:
        await orchestrator.run(lead, "all")


def price_of_prefix(rules: CacheRules, siblings: int = SIBLINGS) -> tuple[float, float]:
    """Return the cents that siblings pay for one prefix, and the seconds that followers wait."""
    provider = CachingProvider(rules)
    model = with_leader(provider, needs_marks=rules is ANTHROPIC)
    trio.run(partial(delegate, model, siblings), clock=trio.testing.MockClock(autojump_threshold=0))
    seconds = max(provider.asked_at) - min(provider.asked_at)
    return provider.micro_usd / CENT, seconds


def measure_shared_prefix(report: Report) -> None:
    for rules in ALL:
        once = rules.price.cost_of(input_tokens=len(CONTEXT) // CHARACTERS, output_tokens=0) / CENT
        provider = rules.model.partition(":")[0]
        ours, seconds = price_of_prefix(rules)
        name = f"prefix of {SIBLINGS} siblings, {provider}, {seconds:.0f} s later"
        report.add(name, once, ours, unit="ct", target=TARGET)
        alone, _ = price_of_prefix(rules, siblings=1)
        report.add(f"prefix of a lone task, {provider}", once, alone, unit="ct", target=1.01)


if __name__ == "__main__":
    measure_shared_prefix(Report())
