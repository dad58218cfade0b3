"""The team that clients of others talk to: the prompt says what the lead does."""

import trio

from orchestrator import Agent, ScriptedModel, ToolCall, confirm, tool
from orchestrator.agents import Transcript, UserMessage
from orchestrator.testing import SpyModel
from orchestrator.tools import FILES

print("A line for stderr.")


@tool
async def wait_for_ever() -> str:
    """Wait."""
    await trio.sleep_forever()
    raise AssertionError


def write(transcript: Transcript) -> str | ToolCall:
    if isinstance(transcript[-1], UserMessage):
        return ToolCall("write_file", {"path": "notes.md", "content": "# Notes\n42\n"})
    return "The notes are written."


def lead_step(transcript: Transcript) -> str | ToolCall:
    last = transcript[-1]
    word = last.text.partition(" ")[0] if isinstance(last, UserMessage) else ""
    match word:
        case "write":
            tasks = [{"agent": "writer", "goal": "Write the notes."}]
            return ToolCall("delegate_task", {"tasks": tasks, "background": False})
        case "wait":
            tasks = [{"agent": "waiter", "goal": "Wait."}]
            return ToolCall("delegate_task", {"tasks": tasks, "background": False})
        case "later":
            tasks = [{"agent": "slow", "goal": "Find the answer."}]
            return ToolCall("delegate_task", {"tasks": tasks, "background": True})
        case "A":
            return "The answer is there: 42."
        case "":
            return "All is done."
        case _:
            return f"You said: {last.text}"


writer = Agent("writer", model=ScriptedModel.always(write), tools=FILES)
waiter = Agent(
    "waiter", model=ScriptedModel.always(ToolCall("wait_for_ever", {})), tools=[wait_for_ever]
)
slow = Agent("slow", model=ScriptedModel.always("42", seconds=0.5))
lead = Agent(
    "lead",
    model=ScriptedModel.always(lead_step),
    models=[SpyModel("of the other model", name="other")],
    delegates=[writer, waiter, slow],
    approve=[confirm("write_file")],
)
