"""`python -m orchestrator` imports nothing from the folder in which it is called."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOSTILE = ("typing", "signal", "trio", "rich", "networkx", "jsonschema_rs", "agents", "delegation")
TEAM = """
from orchestrator import Agent
from neighbour import MODEL

worker = Agent("worker", model=MODEL)
"""


def test_the_command_does_not_import_from_its_working_folder(tmp_path: Path) -> None:
    """Only the file of the agent, which the user names, may import its neighbours."""
    for name in HOSTILE:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('hostile')\n")
    (tmp_path / "team.py").write_text(TEAM)
    (tmp_path / "neighbour.py").write_text(
        "from orchestrator import ScriptedModel\nMODEL = ScriptedModel.always('done')\n"
    )

    tried = subprocess.run(
        [sys.executable, "-m", "orchestrator", "run", "team.py", "go", "--quiet"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "ORCHESTRATOR_HOME": str(tmp_path / "state")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (tried.returncode, tried.stdout, tried.stderr) == (0, "done\n", "")
