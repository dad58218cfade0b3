"""Real processes: a task survives `kill -9`, and stdio carries nothing but messages."""

import json
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import trio
from mcp.server.apps import APP_MIME_TYPE, EXTENSION_ID

from orchestrator.products.mcp.server.tree_app import TREE
from tests.mcp.server_kit import LEGACY, MODERN, TASKS, Rpc
from tests.server.server_process import PATIENCE, ROOT, server_process

pytestmark = pytest.mark.realtime

TEAM = """
import os, subprocess
from pathlib import Path

import trio
from orchestrator import Agent, ScriptedModel, ToolCall, agent, confirm, delegate, tool

print("the file prints")
os.write(1, b"and writes to its stdout\\n")
subprocess.run(["echo", "so does a child"], check=True)
HERE = Path(__file__).parent


class Waiting(ScriptedModel):
    async def answer(self, request):
        with (HERE / "called").open("a") as file:
            file.write("x")
        while not (HERE / "open").exists():
            await trio.sleep(0.05)
        return await super().answer(request)


slow = Agent("slow", model=Waiting(["read"]))


@agent
async def boss(goal: str) -> str:
    print("the agent prints")
    return await delegate(slow, goal)


@agent
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@tool
async def delete_file(filename: str) -> str:
    return f"{filename} is deleted"


deleter = Agent(
    "deleter",
    model=ScriptedModel([ToolCall("delete_file", {"filename": "a"}), lambda it: it[-1].text]),
    tools=[delete_file],
    approve=[confirm("delete_file")],
)
"""


async def wait_for(file: Path, text: str) -> None:
    """Wait until a process has written to a file."""
    with trio.fail_after(PATIENCE):
        while text not in await trio.to_thread.run_sync(_text_of, file):  # noqa: ASYNC110 (another process)
            await trio.sleep(0.02)


def _text_of(file: Path) -> str:
    return file.read_text() if file.exists() else ""


async def test_a_task_over_http_survives_kill_9(tmp_path: Path) -> None:
    async with server_process(tmp_path, TEAM) as server:
        async with server.http() as http:
            client = Rpc(http=http, token=server.token)
            id_ = (await client.call("boss", goal="it"))["taskId"]
            await wait_for(tmp_path / "called", "x")
        await server.kill()
        await server.start()
        async with server.http() as http:
            client = Rpc(http=http, token=server.token)
            working = await client.task(id_)
            (tmp_path / "open").touch()
            done = await client.until(id_, "completed")
            tree = await client.ask("resources/read", uri=f"run://{id_}/tree.txt")

    assert working["status"] == "working"
    assert done["result"]["content"] == [{"type": "text", "text": "read"}]
    assert "slow[1]" in tree["contents"][0]["text"]


