"""One server: connects to it, keeps its tools, calls it, and connects again for ever.

A server that is down, slow or wrong costs its own calls their own time, and nothing else. A call
that may have run is not made again, unless its server says that this does no harm.
"""

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, cast

import mcp_types as types
import trio
from mcp import Client, MCPError
from mcp.client._transport import TransportStreams
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from orchestrator.agents import DefinitionError, ToolError, raising_one_error
from orchestrator.agents.tools.mcp.json_values import list_in, object_in
from orchestrator.agents.tools.mcp.listed_tools import Listing, ListingReader
from orchestrator.agents.tools.mcp.server import McpCommand, McpServer
from orchestrator.delegation import printable
from orchestrator.ports.errors import LoginRequiredError
from orchestrator.products.mcp.client import checked_messages, server_tasks
from orchestrator.products.mcp.client.checked_messages import harmless, raw_part
from orchestrator.products.mcp.client.http import BROKEN_OFF, REFUSED, SESSION_GONE, UNREACHABLE
from orchestrator.products.mcp.client.server_call import CURRENT, ServerCall
from orchestrator.products.mcp.client.server_requests import ServerRequests
from orchestrator.products.mcp.client.stdio import ServerLog

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 60.0
"""Seconds between two attempts to connect: each time twice as many."""
GOOD_SECONDS: Final = 60.0
"""The seconds of a connection after which the pause starts again from its minimum."""
CLOSE_SECONDS: Final = 8.0
"""How long a connection may take to close: a command has two seconds by itself, and is ended."""
SETTLE_SECONDS: Final = 0.2
"""How long after a change the tools are listed: changes come in swarms."""
LISTEN_PAUSE: Final = 30.0
"""Seconds until a subscription that was lost is made again."""
MOST_PAGES: Final = 50
"""The most pages of a listing that are read."""
LONGEST_SAID: Final = 500
"""How many characters of an error of a server are passed on."""
NAME: Final = "delegation-orchestrator"
VERSION: Final = version(NAME)
SKILLS: Final = "io.modelcontextprotocol/skills"
"""The extension that a server with skills declares (SEP-2640)."""
READ_SKILL: Final = "read_skill"
CANCEL_SECONDS: Final = 5.0
"""How long a server has to take note that its task is cancelled."""

OpenTransport: TypeAlias = Callable[[ServerLog], AbstractAsyncContextManager[TransportStreams]]
ResultT = TypeVar("ResultT")


