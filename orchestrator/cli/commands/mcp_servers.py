"""`orchestrator mcp login, logout, list, test`: the servers whose tools agents use."""

import os
import webbrowser
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import attrs
import msgspec
import trio
from cyclopts import Parameter
from rich.text import Text

from orchestrator.agents import Agent, McpUrl, raising_one_error
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.redaction.secret_variables import secret_values
from orchestrator.agents.sandbox.choice import SandboxChoice
from orchestrator.agents.secret_references import resolve_references
from orchestrator.agents.tools.mcp.listed_tools import Listing
from orchestrator.agents.tools.mcp.server import McpServer
from orchestrator.agents.tools.mcp.server_file import McpServers
from orchestrator.cli.agent_file import load_agents
from orchestrator.cli.errors import CommandError
from orchestrator.cli.exit_codes import FAILED, SUCCEEDED
from orchestrator.cli.options import BrowserOption, JsonOption
from orchestrator.cli.signals import Stop, run_stoppable
from orchestrator.cli.terminal.console import Terminal, print_hint, print_table
from orchestrator.cli.trust import TrustOption, require_trust
from orchestrator.ports.errors import LoginError
from orchestrator.ports.execution import ProgramSandbox
from orchestrator.ports.files import foreign_file, real_paths, state_folder
from orchestrator.ports.settings import SANDBOX_VARIABLE
from orchestrator.products.agent_files.effects import effects_of_servers
from orchestrator.products.mcp.client.connections import EXTRA, McpConnections
from orchestrator.products.mcp.client.login import file as login_file

if TYPE_CHECKING:
    from orchestrator.products.mcp.client.connection import ServerConnection

SECRET_VARIABLE: Final = "ORCHESTRATOR_MCP_CLIENT_SECRET"  # noqa: S105 (a name)

CONFIGURATION: Final = ".mcp.json"

ServerArgument = Annotated[str, Parameter(help="The name of a server in --file, or its address.")]
FileOption = Annotated[
    str | None,
    Parameter(
        name=["--file", "-f"],
        help="The file that names the servers: a .mcp.json, a Python file with agents, a folder of"
        " agents (*.md) or a team.yaml. By default the .mcp.json of this folder.",
    ),
]


def login(
    server: ServerArgument,
    /,
    *,
    file: FileOption = None,
    browser: BrowserOption = True,
    scope: tuple[str, ...] = (),
    port: int = 0,
    client_id: str = "",
    client_metadata_url: str | None = None,
    trust: TrustOption = False,
) -> int:
    """Log in to a server in a browser, and store the login for all your agents.

    Args:
        scope: A permission to ask for besides those that the server names; repeat it for several.
        port: The port on this machine that the browser returns to; by default a free one.
        client_id: Your client id at the server, if it does not register new clients. A secret is
            read from ORCHESTRATOR_MCP_CLIENT_SECRET.
        client_metadata_url: A URL where the server can read about this client, instead of
            registering it.
    """
    if not 0 <= port < 65_536:
        raise CommandError(f"--port {port} is not a port: 1 to 65535, or 0 for any")
    target = _url_of(server, file, trust=trust)
    _require_sdk()
    # Imported late: the SDK is an extra, and slow to import.
    from orchestrator.products.mcp.client.login.person import LoginRequest, log_in

    request = LoginRequest(
        url=target.url,
        headers=target.headers,
        scope=" ".join(scope),
        port=port,
        client_id=client_id,
        client_secret=_client_secret() if client_id else "",
        client_metadata_url=client_metadata_url,
    )
    console = Terminal(stderr=True)

    async def show_link(link: str) -> None:
        await trio.lowlevel.checkpoint()
        is_open = browser and await trio.to_thread.run_sync(webbrowser.open, link)
        begin = "a browser has been opened; if not," if is_open else "log in here:"
        console.print(Text(f"{begin} {link}"), soft_wrap=True)

    async def work(_stop: Stop) -> int:
        await trio.lowlevel.checkpoint()
        try:
            made = await log_in(request, login_file.logins_file(os.environ), show_link=show_link)
        except LoginError as exc:
            console.print(Text(f"✗ {target.name}: {exc}", style="red"), soft_wrap=True)
            return FAILED
        if made is None:
            console.print(Text(f"{target.name} wants no login"))
            return SUCCEEDED
        granted = str((made.tokens or {}).get("scope") or "")
        allows = f", for {granted}" if granted else ""
        console.print(Text(f"logged in to {target.name}{allows}", style="green"))
        return SUCCEEDED

    return run_stoppable(work)


