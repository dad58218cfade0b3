"""A script holds a tournament of plans: pairs are judged at once until one plan is left."""

import trio
from models import NAMED

from orchestrator import Agent, ScriptedModel, ToolCall, Transcript, open_orchestrator

SCRIPT = """
plans = await gather(*[agent("planner", f"Plan {n}: move the site") for n in range(4)])
rounds = 0
while len(plans) > 1:
    pairs = [(plans[i], plans[i + 1]) for i in range(0, len(plans), 2)]
    picks = await gather(*[agent("judge", f"A: {a}\\nB: {b}") for a, b in pairs])
    plans = [a if pick == "A" else b for (a, b), pick in zip(pairs, picks)]
    rounds += 1
log(f"{rounds} rounds")
plans[0]
"""


def plan(transcript: Transcript) -> str:
    number = transcript[0].text.split(":")[0]
    return f"{number} moves in {9 - int(number[-1]) * 2} steps"


def judge(transcript: Transcript) -> str:
    """Prefer the plan with fewer steps."""
    first, second = (int(line.split()[-2]) for line in transcript[0].text.splitlines())
    return "A" if first < second else "B"


lead = Agent(
    "lead",
    model=NAMED
    or ScriptedModel(
        [
            ToolCall("run_script", {"code": SCRIPT, "goal": "Find the best plan"}),
            lambda said: said[-1].text,
        ]
    ),
    delegates=[
        Agent("planner", model=NAMED or ScriptedModel.always(plan)),
        Agent("judge", model=NAMED or ScriptedModel.always(judge)),
    ],
    scripts=True,
)


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(lead, "Plan the move.")
        print(run.output)
        print(f"{len(run.tree)} tasks")


if __name__ == "__main__":
    trio.run(main)

# prints:
# 2 rounds
# Plan 3 moves in 3 steps
# 9 tasks
