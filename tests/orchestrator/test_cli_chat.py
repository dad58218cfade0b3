"""`orchestrator chat` in a terminal: a real process, and what its terminal shows."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli.chat.terminal_chat import WrappedStream, wrap_line
from tests.orchestrator.terminals import UP, terminal

TEAM = """
import trio

from orchestrator.agents import Agent, AssistantMessage, ScriptedModel, TextDelta, ToolCall, Usage
from orchestrator.agents import UserMessage


class Streaming:
    name = "test:streaming"

    async def answer(self, request):
        said = request.transcript[-1].text
        words = [f"you said {said}"]
        request.tell(TextDelta(words[0]))
        if said.startswith("long"):
            words += [f" word{number}" for number in range(30)]
            for word in words[1:]:
                request.tell(TextDelta(word))
            print("a tool prints")
            await trio.sleep_forever()
        return AssistantMessage(
            "".join(words), usage=Usage(calls=1, input_tokens=5, output_tokens=5)
        )


def delegate(transcript):
    last = transcript[-1]
    if isinstance(last, UserMessage) and not last.text.startswith("A task"):
        return ToolCall("delegate_task", {"goal": last.text, "background": True})
    return "handed on" if not isinstance(last, UserMessage) else "there is news"


lead = Agent(
    "lead",
    model=ScriptedModel.always(delegate),
    delegates=[Agent("sleeper", model=ScriptedModel.always("never", 1000))],
)
talker = Agent("talker", model=Streaming())
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "team.py").write_text(TEAM)
    return tmp_path


def test_an_answer_streams_above_the_line_that_is_typed(home: Path) -> None:
    with terminal(home, "chat", "team.py:talker", columns=60, drawn=True) as chat:
        chat.wait_for("test:streaming · /help\n>")
        chat.type("long one\r")
        # The last word is held back: it may be half a secret. Words are whole, and what a
        # tool prints is not mixed into the answer.
        chat.wait_for("word28\n", "a tool prints\n", "answering", "Ctrl-C stops")
        chat.type("typed meanwhile")
        shown = chat.wait_for("\n> typed meanwhile")
        assert "> long one\n" in shown
        assert "you said long one word0 word1 word2" in shown
        assert all(f"word{number}" in shown.split() for number in range(29))

        chat.type("\x03")
        shown = chat.wait_for("word28\n(stopped)\n", "> typed meanwhile", "· /help")
        chat.type("\r")
        shown = chat.wait_for("you said typed meanwhile\n")
        assert shown.count("you said typed meanwhile") == 1

        # What was typed can be typed again.
        chat.type(f"{UP}\x17again\r")
        chat.wait_for("you said typed again\n")
        chat.type("one\\\rtwo\r")
        chat.wait_for("> one\n  two\n", "you said one\ntwo\n")
        chat.type("nothing\x03")
        chat.wait_for("· /help\n>")
        chat.type("\x04")
        assert chat.wait() == 0
        assert chat.is_as_before()
        assert "to come back: " in chat.screen

    history = home / "state" / "chat_history"
    assert "typed again" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_the_status_shows_running_tasks_and_commands_act_on_them(home: Path) -> None:
    with terminal(home, "chat", "team.py:lead", columns=80, rows=40, drawn=True) as chat:
        chat.wait_for("· /help\n>")
        chat.type("first\r")
        chat.wait_for("· sleeper[1], in the background: first", "handed on\n")
        chat.wait_for("in the background: sleeper[1] ")
        chat.type("second\r")
        chat.wait_for("in the background: sleeper[1] ", ", sleeper[2] ")

        chat.type("/cancel\r")
        chat.wait_for("Say which: /cancel sleeper[1] | sleeper[2] | all")
        chat.type("/cancel sleeper[1]\r")
        chat.wait_for("cancelled: /lead/sleeper[1]", "there is news")
        chat.type("/cost\r/tree\r/cancel\r")
        chat.wait_for("cancelled: /lead/sleeper[2]")
        shown = chat.wait_for("  sleeper  ", "  all  ")
        assert "└─" in shown
        chat.type("/help\r/model\r/model nonsense\r/nonsense\r")
        chat.wait_for("/report  ", "The model of lead is scripted.")
        chat.wait_for("there is no model 'nonsense'", "There is no /nonsense.")
        chat.type("/report\r")
        chat.wait_for("written: ", ".html")
        chat.type("/can\t\r")
        chat.wait_for("Nothing runs in the background.")
        chat.type("\x04")
        assert chat.wait() == 0
    assert len(list(home.glob("run-*.html"))) == 1


def test_a_chat_goes_on_with_another_model(home: Path) -> None:
    with terminal(home, "chat", "team.py:talker", drawn=True) as chat:
        chat.wait_for("test:streaming · /help")
        chat.type("/model ollama:small\r")
        chat.wait_for("talker goes on with ollama:small.", "ollama:small · /help")
        chat.type("\x04")
        assert chat.wait() == 0


def test_a_pipe_has_the_commands_too(home: Path, python: list[str]) -> None:
    done = subprocess.run(
        [*python, "-m", "orchestrator", "chat", "team.py:talker"],
        input="/model ollama:small\n/model\n/cost\n",
        capture_output=True,
        text=True,
        cwd=home,
        env={**os.environ, "ORCHESTRATOR_HOME": str(home / "state")},
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "The model of talker is ollama:small." in done.stdout
    assert "  all " in done.stdout


def test_words_are_wrapped_whole_as_they_come() -> None:
    stream = WrappedStream()

    lines = [line for piece in "one two three four" for line in stream.add(piece, 8)]

    assert [*lines, *stream.end()] == ["one two", "three", "four"]
    assert stream.add("a\n\nb", 8) == ["a", ""]
    assert stream.unfinished == "b"
    assert wrap_line("unbreakable", 4) == ["unbr", "eaka", "ble"]
    assert wrap_line("日本語", 4) == ["日本", "語"]
    assert wrap_line("", 4) == [""]


def test_a_chat_without_standard_input_ends_without_a_traceback(tmp_path: Path) -> None:
    file = tmp_path / "team.py"
    file.write_text(
        "from orchestrator import Agent, ScriptedModel\n"
        "a = Agent('a', model=ScriptedModel.always('hi'))\n"
    )
    command = f"exec {sys.executable} -m orchestrator chat {file} --journal :memory: <&-"
    done = subprocess.run(
        ["/bin/sh", "-c", command], check=False, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
