"""`orchestrator script`: a person runs a script over a team, and continues it after a kill."""

import signal
import sys
from pathlib import Path

import pytest

from tests.orchestrator.test_cli import Shell

TEAM = """
import os, signal
from pathlib import Path
from orchestrator import Agent, ScriptedModel, tool


@tool(idempotent=True)
def count(name: str) -> str:
    "Count a call."
    with (Path(__file__).parent / "calls.txt").open("a") as file:
        file.write(f"{name}\\n")
    if name == "second" and not (Path(__file__).parent / "alive").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return f"counted {name}"


reader = Agent("reader", model=ScriptedModel.always(lambda said: f"on {said[0].text}"))
lead = Agent("lead", model=ScriptedModel([]), delegates=[reader], tools=[count])
"""
SCRIPT = """
await tool("count", name="first")
notes = await gather(agent("reader", "a"), agent("reader", "b"))
await tool("count", name="second")
notes
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    # A fork of a warm process cannot be killed.
    return Shell(tmp_path, [sys.executable])


def test_a_killed_script_is_resumed_and_repeats_no_finished_call(shell: Shell) -> None:
    team = f"{shell.write('team.py', TEAM)}:lead"
    script = shell.write("review.py", SCRIPT)
    journal = str(shell.home / "journal.db")
    shell.run("script", script, "--team", team, "--journal", journal, code=-signal.SIGKILL)
    (shell.home / "alive").touch()

    out, _ = shell.run("resume", team, "--journal", journal, "--quiet")

    assert out == '["on a", "on b"]\n'
    assert "the same" in shell.run("replay", "--file", team, "--journal", journal)[0]
    assert (shell.home / "calls.txt").read_text() == "first\nsecond\nsecond\n"


def test_a_script_with_an_error_fails_with_its_line(shell: Shell) -> None:
    team = f"{shell.write('team.py', TEAM)}:lead"
    script = shell.write("wrong.py", 'x = 1\nawait agent("stranger", "x")')

    _, err = shell.run("script", script, "--team", team, "--journal", ":memory:", code=1)

    assert "line 2, column 13" in err
    assert "Traceback" not in err


def test_a_dry_run_draws_the_answers_of_earlier_runs(shell: Shell) -> None:
    (shell.home / "alive").touch()
    team = f"{shell.write('team.py', TEAM)}:lead"
    script = shell.write("review.py", 'notes = await agent("reader", "a")\n"on a".index(notes)')
    command = ("script", script, "--team", team, "--journal", str(shell.home / "journal.db"))
    _, before = shell.run(*command, "--dry-run", code=1)
    shell.run(*command)

    after, _ = shell.run(*command, "--dry-run")

    assert "every simulated run failed" in before
    assert "ValueError" in before
    assert "of the script; no model was called" in after
    assert "answers of earlier tasks: reader (1)" in after
    assert "tasks              1           1" in after
    assert "bounds" not in after


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00", b"# " + b"x" * 1_000_000])
def test_a_file_that_is_no_script_is_refused(shell: Shell, content: bytes | None) -> None:
    script = shell.home / "script.py"
    if content is not None:
        script.write_bytes(content)
    team = shell.write("team.py", TEAM)

    assert str(script) in shell.error("script", str(script), "--team", f"{team}:lead")
