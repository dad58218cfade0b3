"""`orchestrator draw` writes the picture of an agent."""

from pathlib import Path

import pytest

from orchestrator.cli.app import run_command

TEAM = """
from orchestrator import Agent, map_each

plan = Agent("plan", model="test:none", output=list[str])
read = Agent("read", model="test:none")
brief = (plan >> map_each(read, limit=5)).named("brief")
"""


@pytest.fixture
def team(tmp_path: Path) -> str:
    (tmp_path / "team.py").write_text(TEAM)
    return f"{tmp_path / 'team.py'}:brief"


def test_a_picture_goes_to_stdout_as_mermaid(team: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["draw", team]) == 0

    output = capsys.readouterr().out
    assert output.startswith("flowchart LR\n")
    assert "map_each · for each item, 5 at once" in output


def test_the_name_of_the_output_chooses_the_format(team: str, tmp_path: Path) -> None:
    assert run_command(["draw", team, "-o", str(tmp_path / "brief.svg")]) == 0
    assert run_command(["draw", team, "-o", str(tmp_path / "brief.md")]) == 0
    assert run_command(["draw", team, "--format", "svg", "-o", str(tmp_path / "other")]) == 0

    assert (tmp_path / "brief.svg").read_text().startswith("<svg ")
    assert (tmp_path / "brief.md").read_text().startswith("flowchart LR")
    assert (tmp_path / "other").read_text().startswith("<svg ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["no.py"], "there is no file no.py"),
        (["{team}", "-o", "{folder}/missing/x.svg"], "missing"),
        (["{team}", "-o", "{folder}"], "directory"),
        (["{team}", "--format", "png"], "png"),
    ],
)
def test_bad_input_is_a_sentence_and_exit_code_2(
    arguments: list[str],
    sentence: str,
    team: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    filled = [it.format(team=team, folder=tmp_path) for it in arguments]

    assert run_command(["draw", *filled]) == 2

    assert sentence in capsys.readouterr().err
