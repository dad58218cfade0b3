"""Measures the start of a command in each sandbox against a bare one, in milliseconds."""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.measure import Report
from orchestrator.agents import DefinitionError, Sandbox
from orchestrator.agents.sandbox.backend import TaskSandbox
from orchestrator.agents.sandbox.detection import detect

COMMAND: Final = ("/bin/sh", "-c", "true")
ENVIRON: Final = {"PATH": "/usr/bin:/bin"}
ROUNDS: Final = 40
MOST_MS: Final = 20
"""How much longer than a bare one a command may take."""


def measure_sandbox(report: Report) -> None:
    """Run a command bare and in each sandbox that works here, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder).resolve()
        starts: dict[str, Callable[[], float]] = {"bare": lambda: _seconds(COMMAND, ENVIRON)}
        for name in ("bubblewrap", "landlock", "none"):
            try:
                starts[name] = _start(name, workspace)
            except DefinitionError as exc:
                print(f"not measured: {exc}")
        taken: dict[str, list[float]] = {name: [] for name in starts}
        for _ in range(ROUNDS):
            for name, start in starts.items():
                taken[name].append(start() * 1_000)
    bare = min(taken.pop("bare"))
    for name, all_taken in taken.items():
        took = min(all_taken)
        report.add(f"a command, sandbox {name}, against bare", bare, took, unit="ms")
        report.add("  how much longer", MOST_MS, took - bare, unit="ms", target=1)


def _start(name: str, workspace: Path) -> Callable[[], float]:
    backend = detect(name).backend
    place = TaskSandbox(backend=backend, sandbox=Sandbox(), workspace=workspace)

    def start() -> float:
        began = time.perf_counter()
        launch = place.launch(COMMAND, cwd=workspace, environ=ENVIRON)
        prepared = time.perf_counter() - began
        ran = _seconds(launch.argv, launch.environ, launch.pass_fds)
        for file in launch.pass_fds:
            os.close(file)
        return prepared + ran

    return start


def _seconds(
    argv: Sequence[str], environ: Mapping[str, str], pass_fds: Sequence[int] = ()
) -> float:
    began = time.perf_counter()
    subprocess.run(argv, env=environ, check=True, start_new_session=True, pass_fds=pass_fds)
    return time.perf_counter() - began


if __name__ == "__main__":
    measure_sandbox(Report())
