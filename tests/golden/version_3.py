"""The runs of `version-3.db`, which the last orchestrator without checksums wrote.

Its facts and its tables are of version 3. The file was made once, with that orchestrator:
`python -m tests.golden.version_3 FILE`. It has the runs of version 2, one with long strings, and a
session whose process died in the midst of its first turn.
"""

import sys
from pathlib import Path
from typing import Any

import trio

from orchestrator import MemoryJournal, Orchestrator, open_orchestrator
from orchestrator.agents import Agent, ToolCall, tool
from orchestrator.delegation import encode
from orchestrator.delegation.events import SessionOpened
from orchestrator.kernel.journal.sqlite.journal import open_sqlite_journal
from tests.golden import version_2
from tests.golden.version_2 import member, record, resume

FILE = Path(__file__).parent / "version-3.db"


@tool
async def read_all() -> str:
    """Read a long text."""
    await trio.lowlevel.checkpoint()
    return "It is a long text. " * 300


def lengthy() -> Agent[Any]:
    """Return an agent whose facts have long strings, one of them in two facts."""
    return member(
        "lengthy",
        ToolCall("read_all"),
        ToolCall("read_all"),
        "A long answer. " * 200,
        tools=[read_all],
    )


def agents() -> dict[str, Agent[Any]]:
    """Return the root agents of all runs, by name."""
    return {**version_2.agents(), "lengthy": lengthy()}


async def _read(orchestrator: Orchestrator) -> None:
    await orchestrator.run(lengthy(), "go")


def make() -> MemoryJournal:
    journal = record(version_2.make(), _read)
    before = len(journal.entries)
    whole = record(journal, resume)
    half = before + (len(whole.entries) - before) // 2
    return MemoryJournal(whole.entries[:half])


def write(file: Path) -> None:
    entries = make().entries

    async def store() -> None:
        async with open_sqlite_journal(file) as journal:
            for entry in entries:
                is_new = isinstance(entry.event, SessionOpened)
                listed = {entry.session: None} if is_new else {}
                journal.append(entry, encode(entry.event), listed)
            await journal.wait_durable(entries[-1].seq)

        async with open_orchestrator(file):
            pass

    trio.run(store)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
