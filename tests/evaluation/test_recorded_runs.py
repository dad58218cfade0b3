"""The plug-in for pytest: recorded runs are replayed with new code, and scored."""

import os
import subprocess
import sys
from pathlib import Path

from orchestrator import Agent, ScriptedModel, run_sync
from orchestrator.testing import hand_on

TEAM = """
from orchestrator import Agent, ScriptedModel
from orchestrator.testing import hand_on

helper = Agent("helper", model=ScriptedModel([]))
lead = Agent("lead", model=ScriptedModel([]), delegates=[helper])
other = Agent("other", model=ScriptedModel([]))
"""
SCORERS = """
def short(result):
    return len(result.answer) < 10

def quick(result):
    return {"calls": 1 / result.calls}
"""


def pytest_in(folder: Path, *scorers: str, agents: str = "team:lead") -> str:
    (folder / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\naddopts = -p orchestrator.testing.recorded_runs\n"
        f"orchestrator_agents = {agents}\norchestrator_scorers = {' '.join(scorers)}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--orchestrator-journals", "runs.db", *PLAIN],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


PLAIN = ("-p", "no:cacheprovider")


def test_recorded_runs_pass_until_the_code_or_the_scores_change(tmp_path: Path) -> None:
    helper = Agent("helper", model=ScriptedModel.always("It is 42."))
    lead = Agent(
        "lead", model=ScriptedModel([hand_on("find it"), "Forty-two."]), delegates=[helper]
    )
    run = run_sync(lead, "What is it?", journal=tmp_path / "runs.db").id
    (tmp_path / "team.py").write_text(TEAM)
    (tmp_path / "scorers.py").write_text(SCORERS)

    assert "1 passed" in pytest_in(tmp_path, "scorers:quick >= 0.3")
    low = pytest_in(tmp_path, "scorers:quick >= 0.5")
    assert f"run {run} of lead: calls is 0.3333, and must be at least 0.5" in low
    assert "runs.db has no run of other" in pytest_in(tmp_path, agents="team:other")

    (tmp_path / "team.py").write_text(TEAM.replace(", delegates=[helper]", ""))
    changed = pytest_in(tmp_path, "scorers:short")
    assert "it differs from its record at /lead" in changed
    assert "1 failed" in changed
