"""A team whose tools have state on their machine: loaded by `orchestrator worker`, and by writers.

`EFFECTS` names the log of effects. A goal is the path of a named pipe, at which the second step of
a turn stands until the pipe is closed at the other end; or it is empty.
"""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from orchestrator.agents import Agent, CallKey, ScriptedModel, ToolCall, Transcript, allow, tool
from orchestrator.agents.tools.context import current_tool_context
from orchestrator.agents.tools.terminal import process, terminal

STEPS = 3
taken: Counter[int] = Counter()
"""The steps of each turn in this process."""


@tool
def step(gate: str, key: CallKey) -> str:
    """Take a step, and say which one it is in the turn of this process."""
    file = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"step {key} {os.getpid()}\n".encode())
    os.fsync(file)
    os.close(file)
    turn = id(current_tool_context().seen_files)
    taken[turn] += 1
    if gate:
        Path(gate).read_text()
    return f"{os.getpid()}:{taken[turn]}"


def _next(transcript: Transcript) -> str | Sequence[ToolCall]:
    asked = len(transcript) // 2
    if asked == 0:
        # It outlives its call, and not its turn.
        return [ToolCall("terminal", {"command": "sleep 1000", "background": True})]
    if asked <= STEPS:
        gate = transcript[0].text if asked == 2 else ""
        return [ToolCall("step", {"gate": gate})]
    if asked == STEPS + 1:
        return [ToolCall("process", {"action": "list"})]
    return "\n".join(message.text for message in transcript[2::2])


climber = Agent(
    "climber",
    model=ScriptedModel.always(_next),
    tools=[step, terminal, process],
    approve=[allow("*")],
    place="gpu",
)
restarter = Agent(
    "restarter",
    model=ScriptedModel.always(_next),
    tools=[step, terminal, process],
    approve=[allow("*")],
    place="gpu",
    on_restart="restart",
)