class Stdio:
    """`orchestrator mcp`, and its messages."""

    def __init__(self, process: trio.Process, errors: Path) -> None:
        self.process = process
        self._errors = errors
        self.lines: list[bytes] = []
        """All that it has written to stdout."""
        self._rest = b""

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    async def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send_all(line + b"\n")

    async def read(self) -> Any:
        """Return the next message."""
        assert self.process.stdout is not None
        with trio.fail_after(PATIENCE):
            while b"\n" not in self._rest:
                chunk = await self.process.stdout.receive_some()
                assert chunk, self.errors
                self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        self.lines.append(line)
        return json.loads(line)

    async def ask(self, method: str, *, can_poll: bool = False, **params: Any) -> Any:
        """Return the answer to a request of the newer protocol."""
        extensions: dict[str, Any] = {"extensions": {TASKS: {}}} if can_poll else {}
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": extensions,
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": method}
        await self.write(json.dumps({**message, "params": {**params, "_meta": meta}}).encode())
        return await self.read()

    async def call_as_before(self, tool: str, arguments: Any, capabilities: Any) -> None:
        """Open a session of the older protocol with the id 1, and call a tool with the id 2."""
        hello = {
            "protocolVersion": LEGACY,
            "capabilities": capabilities,
            "clientInfo": {"name": "old", "version": "1"},
        }
        for id_, method, params in (
            (1, "initialize", hello),
            (None, "notifications/initialized", {}),
            (2, "tools/call", {"name": tool, "arguments": arguments}),
        ):
            message = {"jsonrpc": "2.0", "method": method, "params": params}
            numbered = message if id_ is None else {**message, "id": id_}
            await self.write(json.dumps(numbered).encode())

    async def close(self) -> int:
        """Close its stdin, and return its exit code."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        with trio.fail_after(PATIENCE):
            return await self.process.wait()


@asynccontextmanager
async def stdio_process(folder: Path, *arguments: str) -> AsyncGenerator[Stdio]:
    (folder / "team.py").write_text(TEAM)
    errors = folder / "stderr.txt"
    with errors.open("ab") as stderr:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "orchestrator", "mcp", "team.py", *arguments],
            stdin=PIPE,
            stdout=PIPE,
            stderr=stderr,
            cwd=folder,
            env={
                "PYTHONPATH": str(ROOT),
                "ORCHESTRATOR_HOME": str(folder / "state"),
                "PATH": "/usr/bin:/bin",
            },
        )
    try:
        yield Stdio(process, errors)
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()


async def test_stdio_carries_only_messages_and_ends_with_its_input(tmp_path: Path) -> None:
    async with stdio_process(tmp_path) as team:
        await team.write(b"this is no JSON")
        parse_error = await team.read()
        await team.write(b'[{"jsonrpc": "2.0", "id": 7, "method": "ping"}]')
        batch = await team.read()
        answer = await team.ask("tools/call", name="greet", arguments={"name": "Ann"})
        (tmp_path / "open").touch()
        noisy = await team.ask("tools/call", name="boss", arguments={"goal": "it"})
        unknown = await team.ask("tasks/get", can_poll=True, taskId="r_0")
        code = await team.close()

    assert parse_error["error"]["code"] == -32700
    assert batch["error"]["code"] == -32600
    assert answer["result"]["content"][0]["text"] == "Hello, Ann!"
    assert noisy["result"]["content"][0]["text"] == "read"
    assert unknown["error"]["code"] == -32602
    assert code == 0
    for said in ("the file prints", "its stdout", "a child", "the agent prints"):
        assert said in team.errors


async def test_a_task_over_stdio_goes_on_at_the_next_start(tmp_path: Path) -> None:
    """Once its input has ended, and once after `kill -9`."""
    async with stdio_process(tmp_path) as team:
        made = await team.ask("tools/call", can_poll=True, name="boss", arguments={"goal": "it"})
        id_ = made["result"]["taskId"]
        await wait_for(tmp_path / "called", "x")
        code = await team.close()
    async with stdio_process(tmp_path) as team:
        working = await team.ask("tasks/get", can_poll=True, taskId=id_)
        await wait_for(tmp_path / "called", "xx")
        team.process.send_signal(signal.SIGKILL)
    (tmp_path / "open").touch()
    async with stdio_process(tmp_path) as team:
        found: dict[str, Any] = {}
        with trio.fail_after(PATIENCE):
            while found.get("status") != "completed":
                answer = await team.ask("tasks/get", can_poll=True, taskId=id_)
                found = answer["result"]
                await trio.sleep(0.02)

    assert code == 0
    assert working["result"]["status"] == "working"
    assert found["result"]["content"][0]["text"] == "read"


async def test_a_client_of_the_older_protocol_speaks_over_stdio(tmp_path: Path) -> None:
    async with stdio_process(tmp_path, "--tasks", "greet=required") as team:
        await team.call_as_before("greet", {"name": "Ann"}, {"extensions": {TASKS: {}}})
        said = [await team.read(), await team.read()]
        team.process.send_signal(signal.SIGTERM)
        with trio.fail_after(PATIENCE):
            code = await team.process.wait()

    answers = {it["id"]: it for it in said}
    assert answers[1]["result"]["protocolVersion"] == LEGACY
    assert answers[2]["error"]["code"] == -32021
    assert code == 0


async def test_a_client_of_the_older_protocol_gets_the_tree_over_stdio(tmp_path: Path) -> None:
    apps = {EXTENSION_ID: {"mimeTypes": [APP_MIME_TYPE]}}
    async with stdio_process(tmp_path) as team:
        await team.call_as_before("greet", {"name": "Ann"}, {"extensions": apps})
        answers = {it["id"]: it for it in [await team.read(), await team.read()]}

    assert [it["name"] for it in answers[2]["result"]["_meta"][TREE]["rows"]] == ["greet"]


async def test_a_user_over_stdio_is_asked_for_arguments_and_approvals(tmp_path: Path) -> None:
    contents: list[dict[str, Any]] = [{"goal": "delete it"}, {"confirm": True}]
    async with stdio_process(tmp_path) as team:
        await team.call_as_before("deleter", {}, {"elicitation": {}})
        asked: list[str] = []
        while (message := await team.read()).get("id") != 2 or "method" in message:
            if message.get("method") == "elicitation/create":
                asked.append(message["params"]["message"])
                result = {"action": "accept", "content": contents[len(asked) - 1]}
                answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
                await team.write(json.dumps(answer).encode())
        await team.close()

    assert "deleter needs goal" in asked[0]
    assert "/deleter wants to use delete_file" in asked[1]
    assert message["result"]["content"][0]["text"] == "a is deleted"
