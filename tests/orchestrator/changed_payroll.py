"""A program that pays three people and dies, started again with changed code.

Arguments: the journal, the file of effects, the change, and `die` or `go` or `accept`.
"""

import json
import os
import signal
import sys
import time
from typing import Literal

import trio

from orchestrator import Agent, ScriptedModel, ToolCall, agent, delegate, open_orchestrator, tool
from orchestrator.agents import Transcript
from orchestrator.ports.errors import ChangedProgramError

JOURNAL, EFFECTS, CHANGE, MODE = sys.argv[1:5]


@tool
async def send_money(to: str) -> str:
    """Send money, which must not be done twice."""
    await trio.lowlevel.checkpoint()
    file = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{to}\n".encode())
    os.fsync(file)
    os.close(file)
    return f"sent to {to}"


def next_step(transcript: Transcript) -> str | ToolCall:
    if len(transcript) > 1:
        return "done"
    return ToolCall("send_money", {"to": transcript[0].text.split()[1]})


NAMES = {
    "goal": ["Ann", "Bob", "Cyd"],
    "removed": ["bob", "cyd"],
    "inserted": ["zoe", "ann", "bob", "cyd"],
    "appended": ["ann", "bob", "cyd", "dan"],
}
payer = Agent(
    "payer",
    model=ScriptedModel.always(next_step),
    tools=[send_money],
    instructions="Pay with care." if CHANGE == "instructions" else "Pay.",
)


@agent
async def payroll(month: str) -> str:
    names = NAMES.get(CHANGE, ["ann", "bob", "cyd"])
    when = f" at {time.time_ns()}" if CHANGE == "time" else ""
    for name in names:
        await delegate(payer, f"pay {name} for {month}{when}")
        if MODE == "die" and name == "bob":
            os.kill(os.getpid(), signal.SIGKILL)
    return "paid " + ", ".join(names)


async def main() -> None:
    on_change: Literal["accept", "refuse"] = "accept" if MODE == "accept" else "refuse"
    async with open_orchestrator(JOURNAL, runs="durable", on_change=on_change) as orchestrator:
        try:
            run = await orchestrator.run(payroll, "november")
        except ChangedProgramError as exc:
            print(json.dumps({"refused": str(exc), "run": exc.run}))
        else:
            print(json.dumps({"output": run.output, "note": run.outcome.note}))


if __name__ == "__main__":
    trio.run(main)
