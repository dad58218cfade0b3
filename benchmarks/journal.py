"""The cost of the journal: against plain SQLite, in flushes, and to open.

`python -m benchmarks.journal` prints only this. Journals of many facts are made from the facts of
real runs, with ids of their own. Opening is measured in a fresh process.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import trio
from msgspec.structs import replace

from benchmarks import floors, workloads
from benchmarks.footprint import resident
from benchmarks.measure import Cost, Report, cost_of, in_turn
from orchestrator import open_orchestrator
from orchestrator.agents import Agent, AssistantMessage, MessageId, ScriptedModel
from orchestrator.delegation import (
    DeliveryCapability,
    Encoded,
    Ending,
    Outcome,
    SessionId,
    encode,
    root_of,
)
from orchestrator.delegation.events import (
    Entry,
    MessageReceived,
    ModelAnswered,
    ReplyDelivered,
    SessionOpened,
    TurnEnded,
    TurnStarted,
)
from orchestrator.kernel.journal.memory import MemoryJournal
from orchestrator.kernel.journal.sqlite.entries import write_entries
from orchestrator.kernel.journal.sqlite.journal import SQLiteJournal, connect, open_sqlite_journal
from orchestrator.kernel.journal.stored_entries import IdleChanges

Line = tuple[Entry, Encoded, IdleChanges]

IN_FLIGHT = 1_000
SIZES = (10_000, 100_000, 1_000_000)
LIVE = 100_000
BATCH = 10_000


class Recorder(MemoryJournal):
    """Records all calls of a journal, to repeat them on another one."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Line] = []

    def append(
        self, entry: Entry, encoded: Encoded, idle_changes: IdleChanges, *, urgent: bool = False
    ) -> None:
        super().append(entry, encoded, idle_changes, urgent=urgent)
        self.lines.append((entry, encoded, idle_changes))


def measure_journal(report: Report) -> None:
    measure_ceiling(report)
    measure_flushes(report)
    measure_opening(report)


def measure_ceiling(report: Report) -> None:
    """Compare durable delegations with plain SQLite: the same bytes, in as many groups."""
    recorder = Recorder()
    trio.run(_fan_out, recorder)
    lines = recorder.lines
    groups = trio.run(_commits, IN_FLIGHT)
    plain, leaf, memory, ours = in_turn(
        partial(_plainly, [entry for entry, _, _ in lines], groups),
        partial(_leaf_alone, lines, groups),
        partial(_delegations, durable=False),
        partial(_delegations, durable=True),
        rounds=7,
    )
    many = f"{IN_FLIGHT:,} in flight"
    scale = 1_000_000 / IN_FLIGHT
    floor = plain.wall * scale
    report.add(
        f"a durable delegation, {many}, plain SQLite (wall)", floor, ours.wall * scale, target=2
    )
    name = f"  of that, the journal alone, {many}, plain SQLite"
    report.add(name, floor, leaf.wall * scale, target=2)
    name = f"  of that, all but the journal, {many}, plain SQLite"
    report.add(name, floor, memory.wall * scale)


async def _fan_out(journal: MemoryJournal) -> None:
    async with workloads.opened(journal) as orchestrator:
        await workloads.delegate(orchestrator, IN_FLIGHT)


async def _delegations(*, durable: bool) -> Cost:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db" if durable else None
        async with workloads.opened(path) as orchestrator:
            work = partial(workloads.delegate, orchestrator, IN_FLIGHT)
            return await cost_of(work)


async def _plainly(entries: Sequence[Entry], groups: int) -> Cost:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plain.db"
        write = partial(floors.write, entries, path, groups=groups)
        return await cost_of(partial(trio.to_thread.run_sync, write))


