"""A conversation whose tasks go on in the background: steered, cancelled, and within a budget.

The tasks are found in the tree by the labels that their parent gave them. `steer` sends a message
to a task that runs; `cancel` returns when it has ended. Each end wakes the parent, whose next reply
comes on `session.replies`. All of it is paid from one budget.
"""

import trio
from models import NAMED

from orchestrator import (
    Agent,
    ScriptedModel,
    Session,
    ToolCall,
    Transcript,
    budget,
    open_orchestrator,
    tool,
)
from orchestrator.models import Price

PRICE = Price(input=3, output=15)  # dollars for a million tokens
SHOPS = ("north", "south")
MORNING = trio.Event()


@tool
async def visit(shop: str) -> str:
    """Go to a shop, when it opens, and count its bicycles."""
    await MORNING.wait()
    return {"north": "31", "south": "12"}.get(shop, "none")


def count(transcript: Transcript) -> str | ToolCall:
    if len(transcript) == 1:
        return ToolCall("visit", {"shop": transcript[0].text})
    wishes = [it.text for it in transcript[2:] if it.text.startswith("Also")]
    return f"{transcript[2].text} bicycles ({len(wishes)} wish read)"


def lead(transcript: Transcript) -> str | ToolCall:
    if len(transcript) == 1:
        tasks = [{"goal": shop, "label": shop} for shop in SHOPS]
        return ToolCall("delegate_task", {"tasks": tasks, "background": True})
    last = transcript[-1].text
    if len(transcript) == 3:
        return "Both shops are being counted."
    return "One count was cancelled." if "cancelled" in last else "North has 31."


counter = Agent(
    "counter",
    instructions="Visit the shop, and answer with the number of its bicycles.",
    model=NAMED or ScriptedModel.always(count, price=PRICE),
    tools=[visit],
)
manager = Agent(
    "manager",
    instructions="Have each shop counted in the background, under its name as the label.",
    model=NAMED or ScriptedModel.always(lead, price=PRICE),
    delegates=[counter],
)


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(usd=0.10):
            async with orchestrator.open_session(manager) as session:
                print((await session.ask("Count north and south.")).text)
                (north,) = session.tree.find(label="north")
                (south,) = session.tree.find(label="south")
                await orchestrator.cancel(south)
                print((await session.replies.receive()).text)
                receipt = await orchestrator.steer(north, "Also count the tandems.")
                print(f"the message to {session.tree[north].path}: {receipt.state}")
                MORNING.set()
                print((await session.replies.receive()).text)
                show(session)


def show(session: Session) -> None:
    for row in session.tree.rows():
        print(f"{row.branch + row.name:<16} {row.status:<10} {row.mode}")
    print(f"within $0.10: {session.tree.total.usd < 0.10}")


if __name__ == "__main__":
    trio.run(main)

# prints:
# Both shops are being counted.
# One count was cancelled.
# the message to /manager/counter[1]: waiting
# North has 31.
# manager          succeeded  root
# ├─ counter[1]    succeeded  detached
# └─ counter[2]    cancelled  detached
# within $0.10: True
