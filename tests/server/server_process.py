"""A server in a process of its own, which a test can stop, kill and start again.

async with server_process(tmp_path, AGENTS) as server:
    async with server.http() as http:
        ...
    await server.kill()
    await server.start()
"""

import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

import httpx2
import openai
import trio

ROOT: Final = Path(__file__).parent.parent.parent
PATIENCE: Final = 30
"""How many seconds a process may take for anything before a test fails."""
AGENTS: Final = """
from orchestrator.agents import Agent, ScriptedModel

worker = Agent("worker", model=ScriptedModel.always("done", 0))
"""


class ServerProcess:
    """`orchestrator serve`, again and again on the same journal."""

    def __init__(
        self, folder: Path, arguments: tuple[str, ...], environ: Mapping[str, str]
    ) -> None:
        self.folder = folder
        self.journal = folder / "journal.db"
        self.url = ""
        """Where it listens now: another port each time."""
        self.output = ""
        """Its output so far."""
        self._arguments = arguments
        self._environ = environ
        self._process: trio.Process | None = None
        self._errors = folder / "stderr.txt"

    @property
    def token(self) -> str:
        given = self._environ.get("ORCHESTRATOR_API_KEY")
        return given or (self.folder / "api_key").read_text().strip()

    @property
    def errors(self) -> str:
        """Its stderr, over all starts."""
        return self._errors.read_text()

    @property
    def pid(self) -> int:
        assert self._process is not None, "it runs"
        return self._process.pid

    async def start(self) -> None:
        """Start it, and return when it has printed its address."""
        assert self._process is None, "it does not run yet"
        with self._errors.open("ab") as errors:
            self._process = await trio.lowlevel.open_process(
                [
                    *(sys.executable, "-m", "orchestrator", "serve"),
                    str(self.folder / "agents_file.py"),
                    *("--port", "0", "--journal", str(self.journal)),
                    *self._arguments,
                ],
                stdout=PIPE,
                stderr=errors,
                cwd=self.folder,
                env={**_bare_environment(), "PYTHONPATH": str(ROOT), **self._environ},
            )
        self.output = ""
        assert self._process.stdout is not None
        with trio.fail_after(PATIENCE):
            while "\nwatch: " not in self.output or not self.output.endswith("\n"):
                chunk = await self._process.stdout.receive_some()
                assert chunk, f"it did not start: {self.output}{self.errors}"
                self.output += chunk.decode()
        self.url = self.output.partition("listening at ")[2].split()[0]

    async def terminate(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop, and return its exit code."""
        self.signal(number)
        return await self.wait()

    def signal(self, number: int) -> None:
        assert self._process is not None, "it runs"
        self._process.send_signal(number)

    async def kill(self) -> None:
        """End it as a crash does."""
        await self.terminate(signal.SIGKILL)

    async def wait(self) -> int:
        """Wait until it has ended, and return its exit code."""
        process = self._process
        assert process is not None, "it runs"
        assert process.stdout is not None
        with trio.fail_after(PATIENCE):
            code = await process.wait()
            await process.stdout.aclose()
        # Only now: what is cancelled here, `stop` ends.
        self._process = None
        return code

    async def stop(self) -> None:
        if self._process is not None:
            await self.kill()

    @asynccontextmanager
    async def http(self, **given: Any) -> AsyncGenerator[httpx2.AsyncClient]:
        """Give a client that sends the token."""
        headers = {"authorization": f"Bearer {self.token}"}
        async with httpx2.AsyncClient(
            base_url=self.url, headers=headers, timeout=PATIENCE, **given
        ) as client:
            yield client

    @asynccontextmanager
    async def openai(self) -> AsyncGenerator[openai.AsyncOpenAI]:
        """Give the official client, which asks once and not again."""
        async with openai.AsyncOpenAI(
            base_url=f"{self.url}/v1", api_key=self.token, max_retries=0, timeout=PATIENCE
        ) as client:
            yield client


@asynccontextmanager
async def server_process(
    folder: Path, agents: str = AGENTS, *arguments: str, environ: Mapping[str, str] | None = None
) -> AsyncGenerator[ServerProcess]:
    """Run a server as long as the block lasts, unless the test ends it before.

    Args:
        folder: where its journal is, and its token.
        agents: the Python file that it serves.
        arguments: options of `orchestrator serve` besides the port and the journal.
        environ: variables besides those that every process needs.
    """
    await trio.Path(folder / "agents_file.py").write_text(agents)
    server = ServerProcess(folder, arguments, environ or {})
    try:
        await server.start()
        yield server
    finally:
        with trio.CancelScope(shield=True):
            await server.stop()


def _bare_environment() -> dict[str, str]:
    """Return the environment without keys and paths of journals."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in {"PATH", "HOME", "LANG", "TMPDIR"} or name.startswith("COV")
    }
