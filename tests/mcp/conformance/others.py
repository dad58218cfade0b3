"""Programs of others that are no part of the suite: the Inspector, and three servers from npm."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import trio

from orchestrator.agents import McpCommand, ToolCall
from tests.mcp.conformance.suite import PACKAGES, node, run_node
from tests.mcp.kit import Caller, use

INSPECTOR: Final = PACKAGES / ".bin" / "mcp-inspector"


async def inspector_lists(url: str) -> None:
    """The Inspector lists our agents as tools, with their schemas."""
    listed = await _inspect(url, "tools/list")

    tools = {it["name"]: it for it in listed["tools"]}
    assert tools["greet"]["inputSchema"]["required"] == ["name"], tools["greet"]


async def inspector_calls(url: str) -> None:
    """The Inspector calls an agent, and gets its answer."""
    arguments = ("--tool-name", "greet", "--tool-arg", "name=Ann")
    answer = await _inspect(url, "tools/call", *arguments)

    assert answer["content"] == [{"type": "text", "text": "Hello, Ann!"}], answer


async def _inspect(url: str, method: str, *arguments: str) -> dict[str, Any]:
    done = await run_node(
        *(INSPECTOR, "--cli", url, "--transport", "http", "--method", method), *arguments
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


async def everything() -> None:
    """`server-everything`: text, a picture, and an error."""
    model = await _use(
        "everything",
        [],
        ToolCall("npm__echo", {"message": "hello"}),
        ToolCall("npm__get-tiny-image", {}),
        ToolCall("npm__get-sum", {"a": "two", "b": 3}),
    )

    echo, picture, sum_ = model.answers
    assert "hello" in echo.text, echo
    assert [it.media_type for it in picture.parts] == ["image/png"], picture
    assert "do not fit" in sum_.text, sum_


async def filesystem() -> None:
    """`server-filesystem`: writes and reads in its folder, and nowhere else."""
    with TemporaryDirectory() as name:
        folder = await trio.Path(name).resolve()
        file = Path(folder) / "note.txt"
        model = await _use(
            "filesystem",
            [str(folder)],
            ToolCall("npm__write_file", {"path": str(file), "content": "milk"}),
            ToolCall("npm__read_text_file", {"path": str(file)}),
            ToolCall("npm__read_text_file", {"path": "/etc/passwd"}),
            write=[folder],
        )
        assert await trio.Path(file).read_text() == "milk"

    _, read, refused = model.answers
    assert "milk" in read.text, read
    assert "root:" not in refused.text, refused


async def memory() -> None:
    """`server-memory`: remembers in one process what it was told."""
    with TemporaryDirectory() as folder:
        ann = {"name": "Ann", "entityType": "person", "observations": ["likes tea"]}
        model = await _use(
            "memory",
            [],
            ToolCall("npm__create_entities", {"entities": [ann]}),
            ToolCall("npm__read_graph", {}),
            env={"MEMORY_FILE_PATH": f"{folder}/memory.jsonl"},
            write=[folder],
        )

    _, graph = model.answers
    assert "likes tea" in graph.text, graph


async def _use(package: str, arguments: list[str], *calls: ToolCall, **options: Any) -> Caller:
    program = PACKAGES / ".bin" / f"mcp-server-{package}"
    command = [node(), str(program), *arguments]
    return await use(McpCommand("npm", command, **options), calls=calls)


OF_SERVER: Final[dict[str, Callable[[str], Awaitable[None]]]] = {
    "Inspector lists our agents": inspector_lists,
    "Inspector calls an agent": inspector_calls,
}
OF_CLIENT: Final[dict[str, Callable[[], Awaitable[None]]]] = {
    "server-everything": everything,
    "server-filesystem": filesystem,
    "server-memory": memory,
}