async def _leaf_alone(lines: Sequence[Line], groups: int) -> Cost:
    size = -(-len(lines) // groups)

    async def write(journal: SQLiteJournal) -> None:
        for start in range(0, len(lines), size):
            for entry, _, rest in lines[start : start + size]:
                # Encoded again: plain SQLite has to do that, too.
                journal.append(entry, encode(entry.event), rest)
            await journal.group.wait_all_durable()

    with tempfile.TemporaryDirectory() as folder:
        async with open_sqlite_journal(Path(folder) / "journal.db") as journal:
            return await cost_of(partial(write, journal))


def measure_flushes(report: Report) -> None:
    """Count the commits of a single run that delegates once: each is one flush."""
    without, run = trio.run(_commits, 0), trio.run(_commits, 1)
    report.add("flushes of a run with a delegation", without, run, unit="")
    name = "flushes of the delegation alone"
    report.add(name, 1, run - without, unit="", target=3)


async def _commits(children: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        async with open_sqlite_journal(Path(folder) / "journal.db") as journal:
            async with workloads.opened(journal) as orchestrator:
                before = journal.group.commits
                if children:
                    await workloads.delegate(orchestrator, children)
                else:
                    alone = Agent("alone", model=ScriptedModel.always("x"))
                    await orchestrator.run(alone, "go")
                await journal.group.wait_all_durable()
                return journal.group.commits - before


def measure_opening(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.db"
        write_journal(small, _runs(100))
        base = _opened(small)
        for size in SIZES:
            path = Path(folder) / f"{size}.db"
            write_journal(path, _runs(size))
            took = _opened(path)
            name = f"opening {size:,} facts at rest, against 100"
            report.add(name, base["ms"], took["ms"], unit="ms")
            name = f"memory of {size:,} facts at rest, against 100"
            report.add(name, base["MB"], took["MB"], unit="MB")
        path = Path(folder) / "live.db"
        write_journal(path, long_talk(LIVE))
        took = _opened(path)
        name = f"opening a live session of {LIVE:,} facts, against 100"
        report.add(name, base["ms"], took["ms"], unit="ms")
        report.add("memory of that session", base["MB"], took["MB"], unit="MB")


def write_journal(path: Path, lines: Iterator[Line]) -> None:
    """Write a journal of many facts, as fast as possible."""
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        batch: list[Line] = []
        for line in lines:
            batch.append(line)
            if len(batch) == BATCH:
                with connection:
                    write_entries(connection, batch)
                batch = []
        with connection:
            write_entries(connection, batch)


def _runs(facts: int) -> Iterator[Line]:
    """Yield at least so many facts: idle runs of 20 tasks each, and a few that are not idle."""
    recorder = Recorder()
    trio.run(_one_run, recorder)
    opening, *lines = recorder.lines
    yield opening
    number = 1
    while number < facts:
        name = SessionId(f"r_{number:010x}")
        is_last = number + len(lines) >= facts
        for entry, encoded, rest in lines[: -1 if is_last else None]:
            number += 1
            yield renamed((entry, encoded, rest), name, number)


def renamed(line: Line, name: SessionId, number: int) -> Line:
    """Return an entry of another run, with its own ids."""
    entry, encoded, rest = line
    event = entry.event
    if isinstance(event, TurnStarted):
        moved = tuple(seq + number - entry.seq for seq in event.mail)
        encoded = encode(replace(event, mail=moved))
    body = encoded.body.replace(entry.session.encode(), name.encode())
    body = body.replace(b'"t_', f'"t_{name}_'.encode())
    return (
        replace(entry, seq=number, session=name),
        replace(encoded, body=body),
        dict.fromkeys([name], *rest.values()) if rest else {},
    )


async def _one_run(journal: MemoryJournal) -> None:
    async with workloads.opened(journal) as orchestrator:
        await workloads.delegate(orchestrator, 20)


def long_talk(facts: int) -> Iterator[Line]:
    """Yield one session of so many facts, whose last reply was not received."""
    session = SessionId("r_long")
    push = DeliveryCapability.PUSH
    number = 1
    opened = SessionOpened(session, "talker")
    yield Entry(number, 0.0, session, opened), encode(opened), {session: None}
    turn = 0
    while number < facts:
        turn += 1
        mail = number + 1
        outcome = Outcome(Ending.SUCCEEDED, output="x" * 100)
        for event in (
            MessageReceived(session, "y" * 100, id=MessageId(f"m_{turn}")),
            TurnStarted(session, turn, push, (mail,)),
            ModelAnswered(root_of(session), AssistantMessage("x" * 100)),
            TurnEnded(session, turn, outcome),
            ReplyDelivered(session, turn),
        ):
            if isinstance(event, ReplyDelivered) and number + 1 >= facts:
                return
            number += 1
            yield Entry(number, float(number), session, event), encode(event), {}


def _opened(path: Path) -> dict[str, float]:
    """Open a journal in a fresh process, and return its time and memory."""
    command = [sys.executable, "-m", "benchmarks.journal", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


async def _open(path: Path) -> dict[str, float]:
    async with workloads.opened() as orchestrator:
        # The first run imports what the others need.
        await workloads.delegate(orchestrator, 1)
    before, began = resident(), time.perf_counter()
    async with open_orchestrator(path):
        took = time.perf_counter() - began
        return {"ms": took * 1_000, "MB": (resident() - before) / 1_024}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(trio.run(_open, Path(sys.argv[1]))))
    else:
        measure_journal(Report())