class ServerConnection:
    """The connection to one server, from the first attempt to its close."""

    def __init__(
        self,
        server: McpServer,
        *,
        open_transport: OpenTransport,
        redact: Callable[[str], str],
        root: Path,
    ) -> None:
        """Connect, as soon as `run` is started; the server is told the workspace `root`."""
        self.server = server
        self.listing: Listing | None = None
        """The tools of the last connection; None before the first."""
        self.capabilities = types.ServerCapabilities()
        self.problem = ""
        """Why there is no connection; empty if there is one, or none was tried."""
        self.wants_login = False
        """There is none because a person has to log in."""
        self.handshake_seconds = self.listing_seconds = 0.0
        """How long the last connection took to be made, and to list the tools."""
        self._open_transport = open_transport
        self._redact = redact
        self._client: Client | None = None
        self._calls: set[ServerCall] = set()
        """Those under way."""
        self._requests = ServerRequests(server, self._calls, root)
        self._ready_by = trio.current_time() + server.connect_timeout
        self._has_tried = False
        self._is_closing = False
        self._is_lost = False
        self._lost_by = ""
        """The error of the call that noticed the loss."""
        self._is_stale = False
        """The tools have changed since they were listed."""
        self._wake = trio.Event()
        self._scope = trio.CancelScope()
        self._changed = trio.lowlevel.ParkingLot()
        """Where calls wait for a connection."""

    # ---- the supervisor

    async def run(self) -> None:
        """Connect again and again, until it is closed. Call it once."""
        # Shielded: `close` ends it, in good order and bounded.
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()
            pause = FIRST_PAUSE
            while not self._is_closing:
                if await self._connect() >= GOOD_SECONDS:
                    pause = FIRST_PAUSE
                if not self._is_closing:
                    self._wake = trio.Event()
                    with trio.move_on_after(pause):
                        await self._wake.wait()
                    pause = min(LONGEST_PAUSE, pause * 2)

    def close(self) -> None:
        """Begin to close it. `run` returns when everything of it has ended."""
        self._is_closing = True
        if self._client is None:
            self._scope.cancel(reason="the orchestrator is closed")
        else:
            self._scope.deadline = trio.current_time() + CLOSE_SECONDS
        self._wake.set()
        self._changed.unpark_all()

    async def _connect(self) -> float:
        """Connect, and return after how many seconds the connection ended."""
        self._is_lost = self._is_stale = False
        self._lost_by = ""
        connected_at = math.inf
        self._wake = trio.Event()
        scope = self._scope = trio.CancelScope()
        # Not `fail_after` around the entry alone: the client leaves a nursery open in it.
        begun = trio.current_time()
        scope.deadline = begun + self.server.connect_timeout
        log = ServerLog()
        problem: BaseException | None = None
        try:
            with scope:
                async with self._opened(log) as client:
                    self.handshake_seconds = trio.current_time() - begun
                    self.listing = await self._list(client)
                    scope.deadline = math.inf
                    connected_at = trio.current_time()
                    self.listing_seconds = connected_at - begun - self.handshake_seconds
                    self._set_connected(client)
                    await self._stay(client)
        except (Exception, BaseExceptionGroup) as exc:  # noqa: BLE001 (a bulkhead: a server is foreign code)
            problem = exc
        finally:
            self._client = None
            self._has_tried = True
            self._changed.unpark_all()
        is_late = scope.cancelled_caught and math.isinf(connected_at)
        self.problem = self._sentence(problem, log, is_late=is_late)
        self.wants_login = problem is not None and isinstance(
            innermost(problem), LoginRequiredError
        )
        await trio.lowlevel.checkpoint()
        return trio.current_time() - connected_at

    def _set_connected(self, client: Client) -> None:
        self._client = client
        self.capabilities = client.server_capabilities
        self.problem = ""
        self.wants_login = False
        self._has_tried = True
        self._changed.unpark_all()
        if self._is_closing:
            self.close()

    @asynccontextmanager
    async def _opened(self, log: ServerLog) -> AsyncGenerator[Client]:
        transport = checked_messages.checked(self._open_transport(log), on_end=self._note_end)
        async with Client(
            transport,
            client_info=types.Implementation(name=NAME, version=VERSION),
            message_handler=self._on_message,
            cache=None,
            extensions=[server_tasks.TasksExtension()],
            **self._requests.callbacks(),
        ) as client:
            yield client

    def _note_end(self) -> None:
        """Note that the server sends no more."""
        self._is_lost = True
        self._wake.set()

    def _note_lost(self, client: Client, why: str) -> None:
        """Note that a call has found the connection gone."""
        if client is self._client:
            self._client = None
            self._lost_by = why
            self._note_end()

    async def _stay(self, client: Client) -> None:
        """Keep the listing true, until the connection is lost or closed."""
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_changes, client)
                while not (self._is_lost or self._is_closing):
                    if self._is_stale:
                        await self._list_again(client)
                    else:
                        await self._wake.wait()
                        self._wake = trio.Event()
                nursery.cancel_scope.cancel()

    async def _watch_changes(self, client: Client) -> None:
        """Subscribe to changes, where the protocol wants that; earlier ones just tell."""
        await trio.lowlevel.checkpoint()
        tools = client.server_capabilities.tools
        is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        while is_modern and tools is not None and tools.list_changed:
            with suppress(MCPError, SubscriptionLost, TimeoutError, ValidationError):
                async with client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self.note_changed()
            await trio.sleep(LISTEN_PAUSE)
            # What has changed without a subscription is not known.
            self.note_changed()

    def note_changed(self) -> None:
        """List its tools and skills again, soon."""
        self._is_stale = True
        self._wake.set()

    async def _list_again(self, client: Client) -> None:
        await trio.sleep(SETTLE_SECONDS)
        self._is_stale = False
        with trio.move_on_after(self.server.connect_timeout):
            try:
                self.listing = await self._list(client)
            except (MCPError, ValidationError):
                # The tools of the last listing stay; a call of one that is gone says so.
                await trio.lowlevel.checkpoint()

    async def _on_message(self, message: object) -> None:
        await trio.lowlevel.checkpoint()
        if isinstance(message, types.ToolListChangedNotification):
            self.note_changed()

    async def _list(self, client: Client) -> Listing:
        listing = await self._list_tools(client)
        declared = client.server_capabilities.extensions or ()
        if SKILLS not in declared or not self.server.offers(READ_SKILL):
            return listing
        from orchestrator.products.mcp.client.server_skills import with_skills

        return await with_skills(self, client, listing)

    async def _list_tools(self, client: Client) -> Listing:
        if client.server_capabilities.tools is None:
            return Listing(())  # noqa: ASYNC910 (its caller waits)
        is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        # The arguments of a tool have to fit into the headers that it wants.
        reader = ListingReader(self.server, find_invalid_x_mcp_header if is_modern else None)
        for tool in await self.pages(client.list_tools, "tools"):
            reader.add(tool)
            await trio.lowlevel.checkpoint()
        return reader.listing()

    async def pages(
        self, list_page: Callable[..., Awaitable[Any]], name: str
    ) -> list[dict[str, Any]]:
        """Return the raw listing of a server. An endless listing is cut."""
        await trio.lowlevel.checkpoint()
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await list_page(cursor=cursor)
            listed = list_in(raw_part(page.meta, name))
            found += map(object_in, listed[: checked_messages.MOST_LISTED - len(found)])
            cursor = page.next_cursor
            if not cursor or len(found) >= checked_messages.MOST_LISTED:
                break
        return found

    def _sentence(self, problem: BaseException | None, log: ServerLog, *, is_late: bool) -> str:
        """Return why a connection ended, or was not made, with the last words of the server."""
        if is_late:
            why = f"it was not ready within {self.server.connect_timeout:g} s"
        elif problem is None:
            why = self._lost_by or "the connection was closed"
        else:
            why = describe(problem)
        if log.exit_code is not None and log.exit_code >= 0 and not is_late:
            why += f"; it exited with code {log.exit_code}"
        if log.held_by and self.listing is None:
            why += f"; {log.held_by}"
        if log.strange_lines:
            count = f"{log.strange_lines} line{'s' * (log.strange_lines > 1)}"
            why += f"; it printed {count} that are no messages, such as {log.first_strange!r}"
        if said := log.stderr.text().strip():
            why += f"; its last words: {said}"
        return printable(self._redact(why))

    # ---- calls

    async def wait_listed(self) -> None:
        """Wait until its tools are listed, its first attempt has failed, or its time is over."""
        with trio.move_on_at(self._ready_by):
            await trio.lowlevel.checkpoint()
            while not (self.listing or self._has_tried or self._is_closing):
                await self._changed.park()

    @property
    def absence(self) -> str:
        """Why its tools are not known; empty if they are."""
        if self.listing is not None:
            return ""
        late = f"it was not ready within {self.server.connect_timeout:g} s"
        return self.problem or late

    async def call(
        self,
        request: "Callable[[Client], Awaitable[ResultT]]",
        server_call: ServerCall,
        *,
        repeatable: bool,
    ) -> ResultT:
        """Make a call, and return the answer of the server.

        A `repeatable` one may be made again, also if it may have run. Raise `ToolError` if there is
        no answer.
        """
        with self._under_way(server_call), server_call.scope as scope:
            scope.deadline = trio.current_time() + self.server.timeout
            return await self._call_twice(request, server_call, repeatable)
        raise ToolError(self._no_answer(server_call))

    async def _call_twice(
        self, request: "Callable[[Client], Awaitable[ResultT]]", call: ServerCall, repeatable: bool
    ) -> ResultT:
        what = call.tool
        is_second = False
        while True:
            client = await self._connected(what)
            call.may_have_run = False
            try:
                with raising_one_error():
                    return await request(client)
            except MCPError as exc:
                if exc.code not in _CONNECTION_ERRORS:
                    raise ToolError(self._refusal(what, exc)) from exc
                # Over HTTP it is the answer that was broken off, and not the connection.
                is_command = isinstance(self.server, McpCommand)
                if exc.code in _LOST or is_command:
                    self._note_lost(client, exc.message)
                if not is_second and (repeatable or not call.may_have_run):
                    is_second = True
                    continue
                raise ToolError(self._broken_off(call, exc)) from exc
            except server_tasks.BecameTaskError as exc:
                await call.caller.note_task(call.id, self.server.name, exc.task)
                result = await self._wait_task(call, exc.task, exc.interval)
                # Only a call of a tool becomes a task.
                return cast("ResultT", result)
            except (ValidationError, DefinitionError, RuntimeError) as exc:
                raise ToolError(
                    f"{what}: its server answered what cannot be read: {self._said(describe(exc))}"
                ) from exc

    async def wait_task(self, server_call: ServerCall, task: str) -> types.CallToolResult:
        """Return the result of the task that this call started earlier, or raise `ToolError`."""
        with self._under_way(server_call):
            return await self._wait_task(server_call, task, 0)

    @contextmanager
    def _under_way(self, call: ServerCall) -> Generator[None]:
        """Let the server ask on behalf of a call for the block."""
        token = CURRENT.set(call)
        self._calls.add(call)
        try:
            yield
        finally:
            self._calls.discard(call)
            CURRENT.reset(token)

    async def _wait_task(
        self, call: ServerCall, task: str, interval: float
    ) -> types.CallToolResult:
        # It may take as long as it takes: that is what it is for.
        call.scope.deadline = math.inf
        has_ended = False
        try:
            while True:
                await trio.sleep(interval)
                state = await self._task_state(call, task)
                interval = server_tasks.interval_of(state.get("pollIntervalMs"))
                match state.get("status"):
                    case "working" | "input_required":
                        pass
                    case "completed":
                        has_ended = True
                        result = harmless("tools/call", object_in(state.get("result")))
                        return types.CallToolResult.model_validate(result)
                    case status:
                        has_ended = True
                        said = object_in(state.get("error")).get("message")
                        why = self._said(str(said or state.get("statusMessage") or ""))
                        raise ToolError(
                            f"{call.tool} is {status!s:.20} at its server{why and ': '}{why}"
                        )
        finally:
            # A task of ours that is only interrupted goes on with it in another process.
            if not has_ended and call.caller.is_over:
                await self._cancel_task(task)  # noqa: ASYNC102 (shielded and bounded there)

    async def _task_state(self, call: ServerCall, task: str) -> dict[str, Any]:
        """Return how far a task has come, however often the connection is lost meanwhile."""
        while True:
            client = await self._connected(call.tool)
            try:
                with raising_one_error():
                    state = await server_tasks.ask_about(client.session, task)
                    if state.get("status") == "input_required":
                        await server_tasks.give_input(client.session, task, state)
                    return state
            except MCPError as exc:
                if exc.code not in _CONNECTION_ERRORS:
                    raise ToolError(
                        f"{call.tool}: its server no longer knows its task:"
                        f" {self._said(exc.message)}"
                    ) from exc
                if exc.code in _LOST or isinstance(self.server, McpCommand):
                    self._note_lost(client, exc.message)
                await trio.sleep(FIRST_PAUSE)

    async def _cancel_task(self, task: str) -> None:
        with trio.move_on_after(CANCEL_SECONDS, shield=True):
            await trio.lowlevel.checkpoint()
            if (client := self._client) is not None:
                with suppress(MCPError, ValidationError):
                    await server_tasks.cancel(client.session, task)

    async def _connected(self, what: str) -> Client:
        await trio.lowlevel.checkpoint()
        while self._client is None:
            if self._is_closing:
                raise ToolError(f"{what} was not called: the orchestrator is closed")
            await self._changed.park()
        return self._client

    def _no_answer(self, call: ServerCall) -> str:
        what = call.tool
        seconds = f"{self.server.timeout:g} s"
        if self._client is None and not call.may_have_run:
            why = self.problem or "it is not connected yet"
            return (
                f"{what} was not called: within {seconds} its server {self.server.name!r} could"
                f" not be connected: {why}"
            )
        return (
            f"{what} did not answer within {seconds}, and its server was told to stop it; it may"
            " have happened or not"
        )

    def _broken_off(self, call: ServerCall, exc: MCPError) -> str:
        what = call.tool
        said = self._said(exc.message)
        if not call.may_have_run:
            return f"{what} was not called: {said}"
        return (
            f"{what} was broken off: its server {self.server.name!r} is gone ({said}). It may"
            " have happened or not; find out before you call it again"
        )

    def _refusal(self, what: str, exc: MCPError) -> str:
        if exc.code == types.METHOD_NOT_FOUND:
            return f"{what} is not there any more: {self._said(exc.message)}"
        return f"{what} was refused by its server: {self._said(exc.message)}"

    def _said(self, text: str) -> str:
        text = printable(self._redact(text))
        return text if len(text) <= LONGEST_SAID else f"{text[:LONGEST_SAID]} […]"


_LOST: Final = frozenset({UNREACHABLE, SESSION_GONE})
_CONNECTION_ERRORS: Final = frozenset(
    {types.CONNECTION_CLOSED, UNREACHABLE, SESSION_GONE, BROKEN_OFF, REFUSED}
)


def innermost(problem: BaseException) -> BaseException:
    """Return the error that others are wrapped around."""
    while isinstance(problem, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", problem)
        problem = group.exceptions[-1]
    return problem


def describe(problem: BaseException) -> str:
    """Return the reason of an error of the SDK, which comes wrapped in groups."""
    match problem := innermost(problem):
        case MCPError():
            return problem.message
        case ToolError():
            return str(problem)
        case ValidationError():
            first = problem.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            return f"{where}: {first['msg']}"
        case _:
            said = str(problem)
            return said or type(problem).__name__
