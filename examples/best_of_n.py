"""The best of five: one agent is asked five times at once, and a judge picks.

The judge is an agent that reads all candidates, or a plain function that rates one of them.
"""

import json

import trio
from models import NAMED

from orchestrator import Agent, ScriptedModel, Transcript, best, open_orchestrator

SUBJECTS = [
    "Newsletter #7",
    "You won't believe what we built!!!",
    "Version 2.0: background tasks that survive a crash",
    "An update",
    "Many improvements and bug fixes in our new and much improved version 2.0",
]


def judge_them(transcript: Transcript) -> str:
    """Answer with the number of the one that says what is new."""
    answers = json.loads(transcript[0].text)["answers"]
    return str(1 + next(at for at, it in enumerate(answers) if "survive" in it))


writer = Agent(
    "writer",
    instructions="Write one subject line for this announcement, and nothing else.",
    model=NAMED or ScriptedModel(SUBJECTS * 2),
)
judge = Agent(
    "judge",
    instructions="Which subject line tells best what is new? Answer with its number.",
    output=int,
    model=NAMED or ScriptedModel.always(judge_them),
)
subject = best(writer, of=5, by=judge).named("subject")


def shortness(line: str) -> float:
    return -len(line)


async def main() -> None:
    goal = "Version 2.0: tasks in the background go on after a crash."
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(subject, goal)
        print("the judge picks:", run.output)
        for row in run.tree.rows():
            print(f"{row.branch}{row.name} {row.glyph}")
        run = await orchestrator.run(best(writer, of=5, by=shortness), goal)
        print("the shortest:", run.output)


if __name__ == "__main__":
    trio.run(main)

# prints:
# the judge picks: Version 2.0: background tasks that survive a crash
# subject ✓
# ├─ writer[1] ✓
# ├─ writer[2] ✓
# ├─ writer[3] ✓
# ├─ writer[4] ✓
# ├─ writer[5] ✓
# └─ judge[1] ✓
# the shortest: An update
