"""A program shows the progress of its runs on stderr: the tree in a terminal, lines elsewhere."""

import io
import subprocess
import sys
from typing import Any

import pytest
import trio

from orchestrator import Agent, ScriptedModel, map_each, open_orchestrator
from orchestrator.agents import DefinitionError, ModelRequest
from orchestrator.agents.messages import AssistantMessage

pytestmark = [pytest.mark.realtime, pytest.mark.memory_only]


class Screen(io.StringIO):
    """A stream that tells when something was written."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal
        self.written = trio.Event()

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


class AnsweringWhenSeen:
    """Answers when the screen shows something."""

    name = "patient"

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        del request
        await self._screen.written.wait()
        return AssistantMessage("done")


async def shown(screen: Screen, monkeypatch: pytest.MonkeyPatch, **options: Any) -> str:
    monkeypatch.setattr(sys, "stderr", screen)
    plan = Agent("plan", model=ScriptedModel(['["a", "b"]']), output=list[str])
    brief = (plan >> map_each(Agent("read", model=AnsweringWhenSeen(screen)))).named("brief")
    async with open_orchestrator(":memory:", **options) as orchestrator:
        assert (await orchestrator.run(brief, "go")).output == ["done", "done"]
    return screen.getvalue()


async def test_lines_go_to_a_stream_that_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = await shown(Screen(is_terminal=False), monkeypatch, progress="auto")

    first, *_, last = text.splitlines()
    assert first == "/brief: 4 tasks so far"
    assert last.endswith("/brief succeeded")


async def test_a_terminal_shows_the_tree_and_keeps_its_last_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("CI", raising=False)

    text = await shown(Screen(is_terminal=True), monkeypatch, progress="auto")

    ended = text.rpartition("tokens")[2]
    assert ended.count("✓") == 5


@pytest.mark.parametrize("error", [BrokenPipeError(), ValueError("the file is closed")])
async def test_a_display_that_fails_does_not_end_the_work(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Screen):
        def write(self, text: str) -> int:
            super().write(text)
            raise error

    await shown(Broken(is_terminal=False), monkeypatch, progress="auto")


async def test_another_word_is_refused() -> None:
    with pytest.raises(DefinitionError, match="progress is 'bar'; it must be 'auto' or None"):
        await open_orchestrator(":memory:", progress="bar").__aenter__()  # type: ignore[arg-type]


QUICK = """
import sys
from orchestrator import Agent, ScriptedModel, run_sync

run_sync(Agent("a", model=ScriptedModel(["ok"])), "go", journal=":memory:")
assert not [name for name in sys.modules if name.startswith(("rich", "orchestrator.cli"))]
"""


def test_a_quick_script_writes_nothing_and_imports_no_terminal() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", QUICK], capture_output=True, text=True, check=False
    )

    assert (ended.returncode, ended.stderr) == (0, "")
