"""The MCP SDK behind our own checks: it answers requests for the owner of their key.

All work of a request ends with it, unless it is a task: the SDK's own tasks live in a nursery of
the request, which ends when its client hangs up, its key ends or the server stops.

A client of 2025-11-25 gets a session id, which no server remembers. It tells the calls of one
client from the calls of another one with the same key, so a notification cancels the right call,
and an answer to a form reaches it, at any server of a cluster.
"""

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from secrets import token_hex
from typing import Any, Final, TypeAlias, cast

import msgspec
import trio
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from orchestrator.agents import raising_one_error
from orchestrator.delegation import SessionId, SessionRecord
from orchestrator.delegation.session_state import SessionState
from orchestrator.ports.reads import FoundSession
from orchestrator.ports.sessions import InboundRequest
from orchestrator.products.history.ports import TreeFormat, draw_tree
from orchestrator.products.mcp import ports as mcp
from orchestrator.products.server.api import lookup
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.json_rpc import CALL, SCOPES, RpcMessage, error_response
from orchestrator.products.server.keys.store import Access
from orchestrator.products.server.transport import sse
from orchestrator.products.server.transport.errors import (
    CLIENT_CLOSED_REQUEST,
    HttpError,
    key_ended,
    server_stopping,
)
from orchestrator.products.server.transport.session_headers import context_of

ID_BYTES: Final = 16
"""The number of random bytes in the id of a run that clients keep as a task."""
END: Final[Message] = {"type": "http.response.body", "body": b"", "more_body": False}
CANCELLED: Final = "notifications/cancelled"
SESSION: Final = "mcp-session-id"
ASKABLE: Final = "-e"
"""The end of the session id of a client that can show forms to its user."""
_Id: TypeAlias = tuple[str, str, str, str]
"""A key, its owner, a session id, and the id of a request."""
_Calls: TypeAlias = dict[_Id, list[trio.CancelScope]]
"""The calls that clients wait for here."""
_Forms: TypeAlias = dict[_Id, trio.MemorySendChannel[Mapping[str, Any]]]
"""The forms that users fill in now."""
CALLER: Final = "mcp_caller"
"""The name of the caller in the state of a request."""


