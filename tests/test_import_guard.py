"""`agents` is the import name of another distribution too: a clash is named clearly."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("room", ["delegation", "orchestrator"])
@pytest.mark.parametrize(
    "theirs",
    [
        pytest.param("class Agent: ...", id="with the same names"),
        pytest.param("DISTRIBUTION = 'openai-agents'", id="that says who it is"),
    ],
)
def test_another_package_of_that_name_is_called_out(tmp_path: Path, room: str, theirs: str) -> None:
    """Else the first error is some name that cannot be imported."""
    package = tmp_path / "site" / "agents"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"{theirs}\n")

    tried = subprocess.run(
        [sys.executable, "-c", f"import {room}"],
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    *_, last = tried.stderr.splitlines()

    assert tried.returncode == 1
    assert tried.stderr.count("Traceback") == 1, "one error, none in another's wake"
    assert last.startswith(f"ImportError: the package 'agents' at {package}")
    assert "openai-agents" in last
    assert "pip install --force-reinstall delegation-orchestrator" in last


HOSTILE = ("typing", "signal", "trio", "rich", "networkx", "jsonschema_rs", "agents")
TEAM = """
from orchestrator.agents import Agent
from neighbour import MODEL

worker = Agent("worker", model=MODEL)
"""


def test_nothing_is_imported_from_the_folder_in_which_the_command_is_called(tmp_path: Path) -> None:
    """But by the file of the agent, which is named."""
    for name in HOSTILE:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('hostile')\n")
    (tmp_path / "team.py").write_text(TEAM)
    (tmp_path / "neighbour.py").write_text(
        "from orchestrator.agents import ScriptedModel\nMODEL = ScriptedModel.always('done')\n"
    )
    root = Path(__file__).parents[1]

    tried = subprocess.run(
        [sys.executable, "-m", "orchestrator", "run", "team.py", "go", "--quiet"],
        env={**os.environ, "PYTHONPATH": str(root), "ORCHESTRATOR_HOME": str(tmp_path / "state")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (tried.returncode, tried.stdout, tried.stderr) == (0, "done\n", "")
