"""The command line, as a user meets it: real processes, real files, real signals."""

import os
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

AGENTS = """
from orchestrator.agents import Agent, ModelError, ScriptedModel, ToolCall

call = ToolCall("delegate_task", {"goal": "part", "background": True})
helper = Agent("helper", model=ScriptedModel.always("found"))
editor = Agent("editor", model=ScriptedModel([call, "merged \\x1b[31m"]), delegates=[helper])
"""
SLOW = """
from orchestrator.agents import Agent, ScriptedModel
slow = Agent("slow", model=ScriptedModel.always("never", 1000))
"""


class Shell:
    """Runs commands with a journal of their own."""

    def __init__(self, home: Path, python: list[str]) -> None:
        self.home = home
        self.python = python
        self.environ = {**os.environ, "ORCHESTRATOR_HOME": str(home / "state"), "COLUMNS": "200"}

    def write(self, name: str, text: str) -> str:
        (self.home / name).write_text(text)
        return name

    def start(
        self, *arguments: str, python: Sequence[str] = (sys.executable,)
    ) -> subprocess.Popen[str]:
        """Start a command, to send it signals and to talk with it."""
        return subprocess.Popen(
            [*python, "-m", "orchestrator", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.home,
            env=self.environ,
        )

    def run(self, *arguments: str, says: str = "", code: int = 0) -> tuple[str, str]:
        """Run a command to its end."""
        with self.start(*arguments, python=self.python) as process:
            out, err = process.communicate(says, timeout=60)
        assert process.returncode == code, err
        return out, err

    def error(self, *arguments: str) -> str:
        """Run what must fail as a user's mistake: one line, code 2, nothing on stdout."""
        out, err = self.run(*arguments, code=2)
        assert out == ""
        assert err.startswith("orchestrator: ")
        assert err.count("\n") == 1
        return err


@pytest.fixture
def shell(tmp_path: Path, python: list[str]) -> Shell:
    return Shell(tmp_path, python)


def test_the_demo_shows_the_tree_the_answer_and_why(shell: Shell) -> None:
    out, _ = shell.run("demo", "--seconds", "0.01")

    for part in (
        "The models are scripted",
        "answer, turn 2, woken by the archivist",
        "editor            ✓ succeeded",
        "│  └─ checker[1]  ✓ succeeded  joined",
        "└─ archivist[1]   ✓ succeeded  detached",
        "because the session that asked can be told later",
        "orchestrator tree r_",
        "OPENAI_API_KEY",
    ):
        assert part in out


def test_the_stateless_demo_joins_every_task_with_a_note(shell: Shell) -> None:
    out, _ = shell.run("demo", "--stateless", "--seconds", "0.01")

    assert "└─ archivist[1]   ✓ succeeded  joined" in out
    assert "detached " not in out
    assert "because the caller cannot be told anything after its turn ends" in out
    assert "Martin Sústrik" in out


def test_a_later_process_shows_the_run_again(shell: Shell) -> None:
    demo, _ = shell.run("demo", "--seconds", "0.01")
    run = demo.partition("orchestrator tree ")[2].split()[0]
    newest, _ = shell.run("tree")
    named, _ = shell.run("tree", run[:6])
    mermaid, _ = shell.run("export", run, "--format", "mermaid")

    assert newest == named
    assert all(line in demo for line in named.splitlines() if "✓" in line)
    assert mermaid.startswith("flowchart LR\n")


def test_runs_are_listed(shell: Shell) -> None:
    shell.run("demo", "--seconds", "0.01")
    shell.run("demo", "--stateless", "--seconds", "0.01")

    heading, *runs = shell.run("runs")[0].splitlines()

    assert heading.split() == ["run", "began", "agent", "status", "tasks", "tokens", "cost", "goal"]
    assert len(runs) == 2
    assert all("succeeded" in run and "Should our team" in run for run in runs)


def test_run_prints_the_answer_alone_on_stdout(shell: Shell) -> None:
    """The escape sequence in the answer is removed, so a terminal does not obey it."""
    file = shell.write("team.py", AGENTS)

    out, err = shell.run("run", f"{file}:editor", "go")

    assert out == "merged  [31m\n"
    assert "└─ helper[1]  ✓ succeeded  joined" in err
    assert shell.run("run", file, "go", "--quiet") == (out, "")


def test_a_failed_run_exits_with_1_and_prints_its_error(shell: Shell) -> None:
    file = shell.write(
        "broken.py",
        "from orchestrator.agents import Agent, ModelError, ScriptedModel\n"
        "a = Agent('a', model=ScriptedModel([ModelError('HTTP 401: no')]))\n",
    )

    out, err = shell.run("run", file, "go", "--quiet", code=1)

    assert (out, err) == ("", "orchestrator: /a failed: HTTP 401: no\n")


def test_a_file_imports_its_neighbours(shell: Shell) -> None:
    shell.write("names.py", "NAME = 'neighbour'")
    file = shell.write(
        "team.py",
        "from orchestrator.agents import Agent, ScriptedModel\nfrom names import NAME\n"
        "a = Agent(NAME, model=ScriptedModel(['hello']))\n",
    )

    assert shell.run("run", file, "go", "--quiet") == ("hello\n", "")


def test_chat_answers_and_comes_back_with_news(shell: Shell) -> None:
    with shell.start("chat") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("Where does it come from?\n")
        process.stdin.flush()
        lines: list[str] = []
        while not lines or "The archivist is back" not in lines[-1]:
            lines.append(process.stdout.readline())
        process.stdin.close()
        rest = process.stdout.read()

    assert any("handed that to the archivist" in line for line in lines)
    assert "orchestrator chat --session r_" in rest
    assert process.returncode == 0


def test_a_chat_can_be_gone_on_with(shell: Shell) -> None:
    """The task was running when the input ended; its notice waits for the next chat."""
    first, _ = shell.run("chat", says="Where does it come from?\n")
    session = first.partition("--session ")[2].split()[0]

    with shell.start("chat", "--session", session) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or "The archivist is back" not in lines[-1]:
            lines.append(process.stdout.readline())
        process.communicate("", timeout=60)

    assert process.returncode == 0


def test_chat_reads_a_plain_file(shell: Shell) -> None:
    shell.write("input.txt", "hello")
    with (shell.home / "input.txt").open() as file:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", "chat"],
            stdin=file,
            capture_output=True,
            text=True,
            env=shell.environ,
            timeout=60,
            check=True,
        )

    assert "handed that to the archivist" in done.stdout


