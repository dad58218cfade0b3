"""Real processes: a session survives `kill -9`, and stdout carries nothing but messages."""

import json
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE

import pytest
import trio

from tests.acp.editors import CLIENTS, count_checks
from tests.acp.kit import Editor, RefusedError
from tests.server.server_process import PATIENCE, ROOT

pytestmark = pytest.mark.realtime

TEAM = """
import os, subprocess
from pathlib import Path

import trio
from orchestrator import Agent, ScriptedModel

print("the file prints")
os.write(1, b"and writes to its stdout\\n")
subprocess.run(["echo", "so does a child"], check=True)


class Waiting(ScriptedModel):
    async def answer(self, request):
        (Path(__file__).parent / "called").touch()
        while not (Path(__file__).parent / "open").exists():
            await trio.sleep(0.02)
        return await super().answer(request)


lead = Agent("lead", model=Waiting.always("It has survived."))
"""


@asynccontextmanager
async def editor_of(folder: Path) -> AsyncGenerator[tuple[Editor, trio.Process]]:
    """Start the command in a folder with a team, and talk to it."""
    command = [sys.executable, "-m", "orchestrator", "acp", "team.py", "--journal", "runs/"]
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    async with trio.open_nursery() as nursery:
        process = await trio.lowlevel.open_process(
            command, cwd=folder, env=environ, stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        editor = Editor(process.stdin, [])
        nursery.start_soon(editor.read_forever, process.stdout)
        with trio.fail_after(PATIENCE):
            yield editor, process
            await editor.leave()
            await process.wait()


async def wait_for(file: Path) -> None:
    with trio.fail_after(PATIENCE):
        while not await trio.Path(file).exists():  # noqa: ASYNC110 (another process makes it)
            await trio.sleep(0.02)


async def test_session_goes_on_after_kill(tmp_path: Path) -> None:
    (tmp_path / "team.py").write_text(TEAM)
    async with editor_of(tmp_path) as (editor, process):
        session = await editor.open(tmp_path)
        await editor.begin_prompt(session, "Survive.")
        await wait_for(tmp_path / "called")
        async with editor_of(tmp_path) as (second, other):
            await second.ask("initialize", protocolVersion=1)
            with pytest.raises(RefusedError, match="is writing it"):
                await second.ask("session/load", sessionId=session, cwd=str(tmp_path))
            await second.leave()
            assert await other.wait() == 0
        process.send_signal(signal.SIGKILL)
        await process.wait()
    (tmp_path / "open").touch()
    async with editor_of(tmp_path) as (editor, process):
        await editor.ask("initialize", protocolVersion=1)
        await editor.ask("session/load", sessionId=session, cwd=str(tmp_path))
        await editor.wait_update("agent_message_chunk")
        assert editor.text() == "It has survived."
        await editor.leave()
        assert await process.wait() == 0
        # Each line on stdout was a message.
        assert all(it["jsonrpc"] == "2.0" for it in editor.messages)


async def test_messages_that_come_at_once_are_answered_before_end(tmp_path: Path) -> None:
    (tmp_path / "team.py").write_text(TEAM)
    async with editor_of(tmp_path) as (editor, process):
        asked = {"id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
        await editor.send_line(json.dumps(asked).encode() + b"\nno message")
        await editor.leave()
        assert await process.wait() == 0
        await editor.wait_message(lambda it: it.get("id") == 1)
        await editor.wait_message(lambda it: it.get("error", {}).get("code") == -32700)


def test_documented_counts_are_counts_of_checks() -> None:
    page = (ROOT / "docs" / "editors.md").read_text()
    for client in CLIENTS:
        rows = [it for it in page.splitlines() if it.startswith(f"| `{client.title}`")]
        count = count_checks(client)
        assert [it.split("|")[3].strip() for it in rows] == [f"{count} of {count}"]
