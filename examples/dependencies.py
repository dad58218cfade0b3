"""Two researchers, then a writer, then a reviewer: one batch, ordered by dependencies.

A task starts when the tasks that it `depends_on` have succeeded, and reads their outputs.
Dependencies are part of the executed tree: the thick arrows.
"""

import json

import trio
from models import NAMED

from orchestrator import Agent, ScriptedModel, ToolCall, Transcript, open_orchestrator

TASKS = [
    {"label": "sun", "agent": "researcher", "goal": "When does the sun rise?"},
    {"label": "tide", "agent": "researcher", "goal": "When is high tide?"},
    {"label": "plan", "agent": "writer", "goal": "Plan a swim.", "depends_on": ["sun", "tide"]},
    {"label": "check", "agent": "reviewer", "goal": "Is the plan safe?", "depends_on": ["plan"]},
]
FACTS = {"When does the sun rise?": "At 6:10.", "When is high tide?": "At 7:00."}


def research(transcript: Transcript) -> str:
    return FACTS[transcript[0].text]


def write(transcript: Transcript) -> str:
    """Use the outputs of the dependencies, which are in the writer's input."""
    _, *needed = transcript[0].text.split("\n\n")
    sun, tide = (output.splitlines()[-1] for output in needed)
    return f"Sunrise: {sun} High tide: {tide} Swim at 6:30."


def review(transcript: Transcript) -> str:
    return f"Safe. I read: {transcript[0].text.splitlines()[-1]!r}"


def report(transcript: Transcript) -> str:
    results = json.loads(transcript[-1].text)["results"]
    return "\n".join(f"{result['label']}: {result['output']}" for result in results)


editor = Agent(
    "editor",
    instructions="In one call, have two facts researched, a plan written that needs both, and"
    " the plan reviewed. Report what each says.",
    model=NAMED or ScriptedModel([ToolCall("delegate_task", {"tasks": TASKS}), report]),
    delegates=[
        Agent("researcher", model=NAMED or ScriptedModel.always(research)),
        Agent("writer", model=NAMED or ScriptedModel([write])),
        Agent("reviewer", model=NAMED or ScriptedModel([review])),
    ],
)


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(editor, "Plan a swim for tomorrow.")
        print(run.output)
        print(run.tree.to_mermaid())


if __name__ == "__main__":
    trio.run(main)


# prints:
# sun: At 6:10.
# tide: At 7:00.
# plan: Sunrise: At 6:10. High tide: At 7:00. Swim at 6:30.
# check: Safe. I read: 'Sunrise: At 6:10. High tide: At 7:00. Swim at 6:30.'
# flowchart LR
#   n0["✓ editor<br/>Plan a swim for tomorrow."]:::ok
#   n1["✓ researcher[1]<br/>sun"]:::ok
#   n0 --> n1
#   n2["✓ researcher[2]<br/>tide"]:::ok
#   n0 --> n2
#   n3["✓ writer[1]<br/>plan"]:::ok
#   n0 --> n3
#   n4["✓ reviewer[1]<br/>check"]:::ok
#   n0 --> n4
#   n1 ==> n3
#   n2 ==> n3
#   n3 ==> n4
#   classDef ok stroke:#1a7f37,stroke-width:2px
