"""Servers that are commands: the folder that they start in, and the sandbox that holds them."""

import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from orchestrator import Machine, load_agents, open_orchestrator
from orchestrator.agents import Agent, DefinitionError, McpCommand, ScriptedModel, ToolCall, allow
from orchestrator.agents.sandbox.detection import detect
from orchestrator.agents.sandbox.program_path import program_path
from orchestrator.agents.tools.files import FILES
from orchestrator.agents.tools.mcp.server_file import server_from
from tests.mcp.kit import HERE, Caller, program, user

realtime = pytest.mark.realtime
WALLS: Final = ("bubblewrap", "landlock")
# Python looks for modules in the folder that it starts in, before it looks anywhere else.
HONEST: Final = (
    *(sys.executable, "-c"),
    f"import runpy; runpy.run_path({str(HERE / 'calculator.py')!r}, run_name='__main__')",
)


def require_backend(name: str) -> None:
    try:
        detect(name)
    except DefinitionError as exc:
        pytest.skip(str(exc))


@pytest.fixture
def folder() -> Generator[Path]:
    """Not in `/tmp`, which every sandbox may have for itself."""
    made = Path(tempfile.mkdtemp(dir=HERE, prefix=".server-"))
    (made / "work").mkdir()
    yield made
    shutil.rmtree(made)


def names_in(folder: Path) -> set[str]:
    return {it.name for it in folder.iterdir()}


def shell(**options: Any) -> McpCommand:
    return program("sh", "shell.py", **options)


async def try_out(folder: Path, server: McpCommand, *commands: str, backend: str) -> list[str]:
    """Return what a server makes of commands, with the exit code of each first."""
    require_backend(backend)
    model = Caller(*[ToolCall("sh__run", {"command": it}) for it in commands])
    environ = {**os.environ, "ORCHESTRATOR_HOME": str(folder / "home")}
    async with open_orchestrator(
        ":memory:", machine=Machine(workspace=folder / "work", sandbox=backend, environ=environ)
    ) as orchestrator:
        await orchestrator.run(user(model, server), "go")
    return [it.text for it in model.answers]


@realtime
@pytest.mark.parametrize("module", ["mcp", "json"])
@pytest.mark.parametrize("backend", [*WALLS, "none"])
async def test_a_file_of_an_agent_is_imported_by_no_server(
    tmp_path: Path, backend: str, module: str
) -> None:
    """It has the name of a module that the server imports."""
    require_backend(backend)
    (tmp_path / "work").mkdir()
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w')"
    model = Caller()
    child = Agent("child", model=model, servers=[McpCommand("calc", HONEST)], approve=[allow("*")])
    boss = Agent(
        "boss",
        model=ScriptedModel(
            [
                ToolCall("write_file", {"path": f"{module}.py", "content": code}),
                ToolCall("delegate_task", {"goal": "go"}),
                "done",
            ]
        ),
        tools=FILES,
        delegates=[child],
        approve=[allow("*")],
    )
    environ = {**os.environ, "ORCHESTRATOR_HOME": str(tmp_path / "home")}
    async with open_orchestrator(
        ":memory:", machine=Machine(workspace=tmp_path / "work", sandbox=backend, environ=environ)
    ) as orchestrator:
        await orchestrator.run(boss, "go", attended=False)

    assert (tmp_path / "work" / f"{module}.py").exists()
    assert "calc__add" in model.tools
    assert not ran.exists()


@realtime
async def test_a_server_that_starts_in_the_workspace_imports_no_module_there(folder: Path) -> None:
    """Its author wants it so, and is warned: other programs than Python do not ask."""
    (folder / "work" / "mcp.py").write_text("raise SystemExit(1)")
    model = Caller()
    agent = user(model, McpCommand("calc", HONEST, cwd=Path()))
    async with open_orchestrator(
        ":memory:", machine=Machine(workspace=folder / "work")
    ) as orchestrator:
        with pytest.warns(UserWarning, match="starts in .*work, where agents write"):
            await orchestrator.run(agent, "go")

    assert "calc__add" in model.tools


@realtime
@pytest.mark.parametrize("backend", WALLS)
async def test_a_server_writes_its_own_folder_alone(folder: Path, backend: str) -> None:
    answers = await try_out(
        folder,
        shell(),
        "touch own && echo > ${TMPDIR:-/tmp}/own",
        f"touch {folder}/work/new",
        f"touch {folder}/new",
        f"touch {folder}/home/new",
        backend=backend,
    )

    assert [it.startswith("0") for it in answers] == [True, False, False, False]
    assert names_in(folder) == {"work", "home"}
    assert names_in(folder / "work") == set()
    assert "server-folders" not in names_in(folder / "home")


@realtime
@pytest.mark.parametrize("backend", WALLS)
async def test_a_server_writes_only_the_named_paths(folder: Path, backend: str) -> None:
    """A relative path is inside the workspace."""
    (folder / "named").mkdir()
    server = shell(write=[".", folder / "named"])

    answers = await try_out(
        folder,
        server,
        f"touch {folder}/work/new",
        f"touch {folder}/named/new",
        f"touch {folder}/new",
        backend=backend,
    )

    assert [it.startswith("0") for it in answers] == [True, True, False]


