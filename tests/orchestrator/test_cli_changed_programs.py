"""The command line about pipelines whose program has changed since a crash."""

import signal
import sys
from pathlib import Path

import pytest

from tests.orchestrator.test_cli import Shell

TEAM = """
import os, signal
from orchestrator import Agent, ScriptedModel, agent, delegate

worker = Agent("worker", model=ScriptedModel.always("done"))


@agent
async def brief(topic: str) -> str:
    await delegate(worker, GOAL)
    if DIES:
        os.kill(os.getpid(), signal.SIGKILL)
    await delegate(worker, "second")
    return "all done"
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    # A fork of a warm process cannot be killed.
    return Shell(tmp_path, [sys.executable])


def team(shell: Shell, goal: str, *, dies: bool = False) -> str:
    # Goals differ in length: Python may take a file of the same second and size for unchanged.
    return shell.write("team.py", f"GOAL = {goal!r}; DIES = {dies}\n{TEAM}")


def test_a_changed_program_is_refused_checked_and_accepted(shell: Shell) -> None:
    journal = str(shell.home / "journal.db")
    file = team(shell, "first", dies=True)
    shell.run("run", file, "go", "--journal", journal, code=-signal.SIGKILL)
    team(shell, "first")
    out, _ = shell.run("check", file, "--against", journal)
    assert "the same" in out

    team(shell, "another one")
    out, _ = shell.run("check", file, "--against", journal, code=1)
    assert "differs at /brief/worker" in out
    assert "goal first" in out
    _, err = shell.run("resume", file, "--journal", journal, "--quiet", code=2)
    assert "worker (another one)" in err
    assert "(first)" in err
    assert "--accept-changes" in err
    out, _ = shell.run("runs", "--journal", journal)
    assert "interrupted" in out
    assert "has changed" in out

    out, _ = shell.run("resume", file, "--journal", journal, "--quiet", "--accept-changes")
    assert out == "all done\n"
    for command in (["runs"], ["show", "/brief"]):
        out, _ = shell.run(*command, "--journal", journal)
        assert "changes accepted" in out
    assert "--resume-on-crash" in shell.error("run", file, "go", "--accept-changes")


def test_a_journal_that_cannot_be_read_fails_a_check(shell: Shell) -> None:
    journal = shell.home / "journal.db"
    journal.write_bytes(b"no database " * 1000)

    _, err = shell.run("check", team(shell, "first"), "--against", str(journal), code=2)

    assert str(journal) in err


def test_a_check_of_no_run_fails(shell: Shell) -> None:
    """As after an agent has got another name: its stored runs would not be resumed."""
    journal = str(shell.home / "journal.db")
    shell.run("run", team(shell, "first"), "go", "--journal", journal)
    file = shell.write("team.py", (shell.home / "team.py").read_text().replace("brief", "report"))

    assert "nothing was checked" in shell.run("check", file, "--against", journal, code=2)[1]
