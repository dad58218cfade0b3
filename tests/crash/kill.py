"""Killing: one round is a process that is killed and started again until it is done."""

import json
import os
import random
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import attrs
import trio

from delegation.events import Entry
from orchestrator.journal.sqlite.journal import read_sqlite_journal
from tests.crash.oracle import check
from tests.crash.workload import Life

ROOT: Final = Path(__file__).parent.parent.parent
MOST_KILLS: Final = 4
PATIENCE: Final = 60
"""How many seconds a life may last before we say that it hangs."""
MOMENTS: Final = {"append": 70, "durable": 50, "effect": 20, "effected": 20}
"""What a process counts to its death, and how far at most."""
LONGEST: Final = 0.5
"""How many seconds pass at most before it is killed from outside."""


@attrs.frozen
class Round:
    """One process, killed again and again."""

    seed: int
    deaths: list[str]
    """What it was killed at, each time."""
    entries: int


class KilledWronglyError(Exception):
    """A round that did not end as it must."""

    def __init__(self, seed: int, deaths: list[str], problem: str) -> None:
        super().__init__(
            f"seed {seed}, killed at {', '.join(deaths) or 'nothing'}: {problem}\n"
            f"again: python -m tests.crash --rounds 1 --seed {seed} --keep"
        )
        self.seed = seed


class Nest:
    """Where the processes are born that we kill."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def live(self, life: Life, *, seconds: float) -> int:
        """Let a process live, kill it after so many seconds, and return its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(attrs.asdict(life)).encode() + b"\n")
        pid = int(self._read())
        is_over, _, _ = select.select([self._process.stdout], [], [], seconds)
        if not is_over:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return int(self._read())

    def _read(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "no process starts any more"
        return line


@contextmanager
def open_nest() -> Iterator[Nest]:
    environ = {
        # Who is killed cannot say what it has covered, and would only be slower.
        name: value
        for name, value in os.environ.items()
        if not name.startswith("COVERAGE")
    }
    with subprocess.Popen(
        [sys.executable, "-m", "tests.crash.workload"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Nothing is read ahead, so that `select` sees what is still to be read.
        bufsize=0,
        cwd=ROOT,
        env=environ,
    ) as process:
        yield Nest(process)


def kill_again_and_again(seed: int, nest: Nest, home: Path) -> Round:
    """Kill a process some times, let it come to its end, and look at what it leaves behind.

    Raises:
        KilledWronglyError: that is not what it must be.
    """
    chance = random.Random(seed)
    journal, effects = home / "journal.db", home / "effects.log"
    deaths: list[str] = []
    kills = chance.randint(1, MOST_KILLS)
    while True:
        life = Life(
            journal=str(journal),
            effects=str(effects),
            seed=chance.randrange(1_000_000),
        )
        seconds: float = PATIENCE
        if len(deaths) < kills:
            moment = chance.choice([*MOMENTS, "seconds"])
            if moment == "seconds":
                seconds = chance.uniform(0, LONGEST)
                death = f"seconds {seconds:.3f}"
            else:
                count = chance.randint(1, MOMENTS[moment])
                life = attrs.evolve(life, dies_at=moment, count=count)
                death = f"{moment} {count}"
        else:
            death = "its patience"
        code = nest.live(life, seconds=seconds)
        if code == 0:
            break
        deaths.append(death)
        if code != -signal.SIGKILL or len(deaths) > kills:
            raise KilledWronglyError(seed, deaths, f"it ended with {code}")
    entries = read(journal)
    lines = effects.read_text().splitlines() if effects.exists() else []
    try:
        check(entries, lines)
    except AssertionError as exc:
        frame = traceback.extract_tb(exc.__traceback__)[-1]
        problem = f"{frame.name}: {frame.line} {exc}"
        raise KilledWronglyError(seed, deaths, problem) from exc
    return Round(seed, deaths, len(entries))


def read(journal: Path) -> list[Entry]:
    return list(trio.run(read_sqlite_journal, journal))
