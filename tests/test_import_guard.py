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
def test_another_package_of_that_name_is_called_out(
    tmp_path: Path, room: str, theirs: str
) -> None:
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
