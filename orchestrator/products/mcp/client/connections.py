"""The connections to the servers of all agents. This owns them, and what their commands started.

Equal servers share a connection, also between agents. Nothing of it is imported or started before
an agent that names a server runs.
"""

import logging
import os
import sys
import warnings
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from orchestrator.agents import Agent, DefinitionError, Sandbox, ToolError, raising_one_error
from orchestrator.agents.redaction.command_environment import only_named
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.sandbox.backend import TaskSandbox
from orchestrator.agents.sandbox.unconfined import UNCONFINED
from orchestrator.agents.tools.context import current_tool_context
from orchestrator.agents.tools.mcp.server import McpCommand, McpServer, McpUrl, secrets_of
from orchestrator.agents.tools.terminal.process_tags import new_tag, with_tag
from orchestrator.ports.execution import ProgramSandbox, ServerTools, TaskHost, WorkOrder
from orchestrator.products.mcp.client.left_programs import ProgramLock
from orchestrator.products.mcp.client.login.file import logins_file

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

    from orchestrator.products.mcp.client.connection import ServerConnection
    from orchestrator.products.mcp.client.stdio import ServerLog

CONNECTION: Final = "orchestrator.products.mcp.client.connection"
SAFE_PATH: Final = "PYTHONSAFEPATH"
"""With it, Python imports nothing from the folder that it starts in."""
EXTRA: Final = "pip install 'delegation-orchestrator[mcp]'"


@attrs.frozen
class _Key:
    """The key of a connection."""

    server: McpServer
    """As it is written: the values of its variables are the same everywhere."""
    root: Path | None
    """The workspace that it is told; None if it is told none."""


@attrs.define
class _Shared:
    """A connection, and how many turns use it."""

    connection: "ServerConnection"
    turns: int = 0


