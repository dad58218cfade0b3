"""Cuts the power of a process that writes a journal, at any of its writes.

`write_recorder.c` records the writes and flushes of a process. A disk that has lost its power is
made from them: what was flushed is there; of what came later nothing, the first part, any part, or
any sectors. Then everything that was acknowledged before is in the journal, and `doctor` finds
nothing wrong. `python -m tests.journal.power_cuts --seed 7 --rounds 1000` is the long form; a test
has the short one.
"""

import argparse
import os
import random
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import attrs
import trio

from orchestrator import JournalError, Orchestrator, open_orchestrator
from orchestrator.backends import store_at
from orchestrator.kernel.journal.sqlite import journal as sqlite_journal
from orchestrator.kernel.journal.sqlite.lock import WriterLock
from orchestrator.kernel.journal.sqlite.schema import last_seq
from orchestrator.kernel.journal.store import Level
from tests.kit import worker

FOLDER = "files"
SECTOR = 512
HEAD = struct.Struct("=IIQQ")
OPENED, WRITTEN, TRUNCATED, SYNCED, REMOVED = range(1, 6)
PRUNING, PRUNED = "pruning", "pruned"


class LostError(Exception):
    """Something that was acknowledged is gone, or the journal is damaged."""


# What the process does whose power is cut.


async def work(folder: Path, seed: int) -> None:
    """Write runs, prune some, close the journal and open it again; acknowledge what is durable."""
    chance = random.Random(seed)
    with (folder / "acknowledged").open("wb", buffering=0) as acknowledged:

        def acknowledge(what: object) -> None:
            acknowledged.write(f"{what}\n".encode())

        async def write(orchestrator: Orchestrator, runs: int) -> None:
            for _ in range(runs):
                goal = chance.choice(("go", "x" * 3000, "y" * chance.randrange(50_000)))
                await orchestrator.run(worker(), goal)
                acknowledge(await orchestrator.wait_durable())

        async with open_orchestrator(folder / "journal.db") as orchestrator:
            await write(orchestrator, 6)
        async with open_orchestrator(folder / "journal.db") as orchestrator:
            await write(orchestrator, 4)
            acknowledge(PRUNING)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write, orchestrator, 3)
                await orchestrator.prune(before=time.time() + 1)
                acknowledge(PRUNED)
            await write(orchestrator, 3)


def work_with_small_log(folder: Path, seed: int) -> None:
    """Do the work with a log that is moved into the file again and again."""
    connect = sqlite_journal.connect

    def connect_with_small_log(path: Path, lock: WriterLock) -> sqlite3.Connection:
        connection = connect(path, lock)
        connection.execute("PRAGMA wal_autocheckpoint = 12")
        return connection

    sqlite_journal.connect = connect_with_small_log  # type: ignore[assignment]
    trio.run(work, folder, seed)


def build_recorder(folder: Path) -> Path | None:
    """Compile the recorder; return None where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    library = folder / "write_recorder.so"
    source = Path(__file__).with_name("write_recorder.c")
    options = ["-shared", "-fPIC", "-O1", "-ldl", "-lpthread"]
    subprocess.run([compiler, source, "-o", library, *options], check=True)
    return library


def record_work(folder: Path, recorder: Path, seed: int) -> list["Write"]:
    """Do the work in a process, and return all that it has written."""
    files, log = folder / FOLDER, folder / "writes"
    files.mkdir(mode=0o700)
    subprocess.run(
        [sys.executable, "-m", __spec__.name, "--work", files, "--seed", str(seed)],
        env={
            **os.environ,
            "LD_PRELOAD": str(recorder),
            "RECORD_LOG": str(log),
            "RECORD_FOLDER": str(files),
        },
        check=True,
    )
    return list(read_writes(log.read_bytes()))


# The disk.


@attrs.frozen
class Write:
    """One call that opens, changes, flushes or removes a file."""

    kind: int
    file: int
    offset: int
    data: bytes


def read_writes(log: bytes) -> Iterator[Write]:
    at = 0
    while at < len(log):
        kind, file, offset, length = HEAD.unpack_from(log, at)
        at += HEAD.size
        yield Write(kind, file, offset, log[at : at + length])
        at += length


def _apply(content: bytearray, write: Write) -> None:
    if write.kind == TRUNCATED:
        del content[write.offset :]
    end = write.offset + len(write.data)
    content.extend(bytes(max(0, end - len(content))))
    content[write.offset : end] = write.data


@attrs.define
class DiskFile:
    """A file as the disk has it, and what was written to it since the last flush."""

    durable: bytearray = attrs.Factory(bytearray)
    pending: list[Write] = attrs.Factory(list[Write])

    def content(self, kept: Sequence[Write]) -> bytes:
        content = bytearray(self.durable)
        for write in kept:
            _apply(content, write)
        return bytes(content)


class Disk:
    """The files of a folder, as a number of writes has left them."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.files: dict[int, DiskFile] = {}
        self.removed: dict[int, DiskFile] = {}
        """Files that a power cut may bring back, since their folder was not flushed."""

    def apply(self, write: Write) -> None:
        if write.kind == OPENED:
            self.names[write.file] = Path(write.data.decode()).name
            self.removed.pop(write.file, None)
        file = self.files.setdefault(write.file, DiskFile())
        if write.kind == SYNCED:
            for pending in file.pending:
                _apply(file.durable, pending)
            file.pending.clear()
            if self.names[write.file] == FOLDER:
                self.removed.clear()
        elif write.kind == REMOVED:
            self.removed[write.file] = self.files.pop(write.file)
        elif write.kind != OPENED:
            file.pending.append(write)

    @property
    def acknowledged(self) -> Sequence[str]:
        for number, name in self.names.items():
            if name == "acknowledged":
                file = self.files[number]
                return file.content(file.pending).decode().split()
        return ()

    def after_cut(self, chance: random.Random, keep: "Keep") -> Mapping[str, bytes]:
        """Return the files that are found when the power is back."""
        there = dict(self.files)
        if chance.random() < 0.5:
            there |= self.removed
        return {
            self.names[number]: file.content(keep(chance, file.pending))
            for number, file in there.items()
            if self.names[number] != FOLDER
        }


