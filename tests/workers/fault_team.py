"""A team whose worker dies at named points: loaded by `orchestrator worker`, and by the writer.

`EFFECTS` names the log of effects: every tool call appends to it, and waits until that is durable.
`POINTS` names a folder; a worker that reaches a point removes the file of that name from it, and
kills itself, which happens once for each file.
"""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import trio

from orchestrator.agents import Agent, CallKey, ScriptedModel, Tool, ToolCall, Transcript, tool
from orchestrator.agents.tools.tool import CURRENT_CALL_KEY
from orchestrator.kernel.loaded_file import MODULE
from orchestrator.products.cluster.work import Exchange, Request, WorkerMailbox
from orchestrator.products.cluster.worker.process import Worker
from orchestrator.products.cluster.worker.wire import BEGIN


def note_effect(what: str, key: str) -> None:
    file = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{what} {key} {os.getpid()}\n".encode())
    os.fsync(file)
    os.close(file)


def reach(point: str) -> None:
    try:
        Path(os.environ["POINTS"], point).unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


@tool(place="gpu")
async def launch(goal: str) -> str:
    """Launch: it must not happen twice."""
    reach(goal)
    note_effect("launch", CURRENT_CALL_KEY.get())
    await trio.sleep(0.1)
    return f"launched {goal}"


@tool(place="gpu")
async def paint(goal: str, key: CallKey) -> str:
    """Paint: it may happen twice, and has a key."""
    reach(goal)
    note_effect("paint", key)
    await trio.sleep(0.1)
    return f"painted {goal}"


@tool(place="gpu")
async def linger(goal: str) -> str:
    """Take a while, and must not happen twice."""
    note_effect("linger", CURRENT_CALL_KEY.get())
    await trio.sleep(float(goal.rsplit(maxsplit=1)[-1]))
    return f"lingered {goal}"


@tool(place="gpu")
def burn(goal: str) -> str:
    """Use the CPU for a while."""
    until = time.process_time() + float(goal.rsplit(maxsplit=1)[-1])
    while time.process_time() < until:
        sum(range(1000))
    return "burnt"


@tool(place="gpu")
def spawn(goal: str) -> str:
    """Start a process that outlives the call, and say which."""
    return str(subprocess.Popen(["/bin/sleep", "1000"]).pid)


def _leaf(name: str, used: Tool) -> Agent:
    return Agent(
        name,
        model=ScriptedModel.always(
            lambda transcript: (
                transcript[-1].text
                if len(transcript) > 1
                else ToolCall(used.name, {"goal": transcript[0].text})
            )
        ),
        tools=[used],
    )


LEAVES = [
    _leaf("launcher", launch),
    _leaf("painter", paint),
    _leaf("lingerer", linger),
    _leaf("burner", burn),
    _leaf("spawner", spawn),
]


def _calls(transcript: Transcript) -> str | list[ToolCall]:
    if len(transcript) > 1:
        return "\n".join(message.text for message in transcript[2:])
    return [
        ToolCall("delegate_task", {"agent": line.split()[0], "goal": line})
        for line in transcript[0].text.splitlines()
    ]


boss = Agent(
    "boss",
    instructions="Delegate each line of the goal to the agent that it names.",
    model=ScriptedModel.always(_calls),
    delegates=LEAVES,
)


class _DyingMailbox:
    """A mailbox around which a worker dies."""

    def __init__(self, mailbox: WorkerMailbox) -> None:
        self._mailbox = mailbox
        self.forget = mailbox.forget
        self.wait_stopped = mailbox.wait_stopped

    async def ask(self, request: Request) -> bytes:
        name = "begin" if request.number == BEGIN else "end"
        reach(f"before {name}")
        answer = await self._mailbox.ask(request)
        reach(f"after {name}")
        return answer


_init = Worker.__init__


def _with_dying_mailbox(
    self: Worker, exchange: Exchange, mailbox: WorkerMailbox, *args: Any, **keywords: Any
) -> None:
    _init(self, exchange, _DyingMailbox(mailbox), *args, **keywords)


# Only in the process of a worker: a test imports this file, too.
if __name__ == MODULE:
    Worker.__init__ = _with_dying_mailbox  # type: ignore[method-assign]
