"""The floors: the same calls in raw trio, and the same bytes in plain SQLite."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import trio

from orchestrator.delegation import encode
from orchestrator.delegation.events import Entry


async def _model(seconds: float) -> str:
    await trio.sleep(seconds)
    return "x"


async def delegate(children: int, seconds: float = 0) -> list[str]:
    """Call a model as a parent, its children and the parent again do."""
    answers: list[str] = []

    async def child() -> None:
        answers.append(await _model(seconds))

    answers.append(await _model(seconds))
    async with trio.open_nursery() as nursery:
        for _ in range(children):
            nursery.start_soon(child)
    answers.append(await _model(seconds))
    return answers


async def delegate_often(times: int) -> None:
    for _ in range(times):
        await delegate(1)


async def chain(depth: int) -> None:
    """Call models as a chain of delegations does: a model, a child, the model again."""
    await _model(0)
    if depth:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(chain, depth - 1)
        await _model(0)


def write(entries: Sequence[Entry], path: Path, *, groups: int) -> None:
    """Write the same facts with plain SQLite, in as many commits."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE entries (seq INTEGER PRIMARY KEY, body TEXT)")
    size = -(-len(entries) // groups)
    for start in range(0, len(entries), size):
        with connection:
            connection.executemany(
                "INSERT INTO entries VALUES (?, ?)",
                (
                    (entry.seq, encode(entry.event).body.decode())
                    for entry in entries[start : start + size]
                ),
            )
    connection.close()
