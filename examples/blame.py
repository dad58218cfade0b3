"""Which task was to blame: each researcher is corrected in forks that keep the work of the others.

The forks ask no model for the kept tasks. `orchestrator blame` does the same from the command line.
"""

import trio
from models import NAMED

from orchestrator import Agent, ScriptedModel, ToolCall, Transcript, open_orchestrator
from orchestrator.evaluation import TaskResult, blame, coordination

FACTS = {"height": "330 m", "year": "1898", "architect": "Stephen Sauvestre"}
RIGHT = {**FACTS, "year": "1889"}


def research(transcript: Transcript) -> str:
    topic = transcript[0].text.splitlines()[-1]
    return f"{topic}: {FACTS.get(topic, 'unknown')}"


def edit(transcript: Transcript) -> str | ToolCall:
    if len(transcript) > 1:
        return transcript[-1].text
    return ToolCall("delegate_task", {"tasks": [{"goal": topic} for topic in FACTS]})


researcher = Agent("researcher", model=NAMED or ScriptedModel.always(research))
editor = Agent("editor", model=NAMED or ScriptedModel.always(edit), delegates=[researcher])


def correct(result: TaskResult) -> bool:
    return all(fact in result.answer for fact in RIGHT.values())


async def main() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(editor, "Describe the Eiffel Tower.")
        answers = {
            f"/editor/researcher[{number}]": f"{topic}: {fact}"
            for number, (topic, fact) in enumerate(RIGHT.items(), 1)
        }
        report = await blame(orchestrator, editor, run.id, correct, answers=answers)
        for effect in report.effects:
            print(effect)
        for line in coordination(await orchestrator.read.entries(run.id)).lines():
            print(line)


if __name__ == "__main__":
    trio.run(main)

# prints:
# * /editor/researcher[2]: +1.00 [+0.54, +1.00] by 6 forks
#   /editor/researcher[1]: +0.00 [+0.00, +0.46] by 6 forks
#   /editor/researcher[3]: +0.00 [+0.00, +0.46] by 6 forks
# overhead +400% (5 model answers, one agent needs about 1)
# messages 1.20 per answer
# redundancy 0.00 between siblings
