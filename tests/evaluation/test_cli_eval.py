"""`orchestrator eval` and `dataset add`: sets, baselines, sweeps, recorded runs and kills."""

import json
import re
import signal
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.orchestrator.test_cli import Shell

TEAM = """
import os, signal
from pathlib import Path
from orchestrator import Agent, ScriptedModel
from orchestrator.models import Price

HERE = Path(__file__).parent


def make_team(knows: int = 1, price: float = 1000) -> Agent:
    def answer(said):
        if (HERE / "die").exists() and said[-1].text == "w3":
            os.kill(os.getpid(), signal.SIGKILL)
        with (HERE / "calls.txt").open("a") as file:
            file.write("call\\n")
        word = said[-1].text
        return word.upper() if int(word[1:]) % 4 < knows else word

    model = ScriptedModel.always(answer, price=Price(input=price, output=price))
    return Agent("team", model=model)


team = make_team()
"""
SCORERS = """
from orchestrator.evaluation import TaskResult


def loud(result: TaskResult) -> bool:
    return result.answer.isupper()


scorers = [loud]
"""


@pytest.fixture
def shell(tmp_path: Path, python: list[str]) -> Shell:
    shell = Shell(tmp_path, python)
    shell.write("team.py", TEAM)
    shell.write("scorers.py", SCORERS)
    rows = [{"inputs": f"w{it}", "expected_output": f"W{it}"} for it in range(8)]
    shell.write("cases.jsonl", "\n".join(map(json.dumps, rows)))
    return shell


def calls(shell: Shell) -> int:
    return len((shell.home / "calls.txt").read_text().splitlines())


def test_a_killed_evaluation_continues_and_its_set_is_a_baseline(shell: Shell) -> None:
    first = ("eval", "team.py", "cases.jsonl", "--set", "a", "--usd", "10", "--limit", "1")
    (shell.home / "die").touch()
    # A fork of a warm process cannot be killed.
    Shell(shell.home, [sys.executable]).run(*first, code=-signal.SIGKILL)
    (shell.home / "die").unlink()
    out, _ = shell.run(*first)
    assert calls(shell) == 8
    assert "mean of 8" in out

    shell.write("team.py", TEAM.replace("make_team()", "make_team(4, 600)"))
    files = ("--markdown", "summary.md", "--junit", "junit.xml")
    checks = ("--check", "score>=0.8", "--check", "cost<=1.1x", "--check", "calls<1")
    second = ("eval", "team.py", "cases.jsonl", "--set", "b", "--baseline", "a")
    out, _ = shell.run(*second, *files, *checks, code=1)
    assert out.startswith(
        "b is better (+0.75, 95 % interval +0.38 … +1.00, 8 pairs) and 40 % cheaper"
    )
    assert "✓ cost<=1.1x holds" in out
    assert "✗ calls<1 fails: calls is 1" in out
    assert "b is better" in (shell.home / "summary.md").read_text()
    suite = ET.parse(shell.home / "junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("11", "1")

    document = json.loads(shell.run(*second, "--json")[0])
    assert document["comparisons"][0]["verdict"] == "better"
    assert calls(shell) == 16


def test_an_evaluation_without_any_score_and_a_wrong_budget_exit_with_2(shell: Shell) -> None:
    shell.write("broken.py", "def broken(result):\n    raise RuntimeError('no')\n")
    command = ("eval", "team.py", "cases.jsonl", "--set", "a")
    out, _ = shell.run(*command, "--scorer", "broken.py:broken", code=2)
    assert "broken raised RuntimeError: no" in out
    _, error = shell.run(*command, "--usd", "-1", code=2)
    assert "--usd is -1.0; it must be above 0" in error


def test_recorded_runs_are_scored_without_a_call_and_become_cases(shell: Shell) -> None:
    shell.run("run", "team.py", "w4", "--journal", "runs.db", "--quiet")
    shell.run("run", "team.py", "w5", "--journal", "runs.db", "--quiet")
    past = ("eval", "--journal", "runs.db", "--scorer", "scorers.py", "--json")
    [version] = json.loads(shell.run(*past)[0])["versions"]
    assert (version["score"], len(version["cases"])) == (0.5, 2)
    where = ("--where", 'agent == "team" and "w4" in goal and not failed')
    [version] = json.loads(shell.run(*past, *where)[0])["versions"]
    assert (version["score"], len(version["cases"])) == (1.0, 1)
    assert calls(shell) == 2
    _, error = shell.run(*past, "--where", "agent.name == 1", code=2)
    assert "'agent.name' is not allowed" in error

    run = version["cases"][0]["trials"][0]["run"]
    shell.run("dataset", "add", run, "--journal", "runs.db", "--to", "new.yaml")
    shell.run("dataset", "add", "/team", "--run", run, "--journal", "runs.db", "--to", "new.jsonl")
    out, _ = shell.run("eval", "team.py", "new.yaml", "--json")
    assert json.loads(out)["versions"][0]["cases"][0]["case"] == "w4"
    assert json.loads((shell.home / "new.jsonl").read_text()) == {
        "name": "w4",
        "inputs": "w4",
        "expected_output": "W4",
    }


def test_a_sweep_varies_parameters_and_fields(shell: Shell) -> None:
    vary = ("--vary", "make_team.knows=1,4", "--vary", "instructions=a,b")
    document = json.loads(shell.run("eval", "team.py", "cases.jsonl", *vary, "--json")[0])
    assert [it["second"] for it in document["comparisons"] if it["verdict"] == "better"] == [
        "make_team.knows=4 instructions=a",
        "make_team.knows=4 instructions=b",
    ]
    for wrong, why in (
        ("writer.model=a", "the team has no agent 'writer'"),
        ("make_team.size=1", "unexpected keyword argument 'size'"),
        ("team.colour=red", "has no field 'colour'"),
        ("model", "is not NAME=VALUE,VALUE"),
    ):
        _, error = shell.run("eval", "team.py", "cases.jsonl", "--vary", wrong, code=2)
        assert why in error


def test_the_page_leads_to_a_better_and_cheaper_version(tmp_path: Path, python: list[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()
    shell = Shell(tmp_path, python)
    fences = re.findall(r"^```(py|yaml|console|text)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    team, cases = (next(text for kind, text in fences if kind == it) for it in ("py", "yaml"))
    shell.write("team.py", team)
    shell.write("cases.yaml", cases)
    lines = [line for kind, text in fences if kind == "console" for line in text.splitlines()]
    first, second = (line.split()[2:] for line in lines[:2])
    shell.run(*first)
    assert "team = make_team(knows=8, price=6)" in page
    shell.write("team.py", team.replace("make_team()", "make_team(knows=8, price=6)"))
    out, _ = shell.run(*second)
    said = next(text for kind, text in fences if kind == "text").splitlines()
    sentence = said[0].removesuffix(".")
    assert out.startswith(sentence)
    assert said[1] in out
