"""Approvals on the command line: real processes in terminals, and people who type there."""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
from msgspec.structs import replace

from orchestrator import open_orchestrator
from orchestrator.agents import confirm
from orchestrator.cli.terminal.approvals import (
    answer_in_terminal,
    is_attended,
    parse_answer,
    pending_approvals,
    show_question,
)
from orchestrator.cli.terminal.console import Terminal
from orchestrator.cli.terminal.stdin_lines import StdinLines
from orchestrator.delegation import TaskId
from orchestrator.delegation.events.approvals import ApprovalId, ApprovalQuestion, ApprovalVerdict
from tests.orchestrator.approvals_kit import Shell, run, tool_texts
from tests.orchestrator.terminals import terminal

TEAM = """
from pathlib import Path

from orchestrator.agents import Agent, AssistantMessage, ScriptedModel, ToolCall, ToolMessage
from orchestrator.agents import UserMessage, confirm, tool


@tool(name="terminal")
async def shell(command: str) -> str:
    '''Run a command.'''
    with Path("ran.txt").open("a") as file:
        file.write(command + "\\n")
    return f"ran {command}"


def run(*commands):
    return [ToolCall("terminal", {"command": it}) for it in commands]


def say(transcript):
    last = max(i for i, it in enumerate(transcript) if isinstance(it, UserMessage))
    heard = [it.text for it in transcript[last:] if isinstance(it, ToolMessage)]
    text = transcript[last].text
    if heard:
        return "heard: " + " & ".join(sorted(heard))
    if text.startswith("A task"):
        return "news: " + text.partition("Output:")[2].strip()
    if text.startswith("apart"):
        return ToolCall("delegate_task", {"goal": "run x", "background": True})
    if text.startswith("run"):
        return run(*text.split()[1:])
    return "you said " + text


child = Agent("child", model=ScriptedModel.always(say), tools=[shell])
main = Agent(
    "main",
    model=ScriptedModel.always(say),
    tools=[shell],
    delegates=[child],
    approve=[confirm("terminal")],
)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "team.py").write_text(TEAM)
    return tmp_path


def ran(home: Path) -> list[str]:
    file = home / "ran.txt"
    return file.read_text().split("\n")[:-1] if file.exists() else []


def piped(home: Path, *arguments: str, says: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=home,
        env={**os.environ, "ORCHESTRATOR_HOME": str(home / "state")},
    )


# A chat.


def test_the_user_of_a_chat_answers_while_the_turn_waits(home: Path) -> None:
    with terminal(home, "chat", "team.py:main", drawn=True) as chat:
        chat.wait_for("Ctrl-D ends it")
        chat.type("/y\n")
        chat.wait_for("Nothing waits for an approval.")
        chat.type("y\n")
        chat.wait_for("you said y")
        chat.type("run make\n")
        chat.wait_for("/main asks for approval\n  terminal: make\n")
        chat.wait_for("/y once")
        chat.type("/maybe\n")
        chat.wait_for("There is no /maybe. /help, /tree")
        assert ran(home) == []
        chat.type("/y\n")
        chat.wait_for("heard: ran make")

        chat.type("run rm\n")
        chat.wait_for("terminal: rm\n")
        # Other lines are messages for the next turn, and no answers.
        chat.type("hello\n")
        chat.type("/n not today\n")
        chat.wait_for("heard: terminal was denied by the user: not today.")
        chat.wait_for("you said hello")

        # While a question is shown, the slash may be left out.
        chat.type("run test\n")
        chat.wait_for("terminal: test\n  /y once")
        chat.type("Yes\n")
        chat.wait_for("heard: ran test")
        chat.type("\x04")
        assert chat.wait() == 0

    assert ran(home) == ["make", "test"]


def test_the_user_of_a_chat_is_asked_one_question_at_a_time(home: Path) -> None:
    """So an answer belongs to the question that was shown last."""
    with terminal(home, "chat", "team.py:main", drawn=True) as chat:
        chat.wait_for("Ctrl-D ends it")
        chat.type("run a b\n")
        shown = chat.wait_for("/n no, and why")
        first, second = ("a", "b") if "terminal: a\n" in shown else ("b", "a")
        assert f"terminal: {second}" not in shown
        chat.type("/s\n")
        chat.wait_for(f"terminal: {second}\n  /y once")
        chat.type("\x04")
        assert chat.wait() == 0
        session = chat.screen.partition("--session ")[2].split()[0]
    assert ran(home) == [first]

    with terminal(home, "chat", "team.py:main", "--session", session, drawn=True) as chat:
        chat.wait_for(f"terminal: {second}\n  /y once")
        chat.type("/deny later\r")
        chat.wait_for("terminal was denied by the user: later")
        chat.type("\x04")
        assert chat.wait() == 0
    assert ran(home) == [first]


def test_a_chat_without_a_terminal_denies_when_its_input_has_ended(home: Path) -> None:
    with piped(home, "chat", "team.py:main") as chat:
        out, _ = chat.communicate("run make\n", timeout=30)

    assert "no user is there to answer" in out
    assert ran(home) == []


def test_a_question_of_a_detached_task_waits_for_the_next_chat(home: Path) -> None:
    """Another run on the same journal does not ask it."""
    with terminal(home, "chat", "team.py:main", drawn=True) as chat:
        chat.wait_for("Ctrl-D ends it")
        chat.type("apart\n")
        chat.wait_for("/main/child[1] asks for approval\n  terminal: x\n")
        chat.wait_for("heard: ")
        chat.type("\x04")
        chat.wait_for("1 task goes on when you come back")
        assert chat.wait() == 0
        session = chat.screen.partition("--session ")[2].split()[0]

    with terminal(home, "run", "team.py:main", "run make") as other:
        shown = other.wait_for("approve? ", anywhere=True)
        assert "terminal: make" in shown
        assert "terminal: x" not in shown
        other.type("n\r")
        other.wait_for("heard: terminal was denied by the user", anywhere=True)
        assert other.wait() == 0

    with terminal(home, "chat", "team.py:main", "--session", session, drawn=True) as chat:
        chat.wait_for("/main/child[1] asks for approval\n  terminal: x\n")
        chat.type("/y\n")
        chat.wait_for("news: heard: ran x")
        chat.type("\x04")
        assert chat.wait() == 0

    assert ran(home) == ["x"]


# A run.


def test_a_run_asks_the_user_also_without_a_live_tree(home: Path) -> None:
    """Text that was typed before the question is no answer to it."""
    arguments = ("run", "team.py:main", "run a b", "--progress", "plain")
    with terminal(home, *arguments) as it:
        it.type("y\ny\n")
        it.wait_for("n no, and why", anywhere=True)
        it.type("hm\n")
        it.wait_for("y, t, s, or n and why")
        assert ran(home) == []
        it.type("n not that one\n")
        second = "b" if "terminal: a\n" in it.text else "a"
        it.wait_for(f"terminal: {second}\n  y once", anywhere=True)
        it.type("y\n")
        assert it.wait() == 0

    assert len(ran(home)) == 1
    assert "heard: ran " in it.text


def test_a_run_without_a_terminal_asks_no_question(home: Path) -> None:
    """Here there is no input at all."""
    command = [sys.executable, "-m", "orchestrator", "run", "team.py:main", "run make"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 0<&-', "sh", *command],
        capture_output=True,
        text=True,
        cwd=home,
        env={**os.environ, "ORCHESTRATOR_HOME": str(home / "state")},
        timeout=30,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "terminal needs an approval, and no person can be asked here" in done.stdout
    assert ran(home) == []


# The same without a process.


@pytest.fixture
def stdin() -> Iterator[int]:
    """A writer to the standard input of this process."""
    ours, theirs = os.pipe()
    before = os.dup(0)
    os.dup2(ours, 0)
    try:
        yield theirs
    finally:
        os.dup2(before, 0)
        for descriptor in (ours, theirs, before):
            os.close(descriptor)


class Screen(io.StringIO):
    """The shown text, and a way to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self._news = trio.Event()

    def write(self, text: str) -> int:
        self._news.set()
        self._news = trio.Event()
        return super().write(text)

    async def wait_for(self, words: str) -> str:
        with trio.fail_after(5):
            while words not in self.getvalue():
                await self._news.wait()
        return self.getvalue()


