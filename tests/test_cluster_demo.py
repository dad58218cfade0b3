"""`make demo-cluster` shows what it says: a server is killed in mid-run, and the run goes on."""

import subprocess
import sys
from pathlib import Path

from tests.postgres import require_postgres

DEMO = Path(__file__).parent.parent / "examples" / "cluster" / "demo.py"


def test_the_run_goes_on_at_the_other_server() -> None:
    require_postgres()

    done = subprocess.run(
        [sys.executable, "-W", "error", str(DEMO)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    before, after = done.stdout.split("kill -9 ")
    assert before.count("settled  ") >= 2
    assert before.count("at work  host-c") == 2
    assert "the other server goes on" in after
    assert after.count("goes on  ") == after.count("settled  ") > 0
    assert "the run has ended: completed" in after
    assert "6 tasks, each settled once; 2 books borrowed, each once: yes" in after
    assert done.stderr == ""
