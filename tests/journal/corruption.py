"""Damages journal files at random, and looks whether what is read is still what was written.

`python -m tests.journal.corruption --seed 7 --rounds 1000` is the long form; a test has the short
one. Every session of a damaged copy is read as it was written, or refused with an error; and where
anything is refused, `doctor` finds something.
"""

import argparse
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import attrs
import trio

from orchestrator import JournalError, budget, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel
from orchestrator.backends import store_at
from orchestrator.delegation import SessionId
from orchestrator.delegation.events import Entry
from orchestrator.kernel.journal.store import Level
from tests.journal.kit import DAY, rewrite
from tests.kit import hand_on, worker

PAGE = 4096

Entries: TypeAlias = Mapping[SessionId, Sequence[Entry]]


class WrongReadError(Exception):
    """Something was read that was not written, or not found by `doctor`."""


@attrs.frozen
class Files:
    """A journal on the disk."""

    file: bytes
    log: bytes
    """The log of SQLite beside it: the end of the journal is only there."""
    lock: bytes
    """The files of its last writer, which was killed."""

    def write(self, path: Path) -> None:
        path.write_bytes(self.file)
        path.chmod(0o600)
        for end, content in (("-wal", self.log), (".lock", self.lock)):
            beside = path.with_name(f"{path.name}{end}")
            beside.write_bytes(content)
            beside.chmod(0o600)


@attrs.frozen
class Sound:
    """A journal that nothing has damaged, and what it says."""

    killed: Files
    """As a process has left it that was killed."""
    closed: Files
    """As a process has left it that has closed it: without a log."""
    older: bytes
    """The file some facts before."""
    entries: Entries


def make_sound(folder: Path) -> Sound:
    """Write runs, long strings, a shared budget, pruned runs, a live session, a log in use."""
    path, copy = folder / "journal.db", folder / "copy.db"

    async def write(*goals: str) -> None:
        async with open_orchestrator(path) as orchestrator:
            with budget(calls=500):
                for goal in goals:
                    await orchestrator.run(worker(says="y" * 3000), goal)

    async def prune() -> None:
        await store_at(path).prune(before=time.time() - 90 * DAY)

    async def leave_open() -> None:
        model = ScriptedModel([hand_on("look", background=True), "on its way"])
        slow = Agent("slow", model=model, delegates=[worker(seconds=1000)])
        async with open_orchestrator(path) as orchestrator:
            async with orchestrator.open_session(slow) as session:
                await session.ask("go")
                await orchestrator.run(worker(), "in the log alone")
                for beside in ("", "-wal", ".lock"):
                    shutil.copyfile(f"{path}{beside}", f"{copy}{beside}")

    trio.run(write, "old", "older")
    rewrite(path, f"UPDATE entries SET at = at - {100 * DAY}")
    trio.run(prune)
    trio.run(write, *(f"goal {number} " + "x" * 2100 for number in range(12)))
    older = path.read_bytes()
    trio.run(write, "a few", "more")
    trio.run(leave_open)
    killed = Files(*(Path(f"{copy}{beside}").read_bytes() for beside in ("", "-wal", ".lock")))
    entries = read_entries(copy)
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    lock = path.with_name(f"{path.name}.lock").read_bytes()
    return Sound(killed, Files(copy.read_bytes(), b"", lock), older, entries)


def read_entries(path: Path) -> Entries:
    with store_at(path).open_reader() as reader:
        return {session: reader.entries(session) for session in reader.sessions()}


Damage: TypeAlias = Callable[[random.Random, bytes, bytes], bytes]


def flip_bits(chance: random.Random, data: bytes, _: bytes) -> bytes:
    damaged = bytearray(data)
    place = chance.randrange(len(data))
    for at in range(place, min(place + chance.choice((1, 1, 1, 4)), len(data))):
        damaged[at] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def zero(chance: random.Random, data: bytes, _: bytes) -> bytes:
    length = chance.choice((1, 16, 512, PAGE))
    place = chance.randrange(len(data)) // length * length
    return data[:place] + bytes(len(data[place : place + length])) + data[place + length :]


def fill(chance: random.Random, data: bytes, _: bytes) -> bytes:
    length = chance.choice((4, 64, 512, PAGE))
    place = chance.randrange(len(data)) // length * length
    junk = chance.randbytes(len(data[place : place + length]))
    return data[:place] + junk + data[place + length :]


