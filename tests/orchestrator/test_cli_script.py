"""`orchestrator script`: a person runs a script over a team, and continues it after a kill."""

import json
import signal
import sys
from pathlib import Path

import pytest

from orchestrator import ScriptedModel, load_agents
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
def shell(tmp_path: Path, python: list[str]) -> Shell:
    return Shell(tmp_path, python)


def test_a_killed_script_is_resumed_and_repeats_no_finished_call(shell: Shell) -> None:
    # A fork of a warm process cannot be killed.
    shell.python = [sys.executable]
    team = f"{shell.write('team.py', TEAM)}:lead"
    script = shell.write("review.py", SCRIPT)
    journal = str(shell.home / "journal.db")
    shell.run("script", script, "--team", team, "--journal", journal, code=-signal.SIGKILL)
    (shell.home / "alive").touch()

    out, _ = shell.run("resume", team, "--journal", journal, "--quiet")

    assert out == '["on a", "on b"]\n'
    assert "the same" in shell.run("replay", team, "--journal", journal)[0]
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
    assert "simulated runs of the script" in after
    assert "no model was called" in after
    assert "answers of earlier tasks: reader (1)" in after
    assert "tasks              1           1" in after
    assert "bounds" not in after


YAML = """\
model: openai:gpt-5-mini        # a comment stays
agents:
  lead: {instructions: Lead., delegates: [reader]}
  reader: {instructions: Read.}
"""


def test_a_script_is_listed_and_saved_as_a_pipeline(shell: Shell) -> None:
    (shell.home / "alive").touch()
    team = f"{shell.write('team.py', TEAM)}:lead"
    script = shell.write("review.py", '\nawait agent("reader", "a: b")')
    journal = ("--journal", str(shell.home / "journal.db"))
    shell.run("script", script, "--team", team, "--goal", "Read it", *journal)
    listed, _ = shell.run("scripts", "--json", *journal)
    (found,) = json.loads(listed)
    file = shell.home / "team.yaml"
    file.write_text(YAML)
    saved = ("scripts", "save", found["hash"][:6], "review", "--team", str(file))

    shell.run(*saved, *journal)

    table, _ = shell.run("scripts", *journal)
    assert found["hash"] in table
    assert "Read it" in table
    assert file.read_text().startswith(YAML)
    agents = load_agents(file, model=ScriptedModel.always(lambda said: f"on {said[0].text}"))
    assert agents["review"].delegates == ()
    assert "already" in shell.error(*saved, *journal)
    assert "no script begins" in shell.error(
        "scripts", "save", "ffff", "other", "--team", str(file), *journal
    )
    assert "'a b'" in shell.error(
        "scripts", "save", found["hash"], "a b", "--team", str(file), *journal
    )
    assert "no team.yaml" in shell.error("scripts", "save", "f", "b", "--team", team, *journal)


def test_runs_of_scripts_are_checked_and_forked(shell: Shell) -> None:
    (shell.home / "alive").touch()
    team = f"{shell.write('team.py', TEAM)}:lead"
    journal = str(shell.home / "journal.db")
    script = shell.write("review.py", SCRIPT)
    shell.run("script", script, "--team", team, "--journal", journal)

    assert "the same" in shell.run("check", team, "--against", journal)[0]
    fork = ("fork", team, "/script/reader[2]", "--journal", journal, "--quiet")
    out, _ = shell.run(*fork)

    assert out == '["on a", "on b"]\n'
    # The first call is kept, and the second one comes after the point of the fork.
    assert (shell.home / "calls.txt").read_text() == "first\nsecond\nsecond\n"


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00", b"# " + b"x" * 1_000_000])
def test_a_file_that_is_no_script_is_refused(shell: Shell, content: bytes | None) -> None:
    script = shell.home / "script.py"
    if content is not None:
        script.write_bytes(content)
    team = shell.write("team.py", TEAM)

    assert str(script) in shell.error("script", str(script), "--team", f"{team}:lead")