def logout(server: ServerArgument, /, *, file: FileOption = None) -> int:
    """Forget the login at a server, and revoke it there if the server allows that."""
    target = _url_of(server, file, trust=True)
    logins = login_file.logins_file(os.environ)
    address = login_file.address_of(target.url)
    found = login_file.read_logins(logins).get(address)
    console = Terminal(stderr=True)
    if found is None or found.tokens is None:
        print_hint(console, f"there is no login at {target.name}")
        return SUCCEEDED
    # Forget it here first: the server may never get the request.
    with login_file.changed_logins(logins) as changed:
        changed.pop(address, None)
    _require_sdk()
    from orchestrator.products.mcp.client.login.authorization import revoke

    async def work(_stop: Stop) -> int:
        was_told = await revoke(found)
        end = "" if was_told else "; the server was not told, so its token is valid until it ends"
        console.print(Text(f"logged out of {target.name}{end}"))
        return SUCCEEDED

    return run_stoppable(work)


def list_(*, file: FileOption = None, json: JsonOption = False, trust: TrustOption = False) -> int:
    """Connect to all servers, and print the state, the tools and the problems of each.

    Exits with 0 if all can be used, and with 1 if one cannot.
    """
    servers = _servers(file, trust=trust)
    _require_sdk()
    shown: list[_Shown] = []

    async def work(_stop: Stop) -> int:
        async with _connections() as connections:
            found = [connections.connect(it) for it in servers.values()]
            with raising_one_error():
                async with trio.open_nursery() as nursery:
                    for connection in found:
                        nursery.start_soon(connection.wait_listed)
            shown.extend(map(_shown, found))
        return SUCCEEDED

    code = run_stoppable(work)
    if code != SUCCEEDED:
        return code
    if json:
        print(msgspec.json.encode([attrs.asdict(it) for it in shown]).decode())
    else:
        _print_table(shown)
    return SUCCEEDED if all(it.state == "ready" for it in shown) else FAILED


def probe(server: ServerArgument, /, *, file: FileOption = None, trust: TrustOption = False) -> int:
    """Connect to a server and list its tools, with the time of each step.

    Exits with 0 if it can be used, and with 1 if it cannot.
    """
    target = _server(server, file, trust=trust)
    _require_sdk()
    console = Terminal()

    async def work(_stop: Stop) -> int:
        async with _connections() as connections:
            connection = connections.connect(target)
            await connection.wait_listed()
            if connection.absence:
                console.print(
                    Text(f"✗ {target.name}: {connection.absence}", style="red"), soft_wrap=True
                )
                return FAILED
            listing = connection.listing or Listing(())
            tools = listing.tools
            names = ", ".join(it.own_name for it in tools) or "none"
            for step, seconds in (
                ("connected", connection.handshake_seconds),
                (f"listed {_count(len(tools))}: {names}", connection.listing_seconds),
            ):
                console.print(Text(f"✓ {seconds:6.2f} s  {step}"), soft_wrap=True)
            if listing.skills:
                skills = ", ".join(it.name for it in listing.skills)
                console.print(Text(f"✓ skills: {skills}"), soft_wrap=True)
            for problem in listing.problems:
                console.print(Text(f"✗ left out: {problem}", style="yellow"), soft_wrap=True)
        return SUCCEEDED

    return run_stoppable(work)


@attrs.frozen
class _Shown:
    """The printed state of a server."""

    name: str
    state: str
    """`ready`, `login` or `down`."""
    tools: list[str]
    problem: str


