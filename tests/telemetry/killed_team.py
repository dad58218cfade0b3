"""A program that is killed in the middle of its run, and continues it when it is started again.

`python -m tests.telemetry.killed_team JOURNAL ADDRESS` prints the run and its tokens.
"""

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

import trio

from orchestrator import Agent, ScriptedModel, ToolCall, open_orchestrator, tool
from orchestrator.products.telemetry.exporter import DELAY_SECONDS
from tests.mcp.conformance_agents import calls_then

GOALS = [("finder", "Find it"), ("breaker", "Break it"), ("killer", "Kill it")]


def team(journal: Path) -> Agent:
    """Return an agent whose three tasks find an answer, fail, and kill the process once."""

    @tool(idempotent=True)
    async def kill_once() -> str:
        """Kill the process, the first time."""
        killed = journal.with_suffix(".killed")
        if not await trio.Path(killed).exists():
            await trio.Path(killed).touch()
            # The spans of the other two tasks are sent by then.
            await trio.sleep(3 * DELAY_SECONDS)
            os.kill(os.getpid(), signal.SIGKILL)
        return "survived"

    @tool
    def break_task() -> NoReturn:
        """Break the task."""
        raise RuntimeError("the tool is broken")

    models = {
        "finder": ScriptedModel.always("Found it."),
        "breaker": ScriptedModel.always(ToolCall("break_task")),
        "killer": calls_then("Survived.", ToolCall("kill_once")),
    }
    tools = {"breaker": [break_task], "killer": [kill_once]}
    tasks = [{"agent": name, "goal": goal} for name, goal in GOALS]
    return Agent(
        "lead",
        model=calls_then("Done.", ToolCall("delegate_task", {"tasks": tasks})),
        delegates=[Agent(it, model=models[it], tools=tools.get(it, ())) for it, _ in GOALS],
    )


async def main() -> None:
    journal = Path(sys.argv[1])
    async with open_orchestrator(journal, runs="durable", telemetry=sys.argv[2]) as orchestrator:
        run = await orchestrator.run(team(journal), "Do it")
        print(run.id, run.usage.input_tokens, run.usage.output_tokens)


if __name__ == "__main__":
    trio.run(main)
