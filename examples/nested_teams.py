"""Agents that delegate, three levels deep, under one budget: architect, foremen, carpenters, clerk.

Each delegates parts of its work and adds up the results; none knows how deep the tree is. One
budget holds for all of them, and every node of the tree has the cost of its subtree.
"""

import json
from collections import defaultdict

import trio
from models import NAMED

from orchestrator import (
    Agent,
    ScriptedModel,
    ToolCall,
    Transcript,
    Usage,
    budget,
    open_orchestrator,
    usd,
)
from orchestrator.models import Price

# Dollars for a million tokens. What is read is free here, because there are times in it: so the
# costs are the same each time.
STRONG, QUICK = Price(output=500), Price(output=100)
EUROS = {"frame": 300, "boards": 450}


def look_up(transcript: Transcript) -> str:
    return str(EUROS[transcript[0].text.split()[-1]])


def orchestrator_of(team: Agent[int], name: str, price: Price, *parts: str) -> Agent[int]:
    """Return an agent that splits the work into parts, and adds up their costs."""

    def split_then_add_up(transcript: Transcript) -> str | ToolCall:
        if len(transcript) > 1:
            results = json.loads(transcript[-1].text)["results"]
            return str(sum(int(result["output"]) for result in results))
        tasks = [{"goal": f"{transcript[0].text}, {part}"} for part in parts]
        return ToolCall("delegate_task", {"tasks": tasks})

    return Agent(
        name,
        instructions=f"Hand these on, each as a task of its own: {', '.join(parts)}."
        " Add up what they cost in euros.",
        output=int,
        model=NAMED or ScriptedModel.always(split_then_add_up, price=price),
        delegates=[team],
    )


clerk = Agent(
    "clerk",
    instructions="Estimate what this costs in euros. Answer with the number.",
    output=int,
    model=NAMED or ScriptedModel.always(look_up, price=QUICK),
)
carpenter = orchestrator_of(clerk, "carpenter", QUICK, "frame", "boards")
foreman = orchestrator_of(carpenter, "foreman", QUICK, "left side", "right side")
architect = orchestrator_of(foreman, "architect", STRONG, "walls", "roof")


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(usd=1, tasks=20, depth=3, name="garden house"):
            run = await orchestrator.run(architect, "A garden house")
        print(f"A garden house costs {run.output} euros.")
        for row in run.tree.rows():
            print(f"{row.branch + row.name:<28}{row.money}")
        print("by level:")
        used: defaultdict[str, Usage] = defaultdict(Usage)
        for task in run.tree:
            used[run.tree[task].agent] += run.tree[task].usage
        for level, usage in used.items():
            print(f"  {level:<10}{usd(usage)}")
        print(f"  {'all':<10}{usd(run.usage)} of $1")


if __name__ == "__main__":
    trio.run(main)

# prints:
# A garden house costs 3000 euros.
# architect                   $0.0334
# ├─ foreman[1]               $0.0105
# │  ├─ carpenter[1]          $0.0037
# │  │  ├─ clerk[1]           $0.0001
# │  │  └─ clerk[2]           $0.0001
# │  └─ carpenter[2]          $0.0037
# │     ├─ clerk[1]           $0.0001
# │     └─ clerk[2]           $0.0001
# └─ foreman[2]               $0.0104
#    ├─ carpenter[1]          $0.0036
#    │  ├─ clerk[1]           $0.0001
#    │  └─ clerk[2]           $0.0001
#    └─ carpenter[2]          $0.0037
#       ├─ clerk[1]           $0.0001
#       └─ clerk[2]           $0.0001
# by level:
#   architect $0.0125
#   foreman   $0.0062
#   carpenter $0.0139
#   clerk     $0.0008
#   all       $0.0334 of $1
