"""Examples cannot rot: each runs without a warning, prints what it says, and takes a real model."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.cli.app import run_command

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
PROGRAMS = [file for file in sorted(EXAMPLES.glob("*.py")) if file.name != "models.py"]
LEADERS = {
    "approvals": "cleaner",
    "ask_above": "librarian",
    "background_watcher": "assistant",
    "best_of_n": "subject",
    "blame": "editor",
    "cancel_subtree": "survey",
    "dependencies": "editor",
    "evidence": "editor",
    "graph": "offer",
    "forked_children": "analyst",
    "hello": "scholar",
    "incident_triage": "desk",
    "map_reduce": "survey",
    "nested_teams": "architect",
    "research_brief": "brief",
    "research_team": "editor",
    "review_panel": "review",
    "stateless_service": "librarian",
    "steered_session": "manager",
    "summarized_conversation": "assistant",
    "task_board": "librarian",
    "typed_pipeline": "article",
    "typed_tools": "concierge",
}
"""The examples with an agent for the command line: those without make theirs in a function."""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    mine = {"EXAMPLES_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL"}
    ours = {name: value for name, value in os.environ.items() if name not in mine}
    # The client of MCP passes HOME to its servers, and not our own variables.
    return {**ours, "HOME": str(tmp_path), "ORCHESTRATOR_HOME": str(tmp_path)}


@pytest.fixture
def provider(environ: dict[str, str]) -> Iterator[dict[str, str]]:
    """An environment with a server that speaks OpenAI's protocol."""
    with subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "fake_openai.py")], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        address = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        yield {**environ, "OPENAI_BASE_URL": address, "OPENAI_API_KEY": "sk-none"}
        server.terminate()


def run_example(
    file: Path, *options: str, environ: dict[str, str], python: list[str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*python, "-W", "error", str(file), *options],
        capture_output=True,
        text=True,
        env=environ,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("file", PROGRAMS, ids=lambda file: file.name)
def test_an_example_prints_its_documented_output(
    file: Path, environ: dict[str, str], python: list[str]
) -> None:
    _, marker, expected = file.read_text().partition("\n# prints:\n")

    done = run_example(file, environ=environ, python=python)

    assert marker
    assert done.stderr == ""
    assert done.stdout == "".join(f"{line.removeprefix('# ')}\n" for line in expected.splitlines())


@pytest.mark.parametrize("file", PROGRAMS, ids=lambda file: file.name)
def test_every_script_gives_way_to_the_model_that_is_named(file: Path) -> None:
    """A user who names a real model must not get a script for one of several agents."""
    code = " ".join(file.read_text().split())

    assert re.findall(r"(?<!model=NAMED or )ScriptedModel[.(]", code) == []
    assert "model=NAMED or ScriptedModel" in code


def test_the_flag_names_a_real_model(provider: dict[str, str], python: list[str]) -> None:
    file = EXAMPLES / "hello.py"

    done = run_example(file, "--model", "openai:gpt-5-mini", environ=provider, python=python)

    assert done.stdout == "three of a kind\n"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--modle", "openai:gpt-5"], "unrecognized arguments: --modle openai:gpt-5"),
        (["--model", "gpt-5"], "there is no model 'gpt-5'; did you mean 'openai:"),
        (["--model", "openai:gpt-5"], "model 'openai:gpt-5' needs a key"),
    ],
)
def test_a_wrong_flag_is_reported_in_one_line(
    options: list[str], complaint: str, environ: dict[str, str], python: list[str]
) -> None:
    done = run_example(EXAMPLES / "hello.py", *options, environ=environ, python=python)

    assert done.returncode == 2
    assert f"hello.py: error: {complaint}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("name", "leader"), LEADERS.items())
def test_an_example_can_be_simulated(
    name: str, leader: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its agent is found without being named, and no script is needed."""
    file = EXAMPLES / f"{name}.py"
    monkeypatch.setattr(sys, "path", [*sys.path])  # an example finds its neighbour

    assert run_command(["simulate", str(file), "--seeds", "2"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{leader}: 2 simulated runs")
    assert re.search(r"runs +2 succeeded", said)


def test_an_example_can_be_run_from_the_command_line(
    environ: dict[str, str], python: list[str]
) -> None:
    file = EXAMPLES / "research_brief.py"
    command = [*python, "-W", "error", "-m", "orchestrator", "run", "--quiet"]

    done = subprocess.run(
        [*command, f"{file}:brief", "Heat pumps"],
        capture_output=True,
        text=True,
        env=environ,
        timeout=60,
        check=False,
    )

    assert done.stderr == ""
    assert done.returncode == 0
    assert "Insulate the roof first." in done.stdout


def test_the_guide_names_exactly_the_examples() -> None:
    named = re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text())

    assert sorted(named) == sorted(file.name for file in EXAMPLES.glob("*.py"))
