"""The command line with little memory: it says so, and shows no traceback."""

import subprocess
import sys
from pathlib import Path

from orchestrator.cli.exit_codes import FAILED

ROOT = Path(__file__).parents[2]
TEAM = """
import resource
from pathlib import Path

from orchestrator.agents import Agent, ScriptedModel

worker = Agent("worker", model=ScriptedModel.always("done"))
# Enough for the run, and not for the stack of a thread.
limit = 4096 * int(Path("/proc/self/statm").read_text().split()[0]) + 4_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
"""


def run_limited(
    kilobytes: str, *arguments: str, folder: Path
) -> "subprocess.CompletedProcess[str]":
    """Run a command with a limit of its memory."""
    command = [sys.executable, "-m", "orchestrator", *arguments]
    return subprocess.run(
        ["/bin/sh", "-c", f'ulimit -v {kilobytes} && exec "$@"', "sh", *command],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_run_without_memory_ends_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "team.py").write_text(TEAM)

    done = run_limited(
        "unlimited", "run", "team.py:worker", "go", "--journal", "journal.db", folder=tmp_path
    )

    assert done.returncode == FAILED
    assert "Traceback" not in done.stderr
    assert "there is no memory left" in done.stderr.splitlines()[-1]


def test_a_small_limit_of_memory_is_a_warning(tmp_path: Path) -> None:
    small = run_limited("400000", "runs", "--journal", "journal.db", folder=tmp_path)
    large = run_limited("4000000", "runs", "--journal", "journal.db", folder=tmp_path)

    assert "warning: the process has 390 MiB of memory" in small.stderr
    assert "warning" not in large.stderr
