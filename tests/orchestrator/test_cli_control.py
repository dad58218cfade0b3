"""`cancel`, `pause`, `message`, `approve` and `deny`: scripts that act on another process."""

import subprocess
from pathlib import Path

import pytest

from orchestrator.cli.app import run_command
from tests.orchestrator.terminals import terminal
from tests.orchestrator.test_cli_watch import TEAM


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "team.py").write_text(TEAM)
    monkeypatch.setenv("ORCHESTRATOR_HOME", str(tmp_path / "state"))
    return tmp_path


class Script:
    """Runs commands, each as a process of its own: it may act on a run that it did not start."""

    def __init__(self, home: Path, python: list[str]) -> None:
        self._home = home
        self._python = python

    def __call__(self, *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [*self._python, "-m", "orchestrator", *arguments],
            capture_output=True,
            text=True,
            cwd=self._home,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


def test_a_script_approves_denies_steers_and_cancels(home: Path, python: list[str]) -> None:
    script = Script(home, python)
    # Not live: nothing reads its terminal while a script runs.
    with terminal(home, "run", "team.py:boss", "go", "--progress", "plain") as run:
        run.wait_for("worker[1] waiting", "worker[2] waiting", "slow[1] running")

        code, said = script("approve")
        assert code == 2
        assert "2 wait, say which: a_" in said
        first = said.split("say which: ")[1].split()[0]
        second = said.split("; ")[1].split()[0]
        code, said = script("approve", first[:8], "--for", "task")
        assert (code, said.startswith("task: /boss/worker[")) == (0, True)
        code, said = script("approve", first)
        assert (code, f"no {first!r} waits for an approval" in said) == (2, True)
        assert script("deny", second, "--why", "not today")[0] == 0

        assert script("pause", "/boss") == (0, "paused: no new task starts below /boss\n")
        assert script("unpause", "/boss") == (0, "unpaused: /boss\n")
        code, said = script("message", "/boss/slow[1]", "hurry")
        assert (code, said) == (0, "told: /boss/slow[1] reads it before its next model call\n")
        code, said = script("message", "/boss/slo[1]", "hurry")
        assert (code, "did you mean /boss/slow[1]?" in said) == (2, True)
        assert script("message", "/boss/slow[1]", " ")[0] == 2

        assert script("cancel", "/boss/slow[1]") == (0, "cancelled: /boss/slow[1]\n")
        run.wait_for("all done", anywhere=True)
        assert run.wait() == 0
    code, said = script("pause", "/boss/slow[1]")
    assert (code, "no process of this machine runs r_" in said) == (1, True)
    assert script("cancel", "/boss/slow[1]") == (
        1,
        "orchestrator: not done: /boss/slow[1] has ended already: cancelled\n",
    )


def test_control_commands_without_a_process_are_refused(
    home: Path, python: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert Script(home, python)("run", "team.py:slow", "go", "--budget-seconds", "0.01")[0] == 4

    assert run_command(["message", "/slow", "hello"]) == 1
    assert "no process of this machine runs r_" in capsys.readouterr().err
    assert run_command(["deny"]) == 2
    assert "nothing waits for an approval" in capsys.readouterr().err
