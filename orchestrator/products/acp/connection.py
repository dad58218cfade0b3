"""JSON-RPC 2.0 over two streams: one line for each message, requests in both directions.

Messages are written in the order in which they were sent. Each request has a task of its own; tasks
take their first step in the order of their requests.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import msgspec
import trio

from orchestrator.agents import DefinitionError, raising_one_error
from orchestrator.ports.errors import OrchestratorError, UnknownIdError, error_text
from orchestrator.products.acp.schema import CancelRequest
from orchestrator.products.mcp.ports import LineReader, TooLong

LONGEST_LINE: Final = 32_000_000
"""How many bytes a message may have: prompts carry images."""
CHUNK: Final = 2**16
MOST_WAITING: Final = 2**20
"""How many bytes may wait for a slow reader before updates wait, too."""
LAST_SECONDS: Final = 5
"""How long the last messages may take, once the client has closed its side."""
CANCEL_REQUEST: Final = "$/cancel_request"

NO_JSON: Final = -32_700
NO_REQUEST: Final = -32_600
NO_METHOD: Final = -32_601
WRONG_PARAMS: Final = -32_602
FAILED: Final = -32_603
CANCELLED: Final = -32_800
NOT_FOUND: Final = -32_002

ParamsT = TypeVar("ParamsT")
ResultT = TypeVar("ResultT")
RequestId = int | str | None


class RpcError(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Method(msgspec.Struct, frozen=True):
    """A method that the client may call: its parameters, and the function that answers."""

    params: type[Any]
    answer: Callable[[Any], Awaitable[object]]
    cancel: Callable[[Any], Awaitable[object]] | None = None
    """Cancels a request in good order, so that it still answers; None cancels its task."""


class _Message(msgspec.Struct, frozen=True):
    """A message: a request, a notification, or an answer."""

    id: RequestId | msgspec.UnsetType = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: "_Error | msgspec.UnsetType" = msgspec.UNSET


class _Error(msgspec.Struct, frozen=True):
    code: int
    message: str = ""


class _Request:
    """A request of the client that is not answered yet."""

    def __init__(self, message: _Message, methods: Mapping[str, Method]) -> None:
        self.message = message
        self.methods = methods
        self.scope = trio.CancelScope()

    @property
    def is_long(self) -> bool:
        """It may take as long as the work of agents does."""
        method = self.methods.get(str(self.message.method))
        return method is not None and method.cancel is not None


class _Asked:
    """A request of ours that waits for its answer."""

    def __init__(self) -> None:
        self.answered = trio.Event()
        self.answer: _Message | None = None


class Connection:
    """Sends messages to the client, and calls methods for its messages."""

    def __init__(self, stdout: trio.abc.SendStream) -> None:
        self._stdout = stdout
        self._lines: list[bytes] = []
        self._waiting_bytes = 0
        self._changed = trio.Event()
        self._written = trio.Event()
        self._ends = False
        self._is_read = True
        self._asked: dict[int, _Asked] = {}
        self._asked_count = 0
        self._requests: dict[RequestId, _Request] = {}
        self._answered = trio.Event()

    def notify(self, method: str, params: object) -> None:
        """Send a notification, without waiting."""
        self._send({"method": method, "params": params})

    async def ask(self, method: str, params: object, answer: type[ResultT]) -> ResultT:
        """Send a request, and return the answer; if this is cancelled, so is the request.

        Raises:
            RpcError: the client answered with an error, or with another value.
        """
        self._asked_count += 1
        id_ = self._asked_count
        asked = self._asked[id_] = _Asked()
        self._send({"id": id_, "method": method, "params": params})
        try:
            await asked.answered.wait()
        finally:
            del self._asked[id_]
            if asked.answer is None:
                self.notify(CANCEL_REQUEST, CancelRequest(request_id=id_))
        message = asked.answer
        if message is None or message.result is msgspec.UNSET:
            error = None if message is None else message.error
            raise RpcError(FAILED, error.message if isinstance(error, _Error) else "no answer")
        try:
            return msgspec.json.decode(message.result, type=answer)
        except msgspec.MsgspecError as exc:
            raise RpcError(FAILED, f"the answer to {method} is no such value: {exc}") from exc

    async def wait_writable(self) -> None:
        """Wait until the client has read most of the messages."""
        await trio.lowlevel.checkpoint()
        while self._waiting_bytes > MOST_WAITING:
            await self._written.wait()

    def _send(self, message: Mapping[str, object]) -> None:
        if not self._is_read:
            return
        line = msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n"
        self._lines.append(line)
        self._waiting_bytes += len(line)
        self._changed.set()

    async def write_forever(self) -> None:
        """Write messages until the connection ends. When the reader is gone, drop the rest."""
        await trio.lowlevel.checkpoint()
        while self._lines or not self._ends:
            if not self._lines:
                self._changed = trio.Event()
                await self._changed.wait()
                continue
            lines, self._lines = self._lines, []
            try:
                await self._stdout.send_all(b"".join(lines))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._is_read = False
                self._lines.clear()
            self._waiting_bytes = sum(map(len, self._lines))
            self._written.set()
            self._written = trio.Event()

    def end(self) -> None:
        """Let `write_forever` return after the last message."""
        self._ends = True
        self._changed.set()

    async def read(
        self, stdin: trio.abc.ReceiveStream, methods: Mapping[str, Method], nursery: trio.Nursery
    ) -> None:
        """Handle messages until stdin ends; the nursery owns the tasks of requests."""
        lines = LineReader(LONGEST_LINE)
        try:
            while chunk := await stdin.receive_some(CHUNK):
                for line in lines.feed(chunk):
                    if (message := self._parsed(line)) is not None:
                        self._receive(message, methods, nursery)
                        # Requests take their first step in their order.
                        await trio.lowlevel.checkpoint()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await trio.lowlevel.checkpoint()
        # The client may have sent all its messages at once, and still read.
        while any(not it.is_long for it in self._requests.values()):
            self._answered = trio.Event()
            await self._answered.wait()

    def _parsed(self, line: bytes | TooLong) -> _Message | None:
        """Return the message in a line; an error answers a line without one."""
        if isinstance(line, TooLong):
            self._refuse(None, NO_REQUEST, f"a message has more than {LONGEST_LINE:,} bytes")
            return None
        if not line.strip():
            return None
        try:
            return msgspec.json.decode(line, type=_Message)
        except msgspec.ValidationError:
            self._refuse(None, NO_REQUEST, "a line is one message of JSON-RPC, no batch")
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            self._refuse(None, NO_JSON, "a line is not JSON in UTF-8")
        return None

    def _receive(
        self, message: _Message, methods: Mapping[str, Method], nursery: trio.Nursery
    ) -> None:
        id_ = message.id
        if isinstance(message.method, msgspec.UnsetType):
            asked = self._asked.get(id_) if isinstance(id_, int) else None
            if asked is not None:
                asked.answer = message
                asked.answered.set()
            elif message.result is msgspec.UNSET and message.error is msgspec.UNSET:
                sent = None if isinstance(id_, msgspec.UnsetType) else id_
                self._refuse(sent, NO_REQUEST, "a message has no method")
        elif message.method == CANCEL_REQUEST:
            self._cancel(message.params, nursery)
        elif isinstance(id_, msgspec.UnsetType):
            nursery.start_soon(self._handle, message, methods)
        else:
            request = self._requests[id_] = _Request(message, methods)
            nursery.start_soon(self._answer, id_, request)

    def _cancel(self, params: msgspec.Raw, nursery: trio.Nursery) -> None:
        try:
            id_ = msgspec.json.decode(params, type=CancelRequest).request_id
        except msgspec.MsgspecError:
            return
        if (request := self._requests.get(id_)) is None:
            return
        message = request.message
        method = request.methods.get(str(message.method))
        if method is None or method.cancel is None:
            request.scope.cancel(reason="the client cancelled the request")
        else:
            cancel = {str(message.method): Method(method.params, method.cancel)}
            nursery.start_soon(self._handle, message, cancel)

    async def _handle(self, message: _Message, methods: Mapping[str, Method]) -> None:
        """Handle a notification; the client does not learn of its errors."""
        try:
            await _call(message, methods)
        except RpcError:
            await trio.lowlevel.checkpoint()

    async def _answer(self, id_: RequestId, request: _Request) -> None:
        """Answer a request, whatever becomes of it."""
        try:
            with request.scope:
                self._send({"id": id_, "result": await _call(request.message, request.methods)})
        except RpcError as exc:
            await trio.lowlevel.checkpoint()
            self._refuse(id_, exc.code, str(exc))
        if request.scope.cancelled_caught:
            self._refuse(id_, CANCELLED, "the client cancelled the request")
        if self._requests.get(id_) is request:
            del self._requests[id_]
        self._answered.set()

    def _refuse(self, id_: RequestId, code: int, message: str) -> None:
        self._send({"id": id_, "error": _Error(code, message)})


async def _call(message: _Message, methods: Mapping[str, Method]) -> object:
    """Call the method of a message, and translate its errors."""
    name = message.method
    assert isinstance(name, str)
    if (method := methods.get(name)) is None:
        raise RpcError(NO_METHOD, f"there is no method {name!r}")
    try:
        params = msgspec.json.decode(message.params, type=method.params)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        raise RpcError(WRONG_PARAMS, f"the parameters of {name}: {exc}") from exc
    try:
        return await method.answer(params)
    except UnknownIdError as exc:
        raise RpcError(NOT_FOUND, str(exc)) from exc
    except DefinitionError as exc:
        raise RpcError(WRONG_PARAMS, str(exc)) from exc
    except RpcError:
        raise
    except OrchestratorError as exc:
        raise RpcError(FAILED, error_text(exc)) from exc
    except Exception as exc:  # (one request must not end the sessions of the others)
        raise RpcError(FAILED, f"{type(exc).__name__}: {error_text(exc)}") from exc


@asynccontextmanager
async def open_connection(stdout: trio.abc.SendStream) -> AsyncGenerator[Connection]:
    """Open a connection that writes until the block ends; then the last messages are written."""
    connection = Connection(stdout)
    with raising_one_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.write_forever)
            try:
                yield connection
            finally:
                connection.end()
                nursery.cancel_scope.deadline = trio.current_time() + LAST_SECONDS
