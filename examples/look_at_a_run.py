"""A run that has ended, looked at from all sides: text, totals, the critical path, another run.

`orchestrator report`, `orchestrator tree` and the console show the same from the command line.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import trio
from models import NAMED

from orchestrator import Agent, ScriptedModel, Transcript, map_each, open_orchestrator


def read(transcript: Transcript) -> str:
    return f"Notes on {transcript[-1].text}."


plan = Agent("plan", model=NAMED or ScriptedModel.always('["tides", "wind"]'), output=list[str])
longer = Agent(
    "plan", model=NAMED or ScriptedModel.always('["tides", "wind", "sun"]'), output=list[str]
)
research = Agent("research", model=NAMED or ScriptedModel.always(read))
brief = (plan >> map_each(research)).named("brief")
larger = (longer >> map_each(research)).named("brief")


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(brief, "A swim")
        for row in run.tree.rows():
            print(f"{row.branch}{row.name} {row.glyph}")
        print(run.usage.calls, "calls of models,", len(run.tree), "tasks")

        names = [run.tree[task].agent for task in run.tree.critical_path().tasks]
        print("the critical path ends with", names[-1])

        with TemporaryDirectory() as folder:
            picture = Path(folder) / "run.svg"
            picture.write_text(run.tree.to_svg())
            print("a picture:", picture.name)

        other = await orchestrator.run(larger, "A swim")
        for change in run.tree.diff(other.tree):
            before, after = change.before.tally.tasks, change.after.tally.tasks
            if before != after:
                print(f"{change.role}: {before} → {after} tasks")


if __name__ == "__main__":
    trio.run(main)


# prints:
# brief ✓
# ├─ plan[1] ✓
# └─ map_each[1] ✓
#    ├─ research[1] ✓
#    └─ research[2] ✓
# 3 calls of models, 5 tasks
# the critical path ends with research
# a picture: run.svg
# /brief/map_each/research: 2 → 3 tasks