class UserAtTerminal:
    """A user at the terminal of a run."""

    def __init__(self, stdin: int, screen: Screen) -> None:
        self.shell = Shell()
        self.output = ""
        self.wait_for = screen.wait_for
        self.seeing = partial(redirect_stderr, screen)
        self._stdin = stdin

    async def run(self, *commands: str, seconds: float = 600, quiet: bool = False) -> None:
        rules = [confirm("terminal", seconds=seconds)]
        agent = self.shell.agent(*map(run, commands), tool_texts, rules=rules)
        console = Terminal(stderr=True, quiet=quiet, width=200)
        async with open_orchestrator(":memory:") as orchestrator:
            with self.seeing():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(answer_in_terminal, orchestrator, console, ())
                    done = await orchestrator.run(agent, "go", attended=True)
                    self.output = done.output
                    nursery.cancel_scope.cancel()

    def type(self, line: str) -> None:
        os.write(self._stdin, line.encode())


@pytest.fixture
def user(stdin: int) -> UserAtTerminal:
    return UserAtTerminal(stdin, Screen())


@pytest.mark.realtime
@pytest.mark.parametrize("quiet", [False, True])
async def test_a_question_is_shown_even_in_quiet_mode(user: UserAtTerminal, quiet: bool) -> None:
    """An invisible question would only wait until it is denied."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(user.run, "make", quiet=quiet))
        await user.wait_for("/main asks for approval\n  terminal: make\n  y once")
        user.type("hm\n")
        await user.wait_for("y, t, s, or n and why")
        assert user.shell.ran == []
        user.type("y\n")

    assert user.shell.ran == ["make"]


@pytest.mark.realtime
async def test_a_run_goes_on_without_an_answer_in_time(user: UserAtTerminal) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(user.run, "a", "b", seconds=0.2))
        await user.wait_for("That is over")
        await user.wait_for("terminal: b\n  y once")

    assert user.output.count("it was not answered within 0.2 seconds") == 2
    assert user.shell.ran == []


@pytest.mark.realtime
async def test_the_end_of_the_input_denies_every_question(user: UserAtTerminal, stdin: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    with trio.fail_after(5):
        await user.run("a", "b")

    assert user.output.count("denied by the user: no user is there to answer") == 2
    assert user.shell.ran == []


@pytest.mark.realtime
async def test_a_run_does_not_ask_the_questions_of_other_runs(user: UserAtTerminal) -> None:
    """An older question waits until its session is opened again."""
    shell = Shell()
    agent = shell.agent(run("other"), tool_texts, rules=[confirm("terminal")])
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery, orchestrator.open_session(agent) as it:
            nursery.start_soon(it.ask, "go")
            await it.questions.receive()
            console = Terminal(stderr=True, width=200)
            nursery.start_soon(
                answer_in_terminal, orchestrator, console, pending_approvals(orchestrator)
            )
            nursery.start_soon(partial(orchestrator.run, agent, "go", attended=True))
            with user.seeing():
                shown = await user.wait_for("y once")
            assert shown.count("asks for approval") == 1
            user.type("y\n")
            seen = 0
            while not shell.ran:
                seen = await orchestrator.wait_changed(after=seen)
            assert [question.id for question in it.open_questions] == [orchestrator.approvals[0].id]
            nursery.cancel_scope.cancel()

    assert shell.ran == ["other"]


def test_there_is_no_user_without_a_terminal(stdin: int) -> None:
    assert not is_attended()
    os.close(0)
    assert not is_attended()


# What is shown.


QUESTION = ApprovalQuestion(
    id=ApprovalId("a_1"),
    task=TaskId("t"),
    path="/main",
    call=attrs.NOTHING,  # type: ignore[arg-type]
    tool="terminal",
    subject="make",
    details='{"command":"make"}',
    asked_at=1.0,
    deadline=2.0,
)


def shown(capsys: pytest.CaptureFixture[str], question: ApprovalQuestion) -> list[str]:
    show_question(question, Terminal(width=200))
    return capsys.readouterr().out.splitlines()


def test_a_question_shows_the_task_the_call_and_the_answers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert shown(capsys, QUESTION) == [
        "/main asks for approval",
        "  terminal: make",
        "  y once · t the same in this task · s the same in this session · n no, and why",
    ]


@pytest.mark.parametrize(
    ("subject", "details", "more"),
    [
        ("a.txt", '{"content":"rm -rf","path":"a.txt"}', "content: rm -rf"),
        ("make", '{"background":true,"command":"make"}', "background: true"),
        ("make", '{"command":"make"', '{"command":"make"'),
        ('{"to":"x"}', '{"to":"x"}', None),
        ("{}", "{}", None),
        (".", "{}", None),
    ],
)
def test_a_question_shows_the_details_of_its_call(
    capsys: pytest.CaptureFixture[str], subject: str, details: str, more: str | None
) -> None:
    """The user sees the content of a file before approving it."""
    lines = shown(capsys, replace(QUESTION, subject=subject, details=details))

    assert lines[1] == f"  terminal: {subject}"
    assert len(lines) == (3 if more is None else 4)
    assert more is None or more in lines[2]


def test_a_command_cannot_forge_the_text_of_a_question(capsys: pytest.CaptureFixture[str]) -> None:
    forged = "ls\n/main asks for approval\n  terminal: ls\x1b[2J\x1b[31m\u202e[bold]"
    lines = shown(capsys, replace(QUESTION, subject=forged, details=forged))

    assert lines[1:4] == [
        "  terminal: ls",
        "    /main asks for approval",
        "      terminal: ls [2J [31m [bold]",
    ]
    assert sum(line.startswith("/main") for line in lines) == 1


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("y", (ApprovalVerdict.ONCE, "")),
        ("/y", (ApprovalVerdict.ONCE, "")),
        ("  YES \r", (ApprovalVerdict.ONCE, "")),
        ("/t", (ApprovalVerdict.TASK, "")),
        ("session", (ApprovalVerdict.SESSION, "")),
        ("/n  not today ", (ApprovalVerdict.DENY, "not today")),
        ("no", (ApprovalVerdict.DENY, "")),
        ("", None),
        ("/", None),
        ("yellow", None),
        ("//y", None),
    ],
)
def test_an_answer_is_understood(line: str, answer: tuple[ApprovalVerdict, str] | None) -> None:
    assert parse_answer(line) == answer


@pytest.mark.realtime
async def test_commands_are_read_before_messages(stdin: int) -> None:
    lines = StdinLines()
    os.write(stdin, b"one\n/y\ntwo\n/n\n")

    with trio.fail_after(5):
        assert await lines.read_command(lambda it: it.startswith("/")) == "/y"
        assert await lines.read() == "one"
        assert await lines.read_command(lambda it: it.startswith("/")) == "/n"
        assert await lines.read() == "two"


@pytest.mark.realtime
async def test_discard_typed_forgets_earlier_lines(stdin: int) -> None:
    lines = StdinLines()
    os.write(stdin, b"one\ntwo\nthree\n")

    with trio.fail_after(5):
        assert await lines.read_command(lambda it: it == "two") == "two"
        lines.discard_typed()
        os.write(stdin, b"four\n")
        assert await lines.read() == "four"
        # A wait that is cancelled loses nothing.
        with trio.move_on_after(0.01):
            await lines.read()
        os.write(stdin, b"five\n")
        assert await lines.read() == "five"
