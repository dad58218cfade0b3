"""`orchestrator watch`, and the picture of `orchestrator run`: real processes, real terminals."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.orchestrator.terminals import DOWN, LEFT, RIGHT, UP, Terminal, terminal

TEAM = """
from orchestrator.agents import Agent, ScriptedModel, ToolCall, tool
from orchestrator.agents.approval import confirm

@tool
def deploy(target: str) -> str:
    "Deploy something."
    return f"deployed {target}"

def work(transcript):
    if len(transcript) == 1:
        return ToolCall("deploy", {"target": transcript[0].text})
    return "said: " + transcript[-1].text

slow = Agent("slow", model=ScriptedModel.always("late", 1000))
worker = Agent("worker", model=ScriptedModel.always(work), tools=[deploy])
tasks = [
    {"goal": "staging", "agent": "worker"},
    {"goal": "production", "agent": "worker"},
    {"goal": "wait long", "agent": "slow"},
]
call = ToolCall("delegate_task", {"background": False, "tasks": tasks})
boss = Agent(
    "boss",
    model=ScriptedModel([call, "all done"]),
    delegates=[worker, slow],
    approve=[confirm("deploy")],
)
"""
LEAVES_SCREEN = "\x1b[?1049l"
SHOWS_CURSOR = "\x1b[?25h"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "team.py").write_text(TEAM)
    return tmp_path


def test_a_watcher_approves_denies_steers_and_cancels(home: Path) -> None:
    with terminal(home, "run", "team.py:boss", "go") as run:
        run.wait_for("needs you (2)", anywhere=True)
        run.wait_for(" watch r_", anywhere=True)
        with terminal(home, "watch") as watch:
            shown = watch.wait_for("needs you (2)", "! worker[1]  staging", "q leave")
            assert "read-only" not in shown

            watch.type(DOWN)
            watch.type("a")
            watch.wait_for('Approve /boss/worker[1]  deploy: {"target":"staging"}?')
            watch.type("y")
            watch.wait_for("needs you (1)")
            watch.type("dtoo risky\r")
            watch.wait_for("✓ worker[2]")

            watch.type("\r")
            watch.wait_for("said: deployed staging", "the user, at another terminal says once")
            watch.type("\x1b")
            watch.wait_for("q leave")

            watch.type(DOWN + DOWN)
            watch.type("mhurry up\r")
            watch.wait_for("told: it reads that before its next model call")
            watch.type("p")
            watch.wait_for("Start no new tasks below /boss/slow[1]?")
            watch.type("y")
            watch.wait_for("paused: no new task starts below it", " · paused")
            watch.type("p")
            watch.wait_for("Start tasks again below /boss/slow[1]?")
            watch.type("y")
            watch.wait_for("unpaused")
            watch.type("x")
            watch.wait_for("Cancel /boss/slow[1]?")
            watch.type("n")
            watch.type("x")
            watch.wait_for("Cancel /boss/slow[1]?")
            watch.type("y")
            watch.wait_for("⊘ slow[1]")
            assert run.wait() == 0
            watch.wait_for("ended")
            watch.type("q")
            assert watch.wait() == 0
            assert watch.is_as_before()

        assert "all done" in run.text
        assert "answered elsewhere" in run.text
        assert run.is_as_before()


def test_the_running_terminal_answers_below_the_picture(home: Path) -> None:
    with terminal(home, "run", "team.py:boss", "go", columns=80) as run:
        run.wait_for("approve? ", anywhere=True)
        run.type("bla\r")
        run.wait_for("that is no answer", anywhere=True)
        run.type("y\r")
        run.wait_for("— once", anywhere=True)
        run.type("n not today\r")
        run.wait_for("— deny: not today", anywhere=True)
        run.process.send_signal(signal.SIGINT)
        run.wait_for("stopping: waiting up to 5 s", anywhere=True)
        run.process.send_signal(signal.SIGINT)

        assert run.wait() == 130
        assert run.is_as_before()
        assert run.all.rfind(SHOWS_CURSOR) > run.all.rfind("\x1b[?25l")


BROKEN = """
from rich.console import Console

Console.height = property(lambda console: 1 / 0)
"""


def test_a_mistake_in_the_picture_ends_no_work(home: Path) -> None:
    """The error is printed once, and questions are asked without a live tree."""
    (home / "broken.py").write_text(TEAM.replace("1000", "0") + BROKEN)
    with terminal(home, "run", "broken.py:boss", "go") as run:
        run.wait_for("asks for approval", "n no, and why", anywhere=True)
        run.type("y\r")
        run.wait_for("staging", "production", anywhere=True)
        run.type("n not today\r")

        assert run.wait() == 0
        assert "all done" in run.text
        assert run.text.count("cannot be shown (ZeroDivisionError") == 1
        assert "the work goes on without that" in run.text
        assert run.is_as_before()


LONG = """
from orchestrator.agents import Agent, ScriptedModel, ToolCall
from orchestrator.agents.approval import confirm
from orchestrator.agents.tools.terminal import terminal

