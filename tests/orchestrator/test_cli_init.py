"""`orchestrator init`: what it writes runs, passes its own test, and replaces nothing."""

import os
import subprocess
from pathlib import Path

import pytest

from orchestrator.cli.app import run_command

# As pytest runs them, which takes seconds to start.
RUN_TESTS = """
import sys
sys.path.insert(0, "")
import test_team
tests = [it for name, it in vars(test_team).items() if name.startswith("test_")]
for test in tests:
    test()
assert tests
"""


@pytest.mark.parametrize("model", [None, "openai:gpt-5-mini"])
def test_the_team_that_is_written_passes_its_test(
    model: str | None, tmp_path: Path, python: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "team"
    options = [] if model is None else ["--model", model]

    assert run_command(["init", str(folder), *options]) == 0

    assert capsys.readouterr().out.split() == [
        str(folder / "team.py"),
        str(folder / "test_team.py"),
    ]
    environ = {**os.environ, "ORCHESTRATOR_HOME": str(tmp_path)}
    programs = [["-c", RUN_TESTS]]
    if model is None:
        programs.append(["team.py"])
    for program in programs:
        done = subprocess.run(
            [*python, "-W", "error", *program],
            cwd=folder,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    # And it can be loaded for its agents.
    assert run_command(["simulate", str(folder / "team.py"), "--seeds", "1"]) == 0


def test_init_replaces_no_file_and_refuses_an_invalid_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_team.py").write_text("mine")

    assert run_command(["init", str(tmp_path)]) == 2
    assert "test_team.py is there already" in capsys.readouterr().err
    assert not (tmp_path / "team.py").exists()
    for model in ("gpt-5", 'openai:x"y'):
        assert run_command(["init", str(tmp_path / "other"), "--model", model]) == 2
        assert "say PROVIDER:MODEL" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
