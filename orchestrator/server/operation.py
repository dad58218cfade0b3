"""A route as one value, and how its requests are handled."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, nullcontext
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast

import attrs
import msgspec
import trio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from agents import DefinitionError
from delegation import DelegationError, SessionId
from orchestrator.errors import OrchestratorError
from orchestrator.server.transport.errors import JSON, HttpError, to_http_error
from orchestrator.server.transport.sse import SSE_MEDIA_TYPE

if TYPE_CHECKING:
    from orchestrator.server.state import ServerState

T = TypeVar("T")
Method: TypeAlias = Literal["GET", "POST", "DELETE"]
Handler: TypeAlias = "Callable[[ApiCall], Awaitable[Response]]"
LONGEST_KEY: Final = 255
CLIENT_CLOSED_REQUEST: Final = 499
"""The status of a request whose client disconnected before the response."""
BODY_SECONDS: Final = 30
"""How long a client may send nothing in the middle of its body."""
WHOLE_BODY_SECONDS: Final = 120
"""How long the whole body may take."""
UNREAD_BODY: Final = 65_536
"""How many bytes may come to a route that takes no body: some clients send an empty object."""
UNSUPPORTED: Final = msgspec.Meta(
    description="It cannot be had here.", extra_json_schema={"type": "null"}
)
"""Marks a field that is decoded only to be refused with an error of its own."""


def allow_only(*values: object) -> msgspec.Meta:
    """Mark a field of which all other values are refused."""
    return msgspec.Meta(extra_json_schema={"enum": [*values, None]})


@attrs.frozen(kw_only=True)
class ResponseSpec:
    """One possible response of a route."""

    description: str
    body: Any = None
    """The type of its JSON; None has no body."""
    others: tuple[Any, ...] = ()
    """The types that its JSON may have instead."""
    media_types: tuple[str, ...] = (JSON,)
    """The media types that it may have."""


@attrs.frozen(kw_only=True)
class Operation:
    """One method of one path. `app.py` has the table of all."""

    method: Method
    path: str
    handle: Handler
    summary: str
    responses: Mapping[int, ResponseSpec]
    body: Any = None
    """The type of the JSON that it takes."""
    query: type | None = None
    """The type of its query: an attrs class, all fields with defaults."""
    error_statuses: tuple[int, ...] = ()
    """The statuses of its own errors, in addition to those of `AccessCheck`."""
    is_public: bool = False
    """Whether it needs no token."""
    takes_idempotency_key: bool = False
    takes_last_event_id: bool = False

    @property
    def name(self) -> str:
        return getattr(self.handle, "__name__", "")

    @property
    def tag(self) -> str:
        """The group that the document lists it in."""
        parts = self.path.strip("/").split("/")
        return parts[1] if parts[0] == "v1" else "server"


def _param_of(error: str) -> str | None:
    """Return the field that an error of msgspec is about, if it names one."""
    _, _, where = error.partition(" - at `$")
    missing = re.search(r"missing required field `(\w+)`", error)
    parts = [where.rstrip("`").lstrip("."), missing[1] if missing else ""]
    return ".".join(filter(None, parts)) or None


class ApiCall:
    """One request to a route."""

    def __init__(
        self, server: "ServerState", operation: Operation, request: Request, body: bytes
    ) -> None:
        self.server = server
        self.request = request
        self.raw = body
        self._operation = operation

    def body(self, kind: type[T]) -> T:
        """Return the body, decoded."""
        try:
            return msgspec.json.decode(self.raw, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise HttpError(
                400,
                f"the body is wrong: {exc}",
                code="invalid_body",
                param=_param_of(str(exc)),
            ) from exc

    def query(self, kind: type[T]) -> T:
        """Return the query, decoded."""
        params = self.request.query_params
        fields = {it.name for it in attrs.fields(cast("Any", kind))}
        for name in fields:
            if len(params.getlist(name)) > 1:
                raise _wrong_query(f"{name} is there more than once", name)
        try:
            query = msgspec.convert(dict(params), kind, strict=False)
        except msgspec.ValidationError as exc:
            raise _wrong_query(str(exc), _param_of(str(exc))) from exc
        for name in fields & params.keys():
            # msgspec reads the word null as None, which is how a field is left out.
            if getattr(query, name) is None:
                raise _wrong_query(f"{name} is null; leave it out instead", name)
        return query

    def path(self, name: str) -> str:
        return cast("str", self.request.path_params[name])

    def id_from_key(self, prefix: str) -> str | None:
        """Return the id that an Idempotency-Key stands for: the same for the same key.

        A request that is sent again finds what the first one made, also after a restart.
        """
        key = self.request.headers.get("idempotency-key")
        if key is None:
            return None
        if not key or len(key) > LONGEST_KEY:
            raise HttpError(
                400,
                f"an Idempotency-Key has 1 to {LONGEST_KEY} characters",
                code="invalid_idempotency_key",
            )
        scoped = f"{self._operation.path}\n{self.request.url.path}\n{key}"
        return f"{prefix}{hashlib.sha256(scoped.encode()).hexdigest()[:16]}"

    def session_id_from_key(self) -> SessionId | None:
        id_ = self.id_from_key("r_")
        return None if id_ is None else SessionId(id_)

    @property
    def fingerprint(self) -> str:
        """A digest of the body: whether a key was sent with the same one before."""
        return hashlib.sha256(self.raw).hexdigest()[:32]


def _wrong_query(message: str, param: str | None = None) -> HttpError:
    return HttpError(
        400, f"the query is wrong: {message}", code="invalid_query", param=param
    )


def json_response(body: Any, status: int = 200, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(msgspec.json.encode(body), status, headers=named, media_type=JSON)


@attrs.frozen
class Endpoint:
    """The ASGI application of one route."""

    server: "ServerState"
    operation: Operation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        metrics = self.server.metrics
        begun = trio.current_time()
        status: int | None = None

        def count(sent: int) -> None:
            nonlocal status
            status = sent
            metrics.count_answer(self.operation, sent, trio.current_time() - begun)

        async def send_counted(message: Message) -> None:
            # Known only when it is sent: a stream may fail before it begins.
            if message["type"] == "http.response.start":
                count(message["status"])
            await send(message)

        try:
            with metrics.track_request():
                request = Request(scope, receive, send)
                response = await _handle(self.server, self.operation, request)
            is_stream = response.media_type == SSE_MEDIA_TYPE
            with metrics.track_stream() if is_stream else nullcontext():
                await response(scope, receive, send_counted)
        except trio.Cancelled:
            if status is None:
                count(CLIENT_CLOSED_REQUEST)
            raise
        finally:
            if status is None:
                count(500)


async def _handle(
    server: "ServerState", operation: Operation, request: Request
) -> Response:
    await trio.lowlevel.checkpoint()
    try:
        refused = too_large(server.settings.body_limit)
        limit = server.settings.body_limit
        if operation.body is None and limit > UNREAD_BODY:
            limit, refused = UNREAD_BODY, _takes_no_body()
        raw = await _read(request, limit, refused)
        call = ApiCall(server, operation, request, raw)
        if operation.takes_idempotency_key:
            # A wrong key is refused also where the route does not need it.
            call.id_from_key("")
        return await operation.handle(call)
    except ClientDisconnect:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    except HttpError as exc:
        return exc.response()
    except (OrchestratorError, DelegationError, DefinitionError) as exc:
        return to_http_error(exc, is_stopping=server.is_stopping).response()


async def _read(request: Request, limit: int, refused: HttpError) -> bytes:
    """Return the body, unless it is too large or stops coming."""
    body = bytearray()
    chunks = request.stream()
    try:
        async with aclosing(chunks):
            latest = trio.current_time() + WHOLE_BODY_SECONDS
            with trio.fail_after(BODY_SECONDS) as timeout:
                async for chunk in chunks:
                    timeout.deadline = min(latest, trio.current_time() + BODY_SECONDS)
                    body += chunk
                    if len(body) > limit:
                        raise refused
    except trio.TooSlowError as exc:
        raise HttpError(
            408,
            f"nothing came for {BODY_SECONDS} s, or the body took more than"
            f" {WHOLE_BODY_SECONDS} s, and it is not complete",
            code="body_too_slow",
            headers={"connection": "close"},
        ) from exc
    return bytes(body)


def _takes_no_body() -> HttpError:
    return HttpError(413, "this route takes no body; send none", code="body_too_large")


def too_large(limit: int) -> HttpError:
    return HttpError(
        413,
        f"the body has more than {limit:,} bytes, which is the limit; send less, or start the"
        " server with a larger --body-limit",
        code="body_too_large",
    )
