"""An offer made of four results: each task starts when the tasks that it needs have succeeded.

The function requests all tasks at once. `after` makes a graph of them, and the outputs of the
dependencies are the typed input of the next task.
"""

import attrs
import trio
from models import NAMED

from orchestrator import Agent, ScriptedModel, agent, delegate, detach, open_orchestrator


@attrs.frozen
class Needs:
    items: list[str]


@attrs.frozen
class Price:
    item: str
    euros: int


analyst = Agent(
    "analyst",
    instructions="List the items that the customer needs.",
    model=NAMED or ScriptedModel.always('{"items": ["pump", "tank"]}', 0.02),
    output=Needs,
)
stock = Agent(
    "stock",
    instructions="Give one item, and its price in euros.",
    model=NAMED or ScriptedModel.always('{"item": "pump", "euros": 900}', 0.01),
    output=Price,
)
lawyer = Agent(
    "lawyer",
    instructions="Name the terms of an offer in one sentence.",
    model=NAMED or ScriptedModel.always("Valid for 30 days.", 0.03),
)
writer = Agent(
    "writer",
    instructions="Write the offer to the customer, in one sentence.",
    model=NAMED or ScriptedModel.always("A pump for 900 euros. Valid for 30 days.", 0.01),
)


@agent
async def check(given: tuple[Needs, Price]) -> str:  # noqa: RUF029 (an agent is async)
    """Compare the needs with the price that was found."""
    needs, price = given
    missing = [it for it in needs.items if it != price.item]
    return f"{price.item}: {price.euros} euros; not priced: {', '.join(missing) or 'nothing'}"


@agent
async def offer(wish: str) -> str:
    needs = await detach(analyst, wish)
    price = await detach(stock, after=needs)
    checked = await detach(check, after=(needs, price))
    terms = await detach(lawyer, wish)
    return await delegate(writer, f"Answer this wish: {wish}", after=[checked, terms])


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(offer, "Heat my house.")
        print(run.output)
        for row in run.tree.rows():
            print(f"{row.branch}{row.name} {row.glyph} {row.about}")


if __name__ == "__main__":
    trio.run(main)

# prints:
# A pump for 900 euros. Valid for 30 days.
# offer ✓ Heat my house.
# ├─ analyst[1] ✓ Heat my house.
# ├─ stock[1] ✓ (after analyst[1])
# ├─ check[1] ✓ (after analyst[1], stock[1])
# ├─ lawyer[1] ✓ Heat my house.
# └─ writer[1] ✓ Answer this wish: Heat my house. (after check[1], lawyer[1])
