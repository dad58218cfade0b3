"""One budget for several processes: they share the model calls of a month.

Each process has a journal of its own in the same folder, and all of them have one account. Here
both are in one program; two programs that name the same folder do the same.
"""

import tempfile

import trio
from models import NAMED

from orchestrator import Agent, Orchestrator, ScriptedModel, budget, open_orchestrator

guide = Agent(
    "guide",
    instructions="Say in one sentence why to go there.",
    model=NAMED or ScriptedModel.always(lambda transcript: f"{transcript[0].text} is lovely."),
)


async def ask(process: str, orchestrator: Orchestrator, city: str) -> None:
    # The same limits, by the same name, in every process.
    with budget(calls=3, shared="travel desk", every="month", zone="Europe/Vienna"):
        run = await orchestrator.run(guide, city)
    print(f"{process}, {city}: {run.outcome.ending}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        journals = f"{folder}/"
        async with open_orchestrator(journals) as one, open_orchestrator(journals) as two:
            await ask("process 1", one, "Athens")
            await ask("process 2", two, "Bergen")
            await ask("process 1", one, "Cairo")
            await ask("process 2", two, "Dakar")


if __name__ == "__main__":
    trio.run(main)

# prints:
# process 1, Athens: succeeded
# process 2, Bergen: succeeded
# process 1, Cairo: succeeded
# process 2, Dakar: over_budget