def test_chat_ends_where_its_input_is_closed(shell: Shell) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m orchestrator chat <&-'],
        capture_output=True,
        text=True,
        env=shell.environ,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_without_arguments_prints_help(shell: Shell) -> None:
    out, _ = shell.run()

    for command in ("demo", "run", "chat", "runs", "tree", "--version"):
        assert command in out
    assert shell.run("--help")[0] == out


def test_the_version_is_printed(shell: Shell) -> None:
    with shell.start("--version") as process:
        assert process.communicate() == ("0.1.0\n", "")
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nope"], 'Unknown command "nope"'),
        (["demo", "--nope"], "Unknown option"),
        (["demo", "of", "two words"], "takes no further argument, and there is of 'two words'"),
        (["demo", "--seconds", "soon"], "Invalid value"),
        (["demo", "--seconds=-1"], "--seconds is -1.0; it must be 0 or more"),
        (["demo", "--seconds", "nan"], "it must be 0 or more"),
        (["run", "quits.py", "go"], "quits.py ends the program instead"),
        (["run", "", "go"], "there is no file"),
        (["demo", "--journal", "foreign.db"], "a database of another application"),
        (["tree", "--journal", "foreign.db"], "a database of another application"),
        (["run", "none.py", "go"], "there is no file none.py"),
        (["run", "none.py:editor", "go"], "there is no file none.py"),
        (["run", "syntax.py", "go"], "syntax.py, line 1: '(' was never closed"),
        (["run", "raises.py", "go"], "raises.py, line 2: ZeroDivisionError"),
        (["run", "empty.py", "go"], "defines no Agent at its top level"),
        (["run", "team.py:nobody", "go"], "no agent 'nobody'; it has: editor, helper"),
        (["run", "two.py", "go"], "say which agent"),
        (["run", "keyless.py", "go"], "OPENAI_API_KEY"),
        (["tree"], "there are no runs yet"),
        (["runs"], "there are no runs yet"),
        (["tree", "--journal", "syntax.py"], "not a database"),
        (["chat", "--session", "r_none"], "there is no session 'r_none'"),
    ],
)
def test_a_mistake_is_one_clear_line(shell: Shell, arguments: list[str], says: str) -> None:
    shell.write("team.py", AGENTS)
    shell.write("syntax.py", "x = (")
    shell.write("raises.py", "\n1 / 0\n")
    shell.write("empty.py", "")
    shell.write("quits.py", "import sys\nsys.exit()\n")
    with sqlite3.connect(shell.home / "foreign.db") as foreign:
        foreign.execute("CREATE TABLE notes (text)")
    foreign.close()
    shell.write("two.py", SLOW + "other = Agent('other', model=slow.model)\n")
    shell.write(
        "keyless.py", "from orchestrator.agents import Agent\na = Agent('a', model='openai:x')\n"
    )
    shell.environ.pop("OPENAI_API_KEY", None)

    assert says in shell.error(*arguments)


