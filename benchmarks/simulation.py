"""The time to simulate 10,000 agents, and a check of every law.

python -m benchmarks.simulation
"""

import time

from orchestrator.agents import Agent
from orchestrator.delegation import Rules
from orchestrator.products.history.simulation import SimulationSettings, simulate_once
from orchestrator.testing import assert_laws

ROUNDS = 3
SETTINGS = SimulationSettings(fan_out="100", failure_rate=0.05, rules=Rules(live_tasks=1_000))


def main() -> None:
    worker = Agent("worker", model="openai:gpt-5-mini")
    lead = Agent("lead", model="openai:gpt-5", delegates=[worker])
    editor = Agent("editor", model="openai:gpt-5", delegates=[lead])
    for seed in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        run = simulate_once(editor, "go", SETTINGS, seed=seed)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        assert_laws(run.entries, SETTINGS.rules)
        print(
            f"seed {seed}: {run.tasks:,} tasks, {len(run.entries):,} facts,"
            f" {run.makespan:,.0f} s simulated in {wall:.1f} s ({cpu:.1f} s CPU)"
        )


if __name__ == "__main__":
    main()
