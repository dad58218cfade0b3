"""A sandboxed command reaches the named hosts, and no others."""

import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.sandbox.backend import SandboxBackend, TaskSandbox
from orchestrator.agents.sandbox.detection import detect
from orchestrator.agents.sandbox.network.requests import NetworkRequest
from orchestrator.agents.sandbox.sandbox import Sandbox
from orchestrator.agents.tools.terminal.output_buffer import OutputBuffer
from orchestrator.agents.tools.terminal.process_group import RunningCommand, open_command
from orchestrator.agents.tools.terminal.process_tags import new_tag

pytestmark = pytest.mark.realtime

PYTHON = os.path.realpath(sys.executable)
# Through the proxy of the environment, and past it.
FETCH = """
import sys, urllib.request as r
for url in sys.argv[1:]:
    opener = r.build_opener() if url[0] != "!" else r.build_opener(r.ProxyHandler({}))
    try:
        print(opener.open(url.lstrip("!"), timeout=5).read().decode())
    except OSError as exc:
        print(type(exc).__name__, getattr(exc, "code", ""))
"""


@pytest.fixture(name="backend", params=["bubblewrap", "landlock", "none"], scope="module")
def backend_that_works_here(request: pytest.FixtureRequest) -> SandboxBackend:
    try:
        return detect(request.param).backend
    except DefinitionError as exc:
        pytest.skip(str(exc))


@asynccontextmanager
async def open_host() -> AsyncGenerator[int]:
    """Serve HTTP on the loopback of this machine, and return the port."""

    async def answer(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(b"HTTP/1.0 200 OK\r\n\r\nhello")

    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, answer, [listener])
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


class Runner:
    """Runs commands in a sandbox, and remembers what they asked of the network."""

    def __init__(self, folder: Path, backend: SandboxBackend) -> None:
        self._folder = folder.resolve()
        self._backend = backend
        self.requests: list[NetworkRequest] = []

    async def run(self, command: str, sandbox: Sandbox) -> tuple[str, RunningCommand]:
        output = OutputBuffer()
        async with open_command(
            command,
            cwd=self._folder,
            environ={"PATH": os.defpath},
            sandbox=TaskSandbox(
                backend=self._backend,
                sandbox=sandbox.at(self._folder),
                workspace=self._folder,
                on_request=self.requests.append,
            ),
            tag=new_tag(),
            output=output,
        ) as process:
            await process.wait()
        return output.text(), process

    async def fetch(
        self, *urls: str, network: bool | Sequence[str]
    ) -> tuple[list[str], RunningCommand]:
        (self._folder / "fetch.py").write_text(FETCH)
        said, process = await self.run(
            f"{PYTHON} -I -S fetch.py {' '.join(map(repr, urls))}", Sandbox(network=network)
        )
        return said.splitlines(), process


async def test_a_command_reaches_only_the_named_hosts(
    tmp_path: Path, backend: SandboxBackend
) -> None:
    runner = Runner(tmp_path, backend)
    async with open_host() as port:
        said, process = await runner.fetch(
            f"http://localhost:{port}/",
            "http://example.com/",
            f"http://127.0.0.1:{port + 1 if port < 65535 else 1}/",
            f"!http://127.0.0.1:{port}/",
            network=[f"localhost:{port}", "127.0.0.1:1"],
        )

    # Past the proxy there is a way only where nothing stands in it.
    past = "hello" if backend.name == "none" else "URLError "
    assert said == ["hello", "HTTPError 403", "HTTPError 403", past]
    assert [it.allowed for it in runner.requests] == [True, False, False]
    assert "example.com:80" in process.refused


async def test_a_command_without_named_hosts_has_no_network(
    tmp_path: Path, backend: SandboxBackend
) -> None:
    if backend.name == "none":
        pytest.skip("a fence")
    runner = Runner(tmp_path, backend)
    async with open_host() as port:
        said, _ = await runner.fetch(f"http://127.0.0.1:{port}/", network=False)
        told, _ = await runner.fetch(f"http://127.0.0.1:{port}/", network=True)

    assert said == ["URLError "]
    assert told == ["hello"]
    assert not runner.requests


async def test_a_proxy_is_found_by_any_program_and_not_by_a_server_of_its_own(
    tmp_path: Path, backend: SandboxBackend
) -> None:
    said, _ = await Runner(tmp_path, backend).run(
        "env", Sandbox(network=["pypi", "localhost:8000"])
    )
    found = dict(line.split("=", 1) for line in said.splitlines())

    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        assert found[name] == found[name.upper()]
    assert found["HTTPS_PROXY"].startswith("http://")
    has_password = "@" in found["HTTPS_PROXY"]
    assert has_password is not backend.has_own_loopback
    # Its own servers, but for the name that means this machine here.
    assert found["NO_PROXY"] == "127.0.0.1,::1"


async def test_a_command_has_no_descriptor_of_its_proxy(
    tmp_path: Path, backend: SandboxBackend
) -> None:
    runner = Runner(tmp_path, backend)
    bare, _ = await runner.run("ls /proc/self/fd", Sandbox())
    with_proxy, _ = await runner.run("ls /proc/self/fd", Sandbox(network=["pypi"]))

    assert with_proxy == bare


async def test_the_proxy_works_with_named_readable_folders(
    tmp_path: Path, backend: SandboxBackend
) -> None:
    # Bash connects to an address by a name of its own.
    said, _ = await Runner(tmp_path, backend).run(
        "address=${HTTPS_PROXY##*[/@]}; exec 3<>/dev/tcp/${address/://} && echo connected",
        Sandbox(network=["pypi"], read=[]),
    )

    assert said == "connected\n"
