"""A programmer that claims more than it did: its editor reads the evidence next to the claim.

The evidence is made of the answers of the programmer's tools, and not of its words. `checks`
requires some of it: the second programmer cannot answer before its tests have passed.
"""

import json
import tempfile

import trio
from models import NAMED

from orchestrator import (
    Agent,
    Limits,
    Machine,
    ScriptedModel,
    ToolCall,
    Transcript,
    allow,
    open_orchestrator,
)
from orchestrator.tools import FILES, ran, terminal, wrote

CLAIM = "I wrote sum.py, and all tests pass."


def write(file: str) -> ToolCall:
    return ToolCall("write_file", {"path": file, "content": "def add(): ...\n"})


def test(exit_code: int) -> ToolCall:
    return ToolCall("terminal", {"command": f"exit {exit_code} # pytest"})


def delegate_both() -> ToolCall:
    tasks = [{"goal": "Write sum.py.", "agent": name} for name in ("hasty", "checked")]
    return ToolCall("delegate_task", {"tasks": tasks})


def report(transcript: Transcript) -> str:
    """Put the evidence under each claim."""
    results = json.loads(transcript[-1].text)["results"]
    return "\n".join(
        f"{it['agent']}: {it['output']}\n" + "\n".join(f"  {fact}" for fact in it["evidence"])
        for it in results
    )


TOOLS = [*FILES, terminal]
hasty = Agent(
    "hasty",
    instructions="Write the program, and run its tests.",
    model=NAMED or ScriptedModel([write("sum.py"), test(1), CLAIM]),
    tools=TOOLS,
    approve=[allow("*")],
)
checked = Agent(
    "checked",
    instructions="Write the program, and run its tests.",
    model=NAMED
    or ScriptedModel([CLAIM, write("add.py"), CLAIM, test(1), CLAIM, test(0), "It is done."]),
    tools=TOOLS,
    approve=[allow("*")],
    checks=[wrote("*.py"), ran("pytest", exit_code=0)],
    limits=Limits(repairs=3),
)
editor = Agent(
    "editor",
    instructions="Have both write a program, and report what they did, not what they say.",
    model=NAMED or ScriptedModel([delegate_both(), report]),
    delegates=[hasty, checked],
)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(workspace=folder)
        async with open_orchestrator(":memory:", machine=machine) as orchestrator:
            run = await orchestrator.run(editor, "Write a program that adds numbers.")
            print(run.output)


if __name__ == "__main__":
    trio.run(main)

# prints:
# hasty: I wrote sum.py, and all tests pass.
#   tool calls: write_file 1, terminal 1
#   created sum.py (+1 -0 lines, sha256 838820a121c0)
#   ran `exit 1 # pytest` (tests): exit code 1
# checked: It is done.
#   tool calls: write_file 1, terminal 2
#   created add.py (+1 -0 lines, sha256 838820a121c0)
#   ran `exit 1 # pytest` (tests): exit code 1
#   ran `exit 0 # pytest` (tests): exit code 0