class McpConnections:
    """Connects to servers (`orchestrator.kernel.execution.tool_servers.ToolServers`)."""

    def __init__(
        self,
        environ: Mapping[str, str],
        redactor: Redactor,
        *,
        workspace: Path,
        state: Path,
        sandbox: ProgramSandbox,
    ) -> None:
        """Connect to nothing yet.

        Args:
            environ: has the variables that servers name.
            redactor: learns their secrets.
            workspace: the folder that servers are told, and that relative paths are inside.
            state: the folder in which is noted what a crash would leave behind.
            sandbox: makes the sandboxes of commands.
        """
        self._environ = environ
        self._redactor = redactor
        self._workspace = workspace
        self._sandbox = sandbox
        self._lock = ProgramLock(state)
        self._shared: dict[_Key, _Shared] = {}
        self._queued: list[ServerConnection] = []
        self._queue_changed = trio.lowlevel.ParkingLot()
        self._is_closing = False

    def require(self, agent: Agent[Any]) -> None:
        for server in agent.servers:
            if find_spec("mcp") is None:
                raise DefinitionError(
                    f"agent {agent.name!r}: its server {server.name!r} needs the official SDK of"
                    f" the Model Context Protocol: {EXTRA}"
                )
            try:
                server.resolved(self._environ)
            except DefinitionError as exc:
                raise DefinitionError(f"agent {agent.name!r}: {exc}") from exc
            self._redactor.learn(secrets_of(server, self._environ))
            if isinstance(server, McpCommand):
                self._warn_of_folder(agent, server)

    async def run_forever(self) -> None:
        """Run connections as they are asked for. This nursery owns every one of them."""
        try:
            with raising_one_error():
                async with trio.open_nursery() as connections:
                    try:
                        while True:
                            while self._queued:
                                connections.start_soon(self._queued.pop().run)
                            await self._queue_changed.park()
                    finally:
                        # Each is shielded, and closes by itself.
                        self._is_closing = True
                        for shared in self._shared.values():
                            shared.connection.close()
        finally:
            self._lock.release()

    def kill_now(self) -> None:
        self._lock.kill_programs()

    @asynccontextmanager
    async def open_turn(self, order: WorkOrder, host: TaskHost) -> AsyncGenerator[ServerTools]:
        await _import_sdk()
        root = current_tool_context().workspace
        keys = [_Key(it, root if it.roots else None) for it in dict.fromkeys(order.agent.servers)]
        connections = [self._use(key) for key in keys]
        try:
            yield await self._tools(connections, host)
        finally:
            for key in keys:
                self._leave(key)

    def connect(self, server: McpServer) -> "ServerConnection":
        """Connect to a server on behalf of no task, and keep the connection."""
        return self._use(_Key(server, None))

    async def _tools(self, connections: "list[ServerConnection]", caller: TaskHost) -> ServerTools:
        # Imported late, as all that imports the SDK.
        from orchestrator.products.mcp.client.server_tools import tools_of

        # At the same time: the slowest one decides, and none waits for another.
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                for connection in connections:
                    nursery.start_soon(connection.wait_listed)
        away = [
            f"The tools of the server {it.server.name!r} are missing, because it is not connected:"
            f" {it.absence}."
            for it in connections
            if it.absence
        ]
        tools = [tool for it in connections for tool in tools_of(it, caller)]
        notes = [" ".join(away)]
        if any(it.listing and it.listing.skills for it in connections):
            from orchestrator.products.mcp.client.server_skills import skills_note

            notes += map(skills_note, connections)
        return ServerTools(tools, "\n\n".join(filter(None, notes)))

    def _use(self, key: _Key) -> "ServerConnection":
        if key not in self._shared:
            if self._is_closing:
                raise ToolError("the orchestrator is closed")
            connection = self._new_connection(key)
            self._shared[key] = _Shared(connection)
            self._queued.append(connection)
            self._queue_changed.unpark()
        shared = self._shared[key]
        shared.turns += 1
        return shared.connection

    def _leave(self, key: _Key) -> None:
        shared = self._shared[key]
        shared.turns -= 1
        # The folder of a task may be gone with the task.
        if not shared.turns and key.root not in {None, self._workspace}:
            del self._shared[key]
            shared.connection.close()

    def _new_connection(self, key: _Key) -> "ServerConnection":
        from orchestrator.products.mcp.client.connection import ServerConnection

        # It logs whole messages. What there is to say, we say in a sentence, without secrets.
        logging.getLogger("mcp.client").setLevel(logging.CRITICAL)

        server = key.server.resolved(self._environ)

        def open_transport(log: "ServerLog") -> "AbstractAsyncContextManager[TransportStreams]":
            if isinstance(server, McpUrl):
                return open_url(server, self._environ, self._redactor)
            return self._open_command(server, log, key.root or self._workspace)

        return ServerConnection(
            server,
            open_transport=open_transport,
            redact=self._redactor.redact,
            root=key.root or self._workspace,
        )

    @asynccontextmanager
    async def _open_command(
        self, server: McpCommand, log: "ServerLog", root: Path
    ) -> "AsyncGenerator[TransportStreams]":
        from orchestrator.products.mcp.client.stdio import open_stdio

        # What is not noted would be left behind by a crash.
        self._lock.take()
        # Empty, and its own: a program obeys files of the folder that it starts in, and agents
        # write in the workspace.
        own = await trio.to_thread.run_sync(self._lock.make_start_folder)
        try:
            cwd = own if server.cwd is None else self._workspace / server.cwd
            place = await self._place(server, own, cwd, root)
            environ = {**only_named(self._environ, ()), SAFE_PATH: "1", **server.env}
            async with open_stdio(
                server.command,
                cwd=cwd,
                environ=with_tag(environ, self._lock.tag),
                sandbox=place,
                tag=new_tag(),
                log=log,
            ) as streams:
                if place is not None and place.backend is not UNCONFINED:
                    log.held_by = _held_by(server)
                yield streams
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(partial(rmtree, own, ignore_errors=True))

    async def _place(
        self, server: McpCommand, own: Path, cwd: Path, root: Path
    ) -> TaskSandbox | None:
        """Return the sandbox of a server; None if it has none."""
        await trio.lowlevel.checkpoint()
        if not server.sandbox:
            return None
        allowed, visible = _allowed_to(server, cwd, root)
        return await self._sandbox.around(allowed, workspace=own, visible=visible)

    def _warn_of_folder(self, agent: Agent[Any], server: McpCommand) -> None:
        """Warn of a server that starts where agents write."""
        if server.cwd is None:
            return
        folder = os.path.realpath(self._workspace / server.cwd)
        if Path(folder).is_relative_to(os.path.realpath(self._workspace)):
            warnings.warn(
                f"agent {agent.name!r}: its server {server.name!r} starts in {folder}, where agents"
                " write: many programs run what they find in the folder that they start in. Leave"
                " its cwd out, or name a folder outside of the workspace",
                stacklevel=2,
            )


def _allowed_to(server: McpCommand, cwd: Path, root: Path) -> tuple[Sandbox, list[Path]]:
    """Return what a server may touch, with real paths, and what it sees wherever that is."""
    root = root.resolve()
    # What the person has named themselves is seen, also in a temporary folder.
    named = [Path(it) for it in server.command if os.path.isabs(it)]  # noqa: PTH117 (a text)
    return server.allowed.at(root), [root, cwd, *named]


def _held_by(server: McpCommand) -> str:
    """Return what the sandbox of a server keeps it from."""
    match server.network:
        case True:
            network = "all of the network"
        case False:
            network = "no network"
        case _:
            network = "the network of its named hosts"
    return (
        f"it runs in a sandbox with {network}, and writes only what its `write` names: say in"
        " `network` and `write` what it needs besides"
    )


def open_url(
    server: McpUrl, environ: Mapping[str, str], redactor: Redactor
) -> "AbstractAsyncContextManager[TransportStreams]":
    """Open the streams of a server that is reached by HTTP, with the login of the user if any."""
    from orchestrator.products.mcp.client.http import open_http
    from orchestrator.products.mcp.client.login.stored_login import StoredLogin

    if any(name.lower() == "authorization" for name in server.headers):
        return open_http(server.url, server.headers)
    login = StoredLogin(
        server.name,
        server.url,
        logins_file(environ),
        note_secrets=partial(redactor.learn, source=f"login {server.url}"),
    )
    return open_http(server.url, server.headers, login)


async def _import_sdk() -> None:
    """Import what imports the SDK, in a thread: it takes a second, and all else goes on."""
    await trio.lowlevel.checkpoint()
    if CONNECTION not in sys.modules:
        await trio.to_thread.run_sync(import_module, CONNECTION)