command = "echo " + "harmless " * 20 + "\\nrm -rf the-end-of-it"
model = ScriptedModel([ToolCall("terminal", {"command": command}), "all done"])
coder = Agent("coder", model=model, tools=[terminal], approve=[confirm("terminal")])
"""


def test_the_user_sees_the_whole_subject_before_approving(home: Path) -> None:
    """A hidden part of a long command would be approved with it."""
    (home / "long.py").write_text(LONG)
    with terminal(home, "run", "long.py", "go", columns=70) as run:
        run.wait_for("approve? ", anywhere=True)
        assert " ".join(run.text.split()).count("harmless") >= 20
        assert "         rm -rf the-end-of-it" in run.text
        with terminal(home, "watch", columns=70) as watch:
            watch.wait_for("needs you (1)")
            watch.type("a")
            shown = watch.wait_for("Approve /coder", "the-end-of-it?", "y once")
            assert "         rm -rf the-end-of-it?" in shown
            watch.type("n")
            watch.type("dno\r")
            watch.wait_for("ended")
        assert run.wait() == 0


def test_two_watchers_see_the_actions_of_each_other(home: Path) -> None:
    with terminal(home, "run", "team.py:boss", "go") as run:
        run.wait_for("needs you (2)", anywhere=True)
        with terminal(home, "watch") as one, terminal(home, "watch", rows=60) as two:
            one.wait_for("needs you (2)")
            two.wait_for("needs you (2)")
            one.type("ay")
            two.wait_for("needs you (1)")
            two.process.send_signal(signal.SIGTERM)
            assert two.wait() == 143
            _check_left(two)
            one.type("\x03")
            assert one.wait() == 130
            _check_left(one)


def test_a_run_that_has_ended_is_looked_at_read_only(home: Path) -> None:
    with terminal(home, "demo", "--seconds", "0.01") as demo:
        assert demo.wait() == 0
    with terminal(home, "watch", columns=120, rows=30) as watch:
        watch.wait_for("ended")
        watch.type("x")
        watch.wait_for("This run has ended.")
        watch.type(DOWN + DOWN + LEFT + LEFT + LEFT)
        watch.wait_for("5↓")
        watch.type(RIGHT)
        watch.wait_for("researcher[2]  1↓")
        watch.type("/checker\r\r")
        watch.wait_for("Confirmed.")
        watch.resize(60, 12)
        watch.process.send_signal(signal.SIGWINCH)
        watch.wait_for("Esc back")
        watch.type("\x1b")
        watch.type(UP + "q")

        assert watch.wait() == 0
        _check_left(watch)


def test_ctrl_z_restores_the_terminal_and_fg_redraws(home: Path) -> None:
    with terminal(home, "demo", "--seconds", "0.01") as demo:
        assert demo.wait() == 0
    with terminal(home, "watch") as watch:
        watch.wait_for("ended")
        watch.type("\x1a")
        watch.wait_stopped()

        _check_left(watch)
        watch.process.send_signal(signal.SIGCONT)
        watch.type("f")
        watch.wait_for("nothing has failed")
        assert not watch.is_as_before()
        watch.type("q")
        assert watch.wait() == 0
        _check_left(watch)


def test_ctrl_z_stops_the_run_too(home: Path) -> None:
    """The picture goes with it, and comes back with the work."""
    with terminal(home, "run", "team.py:boss", "go") as run:
        run.wait_for("needs you (2)", "approve? ", anywhere=True)
        run.type("\x1a")
        run.wait_stopped()

        assert run.is_as_before()
        assert run.all.rfind(SHOWS_CURSOR) > run.all.rfind("\x1b[?25l")
        run.process.send_signal(signal.SIGCONT)
        run.type("y\r")
        run.wait_for("— once", anywhere=True)


def test_an_unknown_or_ambiguous_run_is_a_usage_error(home: Path) -> None:
    with terminal(home, "watch", "r_none") as watch:
        assert watch.wait() == 2
        assert "there are no runs yet" in watch.text
        assert LEAVES_SCREEN not in watch.all


def test_a_killed_run_is_not_shown_as_running(home: Path) -> None:
    with terminal(home, "run", "team.py:slow", "go") as run:
        run.wait_for("1 running", anywhere=True)
        with terminal(home, "watch") as watch:
            watch.wait_for("1 running")
            run.process.kill()
            watch.wait_for("read-only: no process runs it", "◌ slow")
            watch.type("q")
            assert watch.wait() == 0


def test_watch_is_for_terminals(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "watch"],
        capture_output=True,
        text=True,
        cwd=home,
        check=False,
    )

    assert done.returncode == 2
    assert "watch needs a terminal" in done.stderr


def _check_left(watch: Terminal) -> None:
    assert watch.is_as_before()
    assert LEAVES_SCREEN in watch.all
    assert watch.all.rfind(SHOWS_CURSOR) > watch.all.rfind("\x1b[?25l")