@realtime
@pytest.mark.parametrize("backend", WALLS)
async def test_a_server_reads_neither_state_nor_credentials(
    folder: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    for name in (".ssh", "home"):
        (folder / name).mkdir()
        (folder / name / "secret").write_text("it is known")

    answers = await try_out(
        folder, shell(), f"cat {folder}/.ssh/secret", f"cat {folder}/home/secret", backend=backend
    )

    assert not any("known" in it for it in answers)
    assert not any(it.startswith("0") for it in answers)


@realtime
@pytest.mark.parametrize("backend", WALLS)
@pytest.mark.parametrize("network", [False, True])
async def test_a_server_has_the_network_that_its_author_names(
    folder: Path, backend: str, *, network: bool
) -> None:
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    connect = f'import socket; socket.create_connection(("127.0.0.1", {port}))'
    async with listener:
        answers = await try_out(
            folder, shell(network=network), f"{sys.executable} -c '{connect}'", backend=backend
        )

    assert answers[0].startswith("0") == network


@realtime
async def test_a_server_reaches_the_hosts_that_its_author_names(folder: Path) -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, answer, listeners)
        ask = 'import urllib.request as it; print(it.urlopen("http://{}/").read())'
        answers = await try_out(
            folder,
            shell(network=[f"localhost:{port}"]),
            f"{sys.executable} -c '{ask.format(f'localhost:{port}')}'",
            f"{sys.executable} -c '{ask.format('example.org')}'",
            backend="bubblewrap",
        )
        nursery.cancel_scope.cancel()

    assert answers[0] == "0 b'hi'\n"
    assert "403" in answers[1]


@realtime
@pytest.mark.parametrize("backend", WALLS)
async def test_a_server_may_opt_out_of_the_sandbox(folder: Path, backend: str) -> None:
    answers = await try_out(
        folder, shell(sandbox=False), f"touch {folder}/new; pwd", backend=backend
    )

    assert (folder / "new").exists()
    assert "server-folders" in answers[0]


@realtime
async def test_a_server_that_fails_in_its_sandbox_reports_the_allowed_paths(folder: Path) -> None:
    require_backend("bubblewrap")
    model = Caller()
    server = McpCommand("bad", ["/bin/sh", "-c", "exit 3"])
    async with open_orchestrator(
        ":memory:", machine=Machine(workspace=folder / "work", sandbox="bubblewrap")
    ) as orchestrator:
        await orchestrator.run(user(model, server), "go")

    said = str(model.requests[-1])
    assert "exited with code 3" in said
    assert "in a sandbox with no network" in said


def test_a_server_file_configures_the_sandbox_of_a_server() -> None:
    written = {
        "command": "npx",
        "args": ["-y", "server"],
        "write": ["~/.npm", "."],
        "read": ["~/notes"],
        "network": ["npm", "api.example.com"],
    }

    server = server_from("it", written)

    assert isinstance(server, McpCommand)
    assert server.allowed.write == (Path("~/.npm"), Path())
    assert server.allowed.read == (Path("~/notes"),)
    assert server.allowed.network == ("npm", "api.example.com")
    plain = server_from("it", {"command": "docker", "sandbox": False})
    assert isinstance(plain, McpCommand)
    assert not plain.sandbox


def test_an_agent_file_configures_the_sandbox_of_a_server(tmp_path: Path) -> None:
    (tmp_path / "helper.md").write_text(
        "---\nname: helper\ndescription: Helps.\nmodel: openai:gpt-5\ntools: []\n"
        "servers:\n  files:\n    command: npx\n    write: ['.']\n    network: [npm]\n---\nHelp.\n"
    )

    [server] = load_agents(tmp_path)["helper"].servers

    assert isinstance(server, McpCommand)
    assert server.write == (Path(),)
    assert server.network == ("npm",)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"write": "."}, "write is '.', and must be a list"),
        ({"read": "."}, "read is '.', and must be a list"),
        ({"network": "pypi"}, "network is 'pypi', and must be a list"),
        ({"sandbox": "no"}, "its sandbox must be True or False"),
        ({"sandbox": False, "write": ["."]}, "leave those out, or sandbox=False"),
    ],
)
def test_a_wrong_sandbox_of_a_server_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        McpCommand("it", ["x"], **wrong)


def test_a_relative_folder_of_the_path_has_no_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent may work in the folder that this process is in."""
    (tmp_path / "sh").write_text("#!/bin/sh\n")
    (tmp_path / "sh").chmod(0o755)
    monkeypatch.chdir(tmp_path)

    assert program_path("sh", environ={"PATH": ".:/bin"}, cwd=tmp_path) == "/bin/sh"
    with pytest.raises(FileNotFoundError):
        program_path("sh", environ={"PATH": "."}, cwd=tmp_path)
