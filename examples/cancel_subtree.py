"""One branch of a run is cancelled from outside; the results of the others, and all costs, stay.

`cancel` returns when the task and its descendants have settled. `settled` waits for all tasks,
whatever their outcome, so the survey returns the results that there are.
"""

import trio
from models import NAMED

from orchestrator import (
    Agent,
    Orchestrator,
    ScriptedModel,
    ToolCall,
    Transcript,
    Tree,
    map_each,
    open_orchestrator,
    tool,
)
from orchestrator.models import Price

REGIONS = (("Alder", "Birch", "Cedar"), ("Downs", "Quay", "Elms"))
CLOSED = "Quay"
STOCK = {"Alder": 31, "Birch": 12, "Cedar": 20, "Downs": 8, "Elms": 44}
PRICE = Price(input=3, output=15)  # dollars for a million tokens


@tool
async def visit(shop: str) -> int:
    """Return how many bicycles a shop has."""
    if shop == CLOSED:
        await trio.sleep_forever()
    return STOCK.get(shop, 0)


def count(transcript: Transcript) -> str | ToolCall:
    if len(transcript) == 1:
        return ToolCall("visit", {"shop": transcript[0].text})
    return transcript[-1].text


counter = Agent(
    "counter",
    instructions="Visit the shop, and answer with the number of bicycles that it has.",
    output=int,
    model=NAMED or ScriptedModel.always(count, price=PRICE),
    tools=[visit],
)
region = map_each(counter).named("region")
survey = map_each(region).settled().named("survey")


def has_ended(tree: Tree, shop: str) -> bool:
    return any(tree[task].goal == shop and tree[task].ended for task in tree)


async def cancel_what_is_stuck(orchestrator: Orchestrator) -> None:
    """Wait until all shops but the closed one are counted, and end its region."""
    seen = 0
    while True:
        seen = await orchestrator.wait_changed(after=seen)
        tree = orchestrator.tree(orchestrator.runs[0])
        if all(has_ended(tree, shop) for shop in STOCK):
            break
    stuck = next(task for task in tree if tree[task].path == "/survey/region[2]")
    await orchestrator.cancel(stuck)
    below = ", ".join(tree[task].status for task in tree.children(stuck))
    print("When cancel returns, all below has ended:", below)


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_what_is_stuck, orchestrator)
            run = await orchestrator.run(survey, REGIONS)
        for one in run.output:
            found = f"{sum(one.result())} bicycles" if one.succeeded else one.error
            print(f"{one.path} {one.ending}: {found}")
        for row in run.tree.rows():
            print(f"{row.branch + row.name:<24}{row.status:<10} {row.money}")


if __name__ == "__main__":
    trio.run(main)

# prints:
# When cancel returns, all below has ended: succeeded, cancelled, succeeded
# /survey/region[1] succeeded: 63 bicycles
# /survey/region[2] cancelled: it was stopped
# survey                  succeeded  $0.0014
# ├─ region[1]            succeeded  $0.0008
# │  ├─ counter[1]        succeeded  $0.0003
# │  ├─ counter[2]        succeeded  $0.0003
# │  └─ counter[3]        succeeded  $0.0003
# └─ region[2]            cancelled  $0.0006
#    ├─ counter[1]        succeeded  $0.0003
#    ├─ counter[2]        cancelled  $0.0001
#    └─ counter[3]        succeeded  $0.0002
