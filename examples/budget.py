"""A fan-out under a budget that is used up: how many tasks it paid for, and what the tree shows.

The upper bound of each call is reserved before the call, so however many tasks run at once,
together they never exceed the budget. Which tasks are paid for is random; how many is not.
"""

import json
from collections import Counter

import trio
from models import NAMED

from orchestrator import Agent, ScriptedModel, ToolCall, Transcript, Tree, budget, open_orchestrator
from orchestrator.models import Price

PRICE = Price(input=3, output=15)  # dollars for a million tokens
CITIES = ["Athens", "Bergen", "Cairo", "Dakar", "Essen", "Fez", "Genoa", "Havana"]


def merge(transcript: Transcript) -> str:
    results = json.loads(transcript[-1].text)["results"]
    known = [result["output"] for result in results if result["status"] == "succeeded"]
    return f"{len(known)} of {len(results)} cities: {known[0]}"


def editor() -> Agent:
    guide = Agent(
        "guide",
        instructions="Say in one sentence why to go there.",
        model=NAMED
        or ScriptedModel.always(lambda transcript: f"{transcript[0].text} is lovely.", price=PRICE),
    )
    tasks = [{"goal": city} for city in CITIES]
    return Agent(
        "editor",
        instructions=f"Have a guide for each of these, in one call: {', '.join(CITIES)}.",
        model=NAMED
        or ScriptedModel([ToolCall("delegate_task", {"tasks": tasks}), merge], price=PRICE),
        delegates=[guide],
    )


def show(tree: Tree) -> None:
    root, *guides = tree.rows()
    print(f"  {root.name}: {root.glyph} {root.status}")
    for (glyph, status), many in sorted(Counter((g.glyph, g.status) for g in guides).items()):
        print(f"  {many} guides: {glyph} {status}")
    print(f"  {tree.total.calls} model calls")


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        # One call to delegate, eight guides, one call to merge: that would be ten.
        with budget(calls=6, usd=0.50, name="trip"):
            run = await orchestrator.run(editor(), "Where shall we go?")
        print(f"{run.outcome.ending}, for want of {run.outcome.kind}")
        print(run.outcome.error)
        show(run.tree)
        print("  less than half a dollar:", 0 < run.usage.micro_usd < 500_000)

        # Budgets nest, and an inner one only tightens: both trips share the day's.
        with budget(calls=14, name="day"):
            for season in ("summer", "winter"):
                with budget(calls=10, name=season):
                    run = await orchestrator.run(editor(), f"And in {season}?")
                print(f"{season}: {run.outcome.output or run.outcome.error}")
                show(run.tree)


if __name__ == "__main__":
    trio.run(main)

# prints:
# over_budget, for want of calls
# the budget 'trip' (usd=0.5, calls=6) of /editor is used up: 6 model calls made
#   editor: ✗ over_budget
#   5 guides: ✓ succeeded
#   3 guides: ✗ over_budget
#   6 model calls
#   less than half a dollar: True
# summer: 8 of 8 cities: Athens is lovely.
#   editor: ✓ succeeded
#   8 guides: ✓ succeeded
#   10 model calls
# winter: the budget 'day' (calls=14) of /editor is used up: 14 model calls made
#   editor: ✗ over_budget
#   3 guides: ✓ succeeded
#   5 guides: ✗ over_budget
#   4 model calls