Keep: TypeAlias = Callable[[random.Random, Sequence[Write]], Sequence[Write]]


def keep_none(_: random.Random, __: Sequence[Write]) -> Sequence[Write]:
    return ()


def keep_prefix(chance: random.Random, pending: Sequence[Write]) -> Sequence[Write]:
    return pending[: chance.randint(0, len(pending))]


def keep_some(chance: random.Random, pending: Sequence[Write]) -> Sequence[Write]:
    return [write for write in pending if chance.random() < 0.5]


def keep_sectors(chance: random.Random, pending: Sequence[Write]) -> Sequence[Write]:
    """Keep any sectors of any writes: torn, and in another order."""
    kept: list[Write] = []
    for write in pending:
        if write.kind == TRUNCATED:
            if chance.random() < 0.5:
                kept.append(write)
            continue
        start = write.offset
        end = start + len(write.data)
        while start < end:
            stop = min(end, (start // SECTOR + 1) * SECTOR)
            part = write.data[start - write.offset : stop - write.offset]
            if chance.random() < 0.5:
                kept.append(attrs.evolve(write, offset=start, data=part))
            start = stop
    return kept


KEEPS: Sequence[Keep] = (keep_none, keep_prefix, keep_some, keep_sectors)


# What must be true after it.


def examine(folder: Path, acknowledged: Sequence[str]) -> str:
    """Open a journal after a power cut, and return how much of it is there.

    Raises:
        LostError: something that was acknowledged is gone, or the journal is damaged.
    """
    path = folder / "journal.db"
    numbers = [int(it) for it in acknowledged if it.isdigit()]
    if not numbers:
        trio.run(_go_on, path)
        return "nothing was acknowledged"
    wrong = [it.text for it in store_at(path).check() if it.level is Level.WRONG]
    if wrong:
        raise LostError(f"doctor finds {wrong}")
    with closing(sqlite3.connect(path)) as connection:
        last = last_seq(connection)
        pruned = connection.execute("SELECT count(*) FROM pruned").fetchone()[0]
    if last < max(numbers):
        raise LostError(f"entries {last + 1} to {max(numbers)} are lost")
    if pruned and PRUNING not in acknowledged:
        raise LostError("runs are gone that were not pruned")
    if not pruned and PRUNED in acknowledged:
        raise LostError("runs are back that were pruned")
    trio.run(_go_on, path)
    return "all is there"


async def _go_on(path: Path) -> None:
    try:
        async with open_orchestrator(path) as orchestrator:
            for run in orchestrator.runs:
                await orchestrator.read_tree(run)
    except JournalError as exc:
        raise LostError(str(exc)) from exc


def cut_power(writes: Sequence[Write], folder: Path, seed: int, rounds: int) -> Counter[str]:
    """Cut the power at some of the writes, and count how the journals are found."""
    chance = random.Random(seed)
    cuts = sorted(chance.randrange(len(writes)) for _ in range(rounds))
    disk = Disk()
    outcomes = Counter[str]()
    for at, write in enumerate(writes):
        while cuts and cuts[0] == at:
            cuts.pop(0)
            keep = chance.choice(KEEPS)
            place = folder / f"cut-{at}-{len(cuts)}"
            place.mkdir()
            for name, content in disk.after_cut(chance, keep).items():
                (place / name).write_bytes(content)
                (place / name).chmod(0o600)
            try:
                found = examine(place, disk.acknowledged)
            except LostError as exc:
                where = f"seed {seed}, write {at}, {keep.__name__}"
                raise LostError(f"{where}: {exc}; see {place}") from exc
            outcomes[f"{keep.__name__}: {found}"] += 1
            shutil.rmtree(place)
        disk.apply(write)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.journal.power_cuts", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work is not None:
        work_with_small_log(asked.work, asked.seed)
        return 0
    folder = Path(tempfile.mkdtemp())
    recorder = build_recorder(folder)
    if recorder is None:
        print("skipped: there is no C compiler, or no LD_PRELOAD")
        return 0
    writes = record_work(folder, recorder, asked.seed)
    outcomes = cut_power(writes, folder, asked.seed, asked.rounds)
    print(f"{len(writes)} writes and flushes, {asked.rounds} power cuts")
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:6} {outcome}")
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