def _shown(connection: "ServerConnection") -> _Shown:
    listed = () if connection.listing is None else connection.listing.tools
    state = "ready"
    if connection.absence:
        state = "login" if connection.wants_login else "down"
    return _Shown(connection.server.name, state, [it.own_name for it in listed], connection.absence)


def _print_table(shown: list[_Shown]) -> None:
    styles = {"ready": "green", "login": "yellow", "down": "red"}
    rows = [
        (it.name, Text(it.state, style=styles[it.state]), str(len(it.tools)), it.problem)
        for it in shown
    ]
    print_table(Terminal(), ("server", "state", "tools", "problem"), rows, wrapped=["problem"])


def _count(tools: int) -> str:
    return f"{tools} tool{'s' * (tools != 1)}"


@asynccontextmanager
async def _connections() -> AsyncGenerator[McpConnections]:
    """Yield connections, which end with the block together with the processes that they started."""
    values = resolve_references(os.environ)
    environ = {**os.environ, **values}
    redactor = Redactor(secret_values(environ, values))
    state = state_folder(os.environ)
    connections = McpConnections(
        environ,
        redactor,
        workspace=Path.cwd(),
        state=state,
        sandbox=ProgramSandbox(
            choice=SandboxChoice(os.environ.get(SANDBOX_VARIABLE) or "auto"),
            hidden=tuple(real_paths([state])),
        ),
    )
    with raising_one_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connections.run_forever)
            yield connections
            nursery.cancel_scope.cancel(reason="the command has ended")


def _servers(file: str | None, *, trust: bool) -> dict[str, McpServer]:
    """Return the servers of a file, by their names."""
    if file is None:
        if not Path(CONFIGURATION).is_file():
            raise CommandError(
                f"there is no {CONFIGURATION} here: say which file names the servers, with --file"
            )
        file = CONFIGURATION
    if file.endswith(".json"):
        if problem := Path(file).exists() and foreign_file(Path(file)):
            raise CommandError(problem)
        named = {it.name: it for it in McpServers.from_file(file)}
        require_trust(Path(file), effects_of_servers(named.values()), trust=trust)
        return dict(sorted(named.items()))
    found: dict[str, McpServer] = {}
    pending: list[Agent[Any]] = list(load_agents(file, trust=trust).values())
    seen: set[int] = set()
    while pending:
        agent = pending.pop()
        if id(agent) in seen:
            continue
        seen.add(id(agent))
        pending += agent.team
        for server in agent.servers:
            if found.setdefault(server.name, server) != server:
                raise CommandError(
                    f"{file} has two servers of the name {server.name!r}: give one of them another"
                )
    if not found:
        raise CommandError(f"no agent of {file} has a server")
    return dict(sorted(found.items()))


def _server(name: str, file: str | None, *, trust: bool) -> McpServer:
    if "://" in name:
        if not name.startswith(("https://", "http://")):
            raise CommandError(
                f"{name} is not the address of a server: it must begin with https:// or http://"
            )
        return McpUrl("server", name)
    servers = _servers(file, trust=trust)
    if name not in servers:
        raise CommandError(
            f"{file or CONFIGURATION} has no server {name!r}; there are:"
            f" {', '.join(servers) or 'none'}"
        )
    return servers[name]


def _url_of(name: str, file: str | None, *, trust: bool) -> McpUrl:
    """Return the server that a user logs in to, with the values of its headers."""
    server = _server(name, file, trust=trust)
    if not isinstance(server, McpUrl):
        raise CommandError(
            f"{name} is a command, which has no login: give it its key in env={{...}}"
        )
    return server.resolved({**os.environ, **resolve_references(os.environ)})


def _client_secret() -> str:
    return {**os.environ, **resolve_references(os.environ)}.get(SECRET_VARIABLE, "")


def _require_sdk() -> None:
    if find_spec("mcp") is None:
        raise CommandError(f"this needs the official SDK of MCP: {EXTRA}")