def truncate(chance: random.Random, data: bytes, _: bytes) -> bytes:
    cut = chance.randrange(len(data))
    return data[: chance.choice((cut, cut // PAGE * PAGE))]


def swap_pages(chance: random.Random, data: bytes, _: bytes) -> bytes:
    pages = _pages(data)
    one, two = chance.sample(range(len(pages)), 2)
    pages[one], pages[two] = pages[two], pages[one]
    return b"".join(pages)


def copy_page(chance: random.Random, data: bytes, _: bytes) -> bytes:
    pages = _pages(data)
    one, two = chance.sample(range(len(pages)), 2)
    pages[one] = pages[two]
    return b"".join(pages)


def lose_writes(chance: random.Random, data: bytes, older: bytes) -> bytes:
    """Put old pages in the place of newer ones, as a disk does that forgets a write."""
    pages, old = _pages(data), _pages(older)
    changed = [
        at for at, (new, before) in enumerate(zip(pages, old, strict=False)) if new != before
    ]
    for at in chance.sample(changed, chance.choice((1, 1, 2))):
        pages[at] = old[at]
    return b"".join(pages)


def _pages(data: bytes) -> list[bytes]:
    return [data[at : at + PAGE] for at in range(0, len(data), PAGE)]


OF_THE_FILE: Sequence[Damage] = (
    flip_bits,
    flip_bits,
    flip_bits,
    zero,
    fill,
    truncate,
    swap_pages,
    copy_page,
    lose_writes,
)
OF_THE_LOG: Sequence[Damage] = (flip_bits, zero, fill, truncate)


def damage(sound: Sound, seed: int) -> tuple[str, Files]:
    """Return a damaged copy, and what was done to it."""
    chance = random.Random(seed)
    if chance.random() < 0.2:
        change = chance.choice(OF_THE_LOG)
        log = change(chance, sound.killed.log, b"")
        return f"{change.__name__} of the log", attrs.evolve(sound.killed, log=log)
    files = chance.choice((sound.closed, sound.closed, sound.killed))
    change = chance.choice(OF_THE_FILE)
    file = change(chance, files.file, sound.older)
    return f"{change.__name__} of the file", attrs.evolve(files, file=file)


def examine(sound: Sound, path: Path) -> str:
    """Return how a damaged journal is read.

    Raises:
        WrongReadError: something was read that was not written, or `doctor` finds nothing.
    """
    found = [it.text for it in store_at(path).check() if it.level is Level.WRONG]
    refused = _read_each(sound, path) | trio.run(_open, sound, path)
    if refused and not found:
        raise WrongReadError(f"doctor finds nothing, but: {min(refused)}")
    if refused:
        return "refused"
    return "found by doctor alone" if found else "harmless"


def _compare(sound: Sound, read: Mapping[SessionId, object], what: str) -> None:
    if any(read[session] != sound.entries[session] for session in read):
        raise WrongReadError(f"{what}: other entries than were written")


def _read_each(sound: Sound, path: Path) -> set[str]:
    """Read the sessions one by one, and return the errors."""
    refused: set[str] = set()
    read: dict[SessionId, Sequence[Entry]] = {}
    try:
        with store_at(path).open_reader() as reader:
            listed = set(reader.sessions())
            if listed != set(sound.entries):
                raise WrongReadError("other sessions are listed than there are")
    except JournalError as exc:
        refused.add(str(exc))
    for session in sound.entries:
        try:
            with store_at(path).open_reader() as reader:
                read[session] = reader.entries(session)
        except JournalError as exc:
            refused.add(str(exc))
    _compare(sound, read, "reading each session")
    return refused


async def _open(sound: Sound, path: Path) -> set[str]:
    """Open the journal for writing, read each session, and return the errors."""
    refused: set[str] = set()
    read: dict[SessionId, Sequence[Entry]] = {}
    try:
        async with open_orchestrator(path) as orchestrator:
            listed = set(orchestrator.runs)
            if listed != set(sound.entries):
                raise WrongReadError("opened with other sessions than there are")
            for session in listed:
                try:
                    await orchestrator.read_tree(session)
                    entries = await orchestrator.read.entries(session)
                except JournalError as exc:
                    refused.add(str(exc))
                else:
                    known = sound.entries[session]
                    read[session] = entries[: len(known)]
    except JournalError as exc:
        refused.add(str(exc))
    _compare(sound, read, "opening it")
    return refused


def run_rounds(seeds: Sequence[int], folder: Path) -> Counter[str]:
    """Damage one journal once for each seed, and count how it is read."""
    made = folder / "sound"
    made.mkdir()
    sound = make_sound(made)
    outcomes = Counter[str]()
    for seed in seeds:
        place = folder / str(seed)
        place.mkdir()
        change, files = damage(sound, seed)
        files.write(place / "journal.db")
        try:
            outcome = examine(sound, place / "journal.db")
        except WrongReadError as exc:
            raise WrongReadError(f"seed {seed}, {change}: {exc}") from exc
        except Exception as exc:
            raise WrongReadError(f"seed {seed}, {change}: {exc!r}") from exc
        outcomes[f"{change}: {outcome}"] += 1
        shutil.rmtree(place)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.journal.corruption", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = run_rounds(range(asked.seed, asked.seed + asked.rounds), Path(folder))
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:6} {outcome}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
