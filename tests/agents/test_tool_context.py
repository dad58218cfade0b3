"""The tool context: each tool call gets the context of its own task."""

from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from orchestrator.agents import DefinitionError, ToolCall, tool
from orchestrator.agents.sandbox.backend import TaskSandbox
from orchestrator.agents.sandbox.sandbox import Sandbox
from orchestrator.agents.sandbox.unconfined import UNCONFINED
from orchestrator.agents.tools.context import (
    ToolContext,
    current_tool_context,
    redact_secrets,
    use_tool_context,
)
from orchestrator.agents.tools.files.seen_files import FileRegistry, SeenFiles
from orchestrator.agents.tools.long_results import Spill

pytestmark = pytest.mark.realtime  # a tool that is a plain function runs in a thread


def scene_of(folder: str, secret: str = "") -> ToolContext:
    """Return a context in which nothing can be started."""

    def redact(text: str) -> str:
        return text.replace(secret, "***") if secret else text

    return ToolContext(
        workspace=Path(folder),
        make_sandbox=lambda: TaskSandbox(
            backend=UNCONFINED, sandbox=Sandbox(), workspace=Path(folder)
        ),
        environ={"IN": folder},
        seen_files=SeenFiles(FileRegistry(), folder),
        processes=cast("Any", None),
        redact=redact,
    )


@tool
def where() -> str:
    """Say where it runs, from a thread."""
    return str(current_tool_context().workspace)


@tool
async def where_async() -> str:
    """Say where it runs, from the loop."""
    await trio.lowlevel.checkpoint()
    return str(current_tool_context().workspace)


def test_a_tool_context_is_missing_outside_of_an_agent() -> None:
    with pytest.raises(DefinitionError, match="orchestrator") as caught:
        current_tool_context()

    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_scene_ends_with_its_block_and_gives_back_the_one_before() -> None:
    """A child that runs within the call of its parent must not leave its own context behind."""
    outer, inner = scene_of("/outer"), scene_of("/inner")
    with use_tool_context(outer):
        with suppress(ZeroDivisionError), use_tool_context(inner):
            assert current_tool_context() is inner
            raise ZeroDivisionError
        assert current_tool_context() is outer
    with pytest.raises(DefinitionError):
        current_tool_context()


async def test_scenes_of_tasks_at_the_same_time_are_never_mixed() -> None:
    """The same tool is used by many agents at once."""
    found: dict[str, list[str]] = {}
    everybody = trio.Event()

    async def play(folder: str) -> None:
        with use_tool_context(scene_of(folder)):
            if len(found) == 9:
                everybody.set()
            found[folder] = []
            await everybody.wait()
            for use in (where, where_async):
                found[folder].append(str(await use.run(ToolCall(use.name))))

    async with trio.open_nursery() as nursery:
        for index in range(10):
            nursery.start_soon(play, f"/{index}")

    assert found == {f"/{index}": [f"/{index}"] * 2 for index in range(10)}


async def test_tasks_and_threads_of_a_tool_share_its_context() -> None:
    """A tool may use a nursery or a thread of its own."""

    @tool
    async def both() -> list[str]:
        """Ask in a task and in a thread."""
        output: list[str] = []

        async def ask() -> None:
            await trio.lowlevel.checkpoint()
            output.append(str(current_tool_context().workspace))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
        output.append(await trio.to_thread.run_sync(lambda: str(current_tool_context().workspace)))
        return output

    with use_tool_context(scene_of("/here")):
        assert await both.run(ToolCall("both")) == '["/here","/here"]'


def test_the_tool_context_redacts_its_secrets() -> None:
    assert redact_secrets("the pin is 4711") == "the pin is 4711"
    with use_tool_context(scene_of("/here", secret="4711")):
        assert redact_secrets("the pin is 4711") == "the pin is ***"


@pytest.mark.parametrize("place", range(150, 170))
async def test_a_saved_answer_holds_no_secret_at_any_cut(tmp_path: Path, place: int) -> None:
    """Cut first, half a key would be left on either side, and neither looks like one."""
    key = "0123456789abcdefghijklmnopqrstuvwxyz"
    output = f"{'-' * (place - len(key))}{key}{'-' * 400}"

    @tool(limit=200, spill=Spill(tmp_path))
    def say() -> str:
        """Say more than a model can read."""
        return output

    with use_tool_context(scene_of("/here", secret=key)):
        answer = str(await say.run(ToolCall("say")))

    (file,) = tmp_path.iterdir()  # noqa: ASYNC240 (a test may)
    assert file.read_text() == output.replace(key, "***")
    assert str(file) in answer
    pieces = [key[at : at + 6] for at in range(len(key) - 6)]
    assert not [piece for piece in pieces if piece in answer]