def test_an_unknown_or_ambiguous_run_is_a_usage_error(shell: Shell) -> None:
    shell.run("demo", "--seconds", "0.01")
    shell.run("demo", "--seconds", "0.01")

    assert "there is no run 'r_none'" in shell.error("tree", "r_none")
    assert "2 runs start with 'r_'" in shell.error("tree", "r_")


def test_two_processes_cannot_write_one_journal(shell: Shell) -> None:
    file = shell.write("slow.py", SLOW)
    journal = ("--journal", "one.db")
    with shell.start("run", file, "go", *journal) as first:
        _wait_for_line(first, "/slow running")
        err = shell.error("run", file, "go", *journal)
        first.kill()

    assert f"process {first.pid} is writing it" in err
    assert "--journal runs/" in err


def test_ctrl_c_ends_a_run_and_records_the_cancel(shell: Shell) -> None:
    file = shell.write("slow.py", SLOW)
    with shell.start("run", file, "go") as process:
        _wait_for_line(process, "/slow running")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert "cancelled" in shell.run("runs")[0]


def test_a_run_that_was_killed_is_not_shown_as_running(shell: Shell) -> None:
    file = shell.write("slow.py", SLOW)
    with shell.start("run", file, "go") as process:
        _wait_for_line(process, "/slow running")
        running = shell.run("runs")[0]
        process.kill()

    assert "running" in running
    assert "interrupted" in shell.run("runs")[0]
    shell.run("demo", "--seconds", "0.01")
    listed, hint = shell.run("runs")
    assert "interrupted" in listed
    assert "1 was interrupted; to resume one: " in hint


