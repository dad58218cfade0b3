"""Checks the answers of a server before the SDK reads them.

The SDK refuses a whole answer for one wrong part: a tool without a name costs all tools. So this
removes the parts that a server may get wrong, and hands them on beside the answer.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

import trio
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
)

from orchestrator.agents.tools.mcp.json_values import list_in, object_in

if TYPE_CHECKING:
    import contextvars

    from mcp.client._transport import ReadStream, TransportStreams, WriteStream

RAW: Final = "orchestrator/raw"
"""Where in the `_meta` of an answer that is which the server sent."""
MOST_LISTED: Final = 5_000
"""The most entries of a listing that are read."""
_CHECKED: Final = {
    "tools/list": ("tools",),
    "tools/call": ("content", "structuredContent", "isError"),
    "resources/list": ("resources",),
    "resources/templates/list": ("resourceTemplates",),
    "resources/read": ("contents",),
    "prompts/list": ("prompts",),
    "prompts/get": ("messages",),
    "skills/list": ("skills",),
}
"""The parts of answers that are checked by us, by method. The first of them is a list."""
_OTHER_RESULTS: Final = ("input_required", "task")
"""The types of answers that are none yet: they want input, or are found later."""
_LISTS: Final = frozenset(it for it in _CHECKED if it.endswith("/list"))


@asynccontextmanager
async def checked(
    transport: AbstractAsyncContextManager["TransportStreams"], on_end: Callable[[], None]
) -> AsyncGenerator["TransportStreams"]:
    """Open a transport whose answers the SDK can read."""
    methods: dict[Any, str] = {}
    async with transport as (reads, writes):
        yield _CheckedReads(reads, methods, on_end), _NotedWrites(writes, methods)


def harmless(method: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return an answer that the SDK can read, with the original parts beside it."""
    names = _CHECKED.get(method)
    kind = result.get("resultType", "complete")
    if names is None or kind in _OTHER_RESULTS:
        return result
    if kind != "complete":
        result = _of_no_known_type(kind)
    raw = {name: result[name] for name in names if name in result}
    kept = {name: value for name, value in result.items() if name not in names}
    meta = kept.get("_meta")
    kept["_meta"] = {**object_in(meta), RAW: raw}
    kept[names[0]] = (
        [_harmless_tool(at, it) for at, it in enumerate(list_in(raw.get("tools"))[:MOST_LISTED])]
        if method == "tools/list"
        else []
    )
    if method in _LISTS and not isinstance(kept.get("nextCursor", ""), str):
        del kept["nextCursor"]
    return kept


def raw_part(meta: object, name: str) -> Any:
    """Return a part of an answer as the server sent it, from the `_meta` of that answer."""
    return object_in(object_in(meta).get(RAW)).get(name)


def _of_no_known_type(kind: object) -> dict[str, Any]:
    said = f"its server answered with a result of the unknown type {kind!r}"
    return {"content": [{"type": "text", "text": said}], "isError": True}


def _harmless_tool(at: int, tool: object) -> dict[str, Any]:
    """Return a tool with the parts that the SDK itself needs to call it."""
    fields = object_in(tool)
    name, schema = fields.get("name"), object_in(fields.get("inputSchema"))
    # No server can list a tool of that other name.
    known = name if isinstance(name, str) else f"\0{at}"
    return {"name": known, "inputSchema": {**schema, "type": "object"}}


StreamT = TypeVar(
    "StreamT", bound="ReadStream[Any] | WriteStream[Any] | trio.MemorySendChannel[bytes]"
)


class ClosedByBlock(Generic[StreamT]):
    """A stream around another one, which it closes, also at the end of a block."""

    def __init__(self, inner: StreamT) -> None:
        self._inner = inner

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


class _CheckedReads(ClosedByBlock["ReadStream[SessionMessage | Exception]"]):
    """The messages of a server, each made harmless."""

    def __init__(
        self,
        inner: "ReadStream[SessionMessage | Exception]",
        methods: dict[Any, str],
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(inner)
        self._methods = methods
        self._on_end = on_end

    @property
    def last_context(self) -> "contextvars.Context | None":
        """The context of the sender of the last message, which the SDK looks for."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._checked(await self._inner.receive())

    def _checked(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(item, Exception):
            return item
        if isinstance(item.message, JSONRPCError):
            error = item.message.error
            if error.code == CONNECTION_CLOSED:
                # The SDK gives this code to calls that a lost connection broke off: these are not.
                error.code = INTERNAL_ERROR
            return item
        if not isinstance(item.message, JSONRPCResponse):
            return item
        message = item.message
        # Who answers twice is not heard the second time.
        if (method := self._methods.pop(message.id, None)) is not None:
            message.result = harmless(method, message.result)
        return item

    def __aiter__(self) -> "_CheckedReads":
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return self._checked(await self._inner.__anext__())
        except StopAsyncIteration:
            self._on_end()
            raise


class _NotedWrites(ClosedByBlock["WriteStream[SessionMessage]"]):
    """Our messages to a server: notes the purpose of each request."""

    def __init__(self, inner: "WriteStream[SessionMessage]", methods: dict[Any, str]) -> None:
        super().__init__(inner)
        self._methods = methods

    async def send(self, item: SessionMessage, /) -> None:
        message = item.message
        if isinstance(message, JSONRPCRequest) and message.method in _CHECKED:
            self._methods[message.id] = message.method
        await self._inner.send(item)
