"""A recorded run, replayed without a model, and forked: one task runs again, the rest is kept.

A replay checks that new code still does what the journal says. A fork answers "what if": here the
second reader gets another model, and only its call and the editor's last one are paid for.
"""

import attrs
import trio
from models import NAMED

from orchestrator import (
    Agent,
    MemoryJournal,
    ScriptedModel,
    ToolCall,
    Transcript,
    open_orchestrator,
)
from orchestrator.history import replay


def edit(transcript: Transcript) -> str | ToolCall:
    if len(transcript) == 1:
        goals = [{"goal": "Read the first half."}, {"goal": "Read the second half."}]
        return ToolCall("delegate_task", {"tasks": goals})
    return "Publish it." if transcript[-1].text.count("good") == 2 else "Not yet."


def read(transcript: Transcript) -> str:
    return "It is good." if "first" in transcript[-1].text else "It is dull."


reader = Agent("reader", model=NAMED or ScriptedModel.always(read))
editor = Agent(
    "editor",
    instructions="Have both halves read, and decide.",
    model=NAMED or ScriptedModel.always(edit),
    delegates=[reader],
)


def with_kinder_reader(agent: Agent) -> Agent:
    """Return an agent of the fork: the reader has another model."""
    if agent.name != "reader":
        return agent
    return attrs.evolve(agent, model=NAMED or ScriptedModel.always("It is good."))


async def main() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(editor, "Can we publish?")
        print(run.output, f"({run.usage.calls} calls)")

        replayed = await replay(journal.entries, editor)
        print(f"{replayed.tasks} tasks replayed, difference: {replayed.difference}")

        second = "/editor/reader[2]"
        fork = await orchestrator.fork(editor, run.id, only=second, change=with_kinder_reader)
        print(fork.output, f"({fork.usage.calls} more calls)")


if __name__ == "__main__":
    trio.run(main)


# prints:
# Not yet. (4 calls)
# 3 tasks replayed, difference: None
# Publish it. (2 more calls)