@pytest.mark.parametrize("command", [["runs"], ["tree"], ["export", "--format", "mermaid"]])
def test_a_closed_pipe_is_no_error(shell: Shell, command: list[str]) -> None:
    shell.run("demo", "--seconds", "0.01")
    with shell.start(*command) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        err = process.stderr.read()

    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_output_stream_is_no_error(shell: Shell, closed: str) -> None:
    """Otherwise the journal would be opened in its place."""
    command = f'"{sys.executable}" -m orchestrator demo --seconds 0.01 {closed}'
    done = subprocess.run(
        ["sh", "-c", command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=shell.home,
        env=shell.environ,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert ("adopt structured concurrency" in done.stdout) == (closed == "2>&-")
    assert "6 " in shell.run("runs")[0]


def test_a_file_may_be_called_like_our_package_and_use_late_annotations(shell: Shell) -> None:
    file = shell.write(
        "agents.py",
        "from __future__ import annotations\n"
        "import attrs\n"
        "from orchestrator.agents import Agent, ScriptedModel\n"
        "@attrs.frozen\n"
        "class Part:\n    n: int\n"
        "@attrs.frozen\n"
        "class Whole:\n    parts: list[Part]\n"
        'model = ScriptedModel([\'{"parts": [{"n": 1}]}\'])\n'
        "a = Agent('a', model=model, output=Whole)\n",
    )
    command = [str(Path(sys.executable).parent / "orchestrator"), "run", file, "go"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=shell.home, env=shell.environ, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == '{"parts": [{"n": 1}]}\n'


def test_the_hints_name_the_journal_that_was_used(shell: Shell) -> None:
    out, _ = shell.run("demo", "--seconds", "0.01", "--journal", "other file.db")
    again = out.partition("python -m ")[2].splitlines()[0]

    assert again.endswith("--journal 'other file.db'")
    assert "archivist[1]" in shell.run(*shlex.split(again)[1:])[0]


def test_an_agent_that_cannot_begin_leaves_no_trace(shell: Shell) -> None:
    shell.write(
        "keyless.py", "from orchestrator.agents import Agent\na = Agent('a', model='openai:x')\n"
    )
    shell.environ.pop("OPENAI_API_KEY", None)
    shell.error("chat", "keyless.py")

    assert len(shell.run("runs")[0].splitlines()) == 1


def test_a_journal_with_a_hole_is_one_clear_line(shell: Shell) -> None:
    shell.run("demo", "--seconds", "0.01")
    with sqlite3.connect(shell.home / "state" / "journal.db") as journal:
        journal.execute("DELETE FROM entries WHERE seq = 5")
    journal.close()

    assert "1 of its entries are missing" in shell.error("tree")
    assert "1 of its entries are missing" in shell.error("demo")


def _wait_for_line(process: subprocess.Popen[str], line: str) -> None:
    assert process.stderr is not None
    while line not in (read := process.stderr.readline()):
        assert read, "the process ended too early"


READER = """
from orchestrator.agents import Agent, AssistantMessage, ModelRequest, agent


class Reader:
    name = "reader"

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        files = [(it.name, it.media_type, it.data) for it in request.transcript[0].parts]
        return AssistantMessage(f"{request.instructions!r} {files}")


reader = Agent("reader", instructions="Read.", model=Reader())
made = Agent("made", instructions=lambda _: "Read.", model=Reader())


@agent
async def line(goal: str) -> str:
    return goal
"""


def test_files_and_instructions_go_with_the_goal_of_a_run(shell: Shell) -> None:
    file = shell.write("team.py", READER)
    (shell.home / "blob").write_bytes(b"\xff\xfe")
    for name in ("Makefile", "picture.png", "a.txt.gz"):
        shell.write(name, "all")
    named = ("Makefile", "picture.png", "a.txt.gz", "blob")
    attached = [word for name in named for word in ("--attach", name)]
    given = (*attached, "--instructions", "Be brief.", "--quiet")
    out, _ = shell.run("run", f"{file}:reader", "go", *given)
    assert out.startswith("'Read.\\n\\nBe brief.'")
    kinds = ("text/plain", "image/png", "text/plain", "application/octet-stream")
    for name, kind in zip(named, kinds, strict=True):
        assert f"('{name}', '{kind}', b" in out

    shell.write("empty", "")
    for words, problem in (
        (("reader", "--attach", "nowhere.txt"), "No such file"),
        (("reader", "--attach", "empty"), "cannot be empty"),
        (("line", "--attach", "Makefile"), "is a pipeline, which takes no files"),
        (("made", "--instructions", "x"), "no text that instructions could be added to"),
    ):
        name, *options = words
        assert problem in shell.error("run", f"{file}:{name}", "go", *options)
    assert "the goal is empty" in shell.error("run", f"{file}:reader", " ")


def test_a_server_allows_only_models_of_providers_that_are_known(shell: Shell) -> None:
    file = shell.write("team.py", READER)
    for name in ("gpt-5", "openai:gpt-5 | nobody:x"):
        said = shell.error("serve", file, "--port", "0", "--language-model", name)
        assert f"--language-model {name}: there is no such provider" in said


def test_a_reader_of_the_help_may_leave(tmp_path: Path) -> None:
    """As `head` does: no traceback, and no failure."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "--help"],
        stdout=writing,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        check=False,
    )
    os.close(writing)

    assert (done.returncode, done.stderr) == (0, b"")