class KeyCaller:
    """The key of one request."""

    def __init__(self, call: ApiCall, forms: _Forms) -> None:
        self._call = call
        self._forms = forms
        self.context: Mapping[str, str] = context_of(call.request.headers)
        self.stream: Send | None = None
        """Adds to the response of a client that can be asked, once the response has begun."""

    @property
    def may_read(self) -> bool:
        return self._call.key.may(SCOPES["resources/read"])

    async def may_approve(self) -> bool:
        return await self._call.server.may_approve(self._call.key)

    @property
    def ask(self) -> mcp.Ask | None:
        return None if self.stream is None else self._ask

    async def _ask(self, form: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a form with the response, and wait for the request that answers it."""
        assert self.stream is not None, "its client can be asked"
        id_ = f"form_{token_hex(ID_BYTES)}"
        answered, answers = trio.open_memory_channel[Mapping[str, Any]](1)
        key = _request_id(self._call, id_)
        self._forms[key] = answered
        sent = msgspec.json.encode({"jsonrpc": "2.0", "id": id_, **form})
        try:
            await self.stream(
                {
                    "type": "http.response.body",
                    "body": b"event: message\r\ndata: " + sent + b"\r\n\r\n",
                    "more_body": True,
                }
            )
            return await answers.receive()
        finally:
            del self._forms[key]

    @property
    def owner(self) -> str:
        return self._call.owner

    @property
    def states(self) -> tuple[SessionState, ...]:
        return self._call.key_states

    @property
    def name(self) -> str:
        return f"key {self._call.key.name}"

    @property
    def home(self) -> mcp.OpenJournal:
        journal = self._call.journal
        return mcp.OpenJournal(journal.orchestrator, journal.door)

    def new_run_id(self) -> SessionId:
        placement = self._call.server.placement
        if placement is None:
            return SessionId(f"r_{token_hex(ID_BYTES)}")
        return placement.draw(self._call.journal.name, size=ID_BYTES)

    async def take_request(self, request: InboundRequest) -> None:
        with _as_refusal():
            await self._call.take_request(request)

    def begin_run(self) -> AbstractContextManager[None]:
        return self._begin_run()

    @contextmanager
    def _begin_run(self) -> Generator[None]:
        with _as_refusal(), self._call.begin_run():
            yield

    def record(self, target: str) -> None:
        self._call.record(target)

    async def wait_durable(self) -> None:
        await self._call.journal.read.wait_durable()

    async def read_run(self, run: str) -> FoundSession:
        return await lookup.read_run(self._call, run)

    async def draw_tree(self, run: str, output_format: TreeFormat) -> str:
        if not self._call.sees(SessionId(run)):
            await trio.lowlevel.checkpoint()
            raise lookup.unknown_run(run)
        journal = self._call.journal
        drawn = await journal.past_runs.ask(run, tree=output_format)
        if drawn == b"":
            raise lookup.unknown_run(run)
        if drawn is not None:
            return drawn.decode()
        session = (await lookup.read_run(self._call, run)).session
        return await draw_tree(journal.read, session, output_format)

    async def hold_run(self, run: str) -> mcp.HeldRun:
        return mcp.HeldRun(await lookup.find_run(self._call, run), self.home)

    async def list_runs(self, after: str | None) -> mcp.RunPage:
        query = lookup.PageQuery(after=after or "")
        try:
            bodies = lookup.Bodies[SessionRecord](lambda found: found.session)
            page = await lookup.page_of(self._call, query, bodies)
        except HttpError as exc:
            raise lookup.unknown_run(query.after) from exc
        return mcp.RunPage(page.items, page.last if page.has_more else None)


@contextmanager
def _as_refusal() -> Generator[None]:
    """Let the client's model read which limit refuses a call."""
    try:
        yield
    except HttpError as exc:
        raise mcp.RefusedError(str(exc)) from exc


class McpEndpoint:
    """Answers requests of MCP."""

    def __init__(self, tools: Mapping[str, mcp.AgentTool]) -> None:
        self._protocol = mcp.open_protocol(tools, _caller_of)
        self._calls: _Calls = {}
        self._forms: _Forms = {}

    async def answer(self, call: ApiCall) -> Response:
        """Return the response to a request, which the SDK makes when the response is sent."""
        await trio.lowlevel.checkpoint()
        message = call.message
        assert message is not None, "it is JSON-RPC"
        if message.method == CANCELLED:
            await self._cancel(call, message.fields.get("requestId"))
        elif not message.method:
            await self._take_form(call, message)
        return _SdkResponse(self._protocol, call, KeyCaller(call, self._forms), self._calls)

    async def _cancel(self, call: ApiCall, request: object) -> None:
        """Cancel the call with this id of the same client, here or at another server."""
        key = _request_id(call, request)
        found, peers = self._calls.get(key, ()), call.server.peers
        has_session = SESSION in call.request.headers
        if len(found) > 1 or (peers is not None and not has_session):
            raise HttpError(
                409,
                f"several calls of this key may have the id {request!r}: send the header"
                f" {SESSION} of `initialize` with each request, or close the call's connection",
                code="ambiguous_request",
            )
        for scope in found:
            scope.cancel(reason="its client has cancelled the call")
        if not found and peers is not None:
            await peers.ask(call)
        await trio.lowlevel.checkpoint()

    async def _take_form(self, call: ApiCall, message: RpcMessage) -> None:
        """Hand the answer to a form to the call that has asked, here or at another server."""
        waiting, peers = self._forms.get(_request_id(call, message.id)), call.server.peers
        if waiting is not None:
            answer: object = msgspec.json.decode(message.raw).get("result")
            fields = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
            with suppress(trio.WouldBlock):  # the first answer counts
                waiting.send_nowait(fields)
        elif peers is not None:
            await peers.ask(call)
        await trio.lowlevel.checkpoint()


def _request_id(call: ApiCall, request: object) -> _Id:
    session = call.request.headers.get(SESSION, "")
    return call.key.name, call.owner, session, repr(request)


def _caller_of(context: mcp.Context) -> KeyCaller:
    assert context.request is not None, "every message came with a request"
    caller: KeyCaller = context.request.scope["state"][CALLER]
    return caller


class _SdkResponse(Response):
    """A response made by the SDK."""

    def __init__(self, protocol: Any, call: ApiCall, caller: KeyCaller, calls: _Calls) -> None:
        super().__init__()
        self._calls = calls
        self._protocol = protocol
        self._call = call
        self._caller = caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope["state"]
        state[CALLER] = self._caller
        self._call.note_run_awaited()
        access: Access = state["access"]
        has_begun = has_ended = False
        begun, turn = trio.Event(), trio.Lock()

        async def send_noted(message: Message) -> None:
            nonlocal has_begun, has_ended
            has_begun = True
            if message["type"] == "http.response.start":
                self._name_session(message)
            async with turn:
                await send(message)
            begun.set()
            has_ended = message["type"] == END["type"] and not message.get("more_body", False)

        async def send_within(message: Message) -> None:
            await begun.wait()
            async with turn:
                await send(message)

        if self._call.request.headers.get(SESSION, "").endswith(ASKABLE):
            self._caller.stream = send_within

        with raising_one_error():
            # Owns the tasks that the SDK runs for this request.
            async with (
                trio.open_nursery() as nursery,
                sse.cancelled_on_disconnect(scope, receive, nursery.cancel_scope),
            ):
                sdk_scope = trio.CancelScope()
                shutdown: trio.Event = state["shutdown"]
                nursery.start_soon(_cancel_at_shutdown, shutdown, sdk_scope)
                call_scope = trio.CancelScope()
                with sdk_scope, access.cancels(sdk_scope), self._cancellable(call_scope):
                    await self._let_sdk_answer(scope, receive, send_noted)
                if not has_begun:
                    error = server_stopping(sse.SERVER_ENDED_RUN)
                    if not access.is_valid():
                        error = key_ended()
                    elif call_scope.cancelled_caught:
                        error = HttpError(
                            CLIENT_CLOSED_REQUEST, "its client has cancelled it", code="cancelled"
                        )
                    message = self._call.message
                    assert message is not None, "it is JSON-RPC"
                    await error_response(message, error)(scope, receive, send)
                elif call_scope.cancelled_caught and not has_ended:
                    await send(END)
                nursery.cancel_scope.cancel(reason="the request is answered")

    def _name_session(self, start: Message) -> None:
        """Give a client that begins a session of the protocol an id for it."""
        message = self._call.message
        if message is None or message.method != "initialize":
            return
        declared = message.fields.get("capabilities")
        can_ask = isinstance(declared, dict) and "elicitation" in declared
        id_ = token_hex(ID_BYTES) + (ASKABLE if can_ask else "")
        MutableHeaders(scope=start)[SESSION] = id_

    @contextmanager
    def _cancellable(self, scope: trio.CancelScope) -> Generator[None]:
        """Let a notification of the same key cancel a call of a tool."""
        message = self._call.message
        assert message is not None, "it is JSON-RPC"
        if message.method != CALL:
            yield
            return
        id_ = _request_id(self._call, message.id)
        self._calls.setdefault(id_, []).append(scope)
        try:
            with scope:
                yield
        finally:
            self._calls[id_].remove(scope)
            if not self._calls[id_]:
                del self._calls[id_]

    async def _let_sdk_answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A manager keeps no sessions, so each request can have one: its tasks end with the request.
        manager = StreamableHTTPSessionManager(
            self._protocol,
            stateless=True,
            max_request_body_size=self._call.server.settings.body_limit,
        )
        message = self._call.message
        assert message is not None, "it is JSON-RPC"
        # Not the client's bytes: the SDK could read a part that was not checked.
        body = _Body(message.raw, receive)
        async with manager.run():
            await manager.handle_request(scope, body.receive, send)


async def _cancel_at_shutdown(shutdown: trio.Event, scope: trio.CancelScope) -> None:
    """Cancel a scope soon after the server has begun to shut down."""
    await shutdown.wait()
    # Runs that were just cancelled still send their outcome.
    await trio.sleep(sse.LAST_EVENTS_SECONDS)
    scope.cancel(reason="the server is shutting down")


class _Body:
    """The body of a request, read before, and after it the disconnect of its client."""

    def __init__(self, raw: bytes, receive: Receive) -> None:
        self._raw: bytes | None = raw
        self._receive = receive

    async def receive(self) -> Message:
        if self._raw is None:
            return await self._receive()
        await trio.lowlevel.checkpoint()
        raw, self._raw = self._raw, None
        return {"type": "http.request", "body": raw, "more_body": False}
