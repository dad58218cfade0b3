"""The instructions of delegations in multiples of raw trio, as callgrind counts them.

`python -m tests.performance.instructions` prints them. Two counts differ by less than 1 %, on a
busy machine too. Counting needs valgrind with its headers, and a C compiler.
"""

import ctypes
import gc
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio
import trio.lowlevel

from tests.performance import baseline
from tests.performance.counting import ROOT
from tests.performance.workloads import alone, chain, fan_out, opened

_SOURCE: Final = Path(__file__).with_name("client_requests.c")
_HEADER: Final = Path("/usr/include/valgrind/callgrind.h")
_DUMP: Final = re.compile(r"desc: Trigger: Client Request: (.+)/(\d+)")
_TOTAL: Final = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)

Work = Callable[[], Awaitable[object]]


def why_not_here() -> str | None:
    """Return why this machine cannot count instructions, if so."""
    for command in ("valgrind", "cc"):
        if shutil.which(command) is None:
            return f"this machine has no {command}"
    if not _HEADER.exists():
        return "this machine has no headers of valgrind"
    return None


async def raw_fan_out(children: int) -> None:
    """Call a model as a parent, its children and the parent again do, with only trio."""
    await trio.lowlevel.checkpoint()
    async with trio.open_nursery() as nursery:
        for _ in range(children):
            nursery.start_soon(trio.lowlevel.checkpoint)
    await trio.lowlevel.checkpoint()


async def raw_chain(depth: int) -> None:
    await trio.lowlevel.checkpoint()
    if depth:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(raw_chain, depth - 1)
        await trio.lowlevel.checkpoint()


async def _count_all(library: Path) -> None:
    callgrind = ctypes.CDLL(str(library))

    async def count(name: str, work: Work, times: int) -> None:
        for _ in range(min(times, 3)):
            await work()
        gc.collect()
        gc.disable()
        trio._core._run._r.seed(7)
        callgrind.start()
        for _ in range(times):
            await work()
        callgrind.stop(f"{name}/{times}".encode())
        gc.enable()

    await count("raw one", partial(raw_fan_out, 1), 10)
    await count("raw fan-out", partial(raw_fan_out, 100), 2)
    await count("raw chain", partial(raw_chain, 20), 3)
    async with opened() as orchestrator:
        for name, agent, times in (
            ("one", fan_out(1), 10),
            ("fan-out", fan_out(100), 1),
            ("chain", chain(20), 1),
            ("alone", alone(), 10),
        ):
            await count(name, partial(orchestrator.run, agent, "go"), times)


def count_instructions() -> baseline.Figures:
    """Return the instructions of each workload, in multiples of raw trio."""
    with TemporaryDirectory() as folder:
        library = Path(folder, "client_requests.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, _SOURCE], check=True)
        environ = {name: it for name, it in os.environ.items() if not name.startswith("COV")}
        subprocess.run(
            [
                *("valgrind", "--tool=callgrind", "--instr-atstart=no", "-q"),
                f"--callgrind-out-file={folder}/counted",
                *(sys.executable, "-m", "tests.performance.instructions", str(library)),
            ],
            check=True,
            cwd=ROOT,
            env={**environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"},
        )
        counted: dict[str, float] = {}
        for file in Path(folder).glob("counted*"):
            text = file.read_text()
            if (dump := _DUMP.search(text)) and (total := _TOTAL.search(text)):
                counted[dump[1]] = int(total[1]) / int(dump[2])
    return {
        "one joined delegation": {"times raw trio": counted["one"] / counted["raw one"]},
        "a fan-out of 100": {"times raw trio": counted["fan-out"] / counted["raw fan-out"]},
        "a chain of 20": {"times raw trio": counted["chain"] / counted["raw chain"]},
        "a run alone": {"million instructions": counted["alone"] / 1_000_000},
    }


if __name__ == "__main__":
    if sys.argv[1:]:
        trio.run(_count_all, Path(sys.argv[1]))
    else:
        baseline.print_table("instructions", count_instructions())
