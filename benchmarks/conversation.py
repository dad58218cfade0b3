"""A long conversation: what a turn costs at its end, and how long it takes to open it.

`python -m benchmarks.conversation` prints these lines alone.
"""

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Final

import trio

from benchmarks import workloads
from benchmarks.journal import long_talk, write_journal
from benchmarks.measure import Cost, Report
from orchestrator.agents import Agent, AssistantMessage, Model, ModelRequest, ToolCall, Usage, tool

TURNS: Final = (10, 1_000, 2_500)
SAMPLES: Final = 9
FACTS: Final = 100_000
OPENING_MS: Final = 500


class Repeating:
    """A model that gives the same answers again and again, and looks at nothing."""

    name = "repeating"

    def __init__(self, *answers: AssistantMessage) -> None:
        self._answers = answers
        self._given = 0

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        self._given += 1
        return self._answers[self._given % len(self._answers)]


@tool
async def look() -> str:
    """Look."""
    await trio.lowlevel.checkpoint()
    return "found"


def plain() -> Agent:
    return Agent("plain", model=Repeating(_said("x")))


def with_tool() -> Agent:
    model: Model = Repeating(_said("x"), _said("", ToolCall("look")))
    return Agent("tool", model=model, tools=[look])


def with_child() -> Agent:
    child = Agent("child", model=Repeating(_said("x")))
    model: Model = Repeating(_said("x"), _said("", workloads.hand_on(1)))
    return Agent("parent", model=model, delegates=[child])


def _said(text: str, *calls: ToolCall) -> AssistantMessage:
    return AssistantMessage(text, calls, Usage(calls=1, output_tokens=1))


async def turns_of(agent: Agent, *, durable: bool) -> list[Cost]:
    """Return the best of some turns around each number of `TURNS`."""
    costs: list[Cost] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db" if durable else None
        async with (
            workloads.opened(path) as orchestrator,
            orchestrator.open_session(agent) as session,
        ):
            turns = 0
            for number in TURNS:
                while turns < number - SAMPLES:
                    await session.ask("go on")
                    turns += 1
                best: Cost | None = None
                for _ in range(SAMPLES):
                    cpu, wall = time.process_time(), time.perf_counter()
                    await session.ask("go on")
                    cost = Cost(time.process_time() - cpu, time.perf_counter() - wall)
                    best = cost if best is None else best.best(cost)
                    turns += 1
                assert best is not None
                costs.append(best)
    return costs


def measure_conversation(report: Report) -> None:
    for agent, what in ((plain, ""), (with_tool, ", a tool"), (with_child, ", a child")):
        for durable in (False, True):
            where = "on disk" if durable else "in memory"
            first, *later = trio.run(partial(turns_of, agent(), durable=durable))
            for number, cost in zip(TURNS[1:], later, strict=True):
                name = f"turn {number:,}{what}, {where}, against turn {TURNS[0]}"
                report.compare(name, first, cost, times=1, target=1.5)
    measure_opening(report)


def measure_opening(report: Report) -> None:
    """Compare the CPU time: the elapsed time of a moment depends on what else runs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        write_journal(path, long_talk(FACTS))
        # The first one folds all facts, and writes the snapshot that the second one reads.
        folded, restored = _open_in_new_process(path), _open_in_new_process(path)
        name = f"opening a session of {FACTS:,} facts, against without snapshot"
        report.add(name, folded, restored, unit="ms")
        report.add("  against 0.5 s", OPENING_MS, restored, unit="ms", target=1)


def _open_in_new_process(path: Path) -> float:
    command = [sys.executable, "-m", "benchmarks.conversation", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


async def _open(path: Path) -> float:
    """Open the journal and its session, and return how many milliseconds that took."""
    async with workloads.opened() as orchestrator:
        # The first run imports what the others need.
        await workloads.delegate(orchestrator, 1)
    began = time.process_time()
    async with workloads.opened(path) as orchestrator:
        (id_,) = orchestrator.read.session_ids
        talker = Agent("talker", model=Repeating(_said("x")))
        async with orchestrator.open_session(talker, session=id_) as session:
            took = time.process_time() - began
            await session.ask("go on")
    return took * 1_000


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(trio.run(_open, Path(sys.argv[1])))
    else:
        measure_conversation(Report())
