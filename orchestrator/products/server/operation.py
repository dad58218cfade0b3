"""A route as one value: its method, path, bodies and scope."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
import msgspec
from starlette.responses import Response

from orchestrator.delegation import SessionId
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.transport.errors import JSON

if TYPE_CHECKING:
    from orchestrator.products.server.api_call import ApiCall

Method: TypeAlias = Literal["GET", "POST", "DELETE"]
Handler: TypeAlias = "Callable[[ApiCall], Awaitable[Response]]"
Companion: TypeAlias = Callable[[bytes], SessionId | None]
UNSUPPORTED: Final = msgspec.Meta(description="Not supported.", extra_json_schema={"type": "null"})
"""Marks a field that is decoded only to be refused with an error of its own."""


def doc(description: str) -> msgspec.Meta:
    """Describe a field of a body or a query in the OpenAPI document."""
    return msgspec.Meta(description=description)


@attrs.frozen
class Answer:
    """One possible response of a route."""

    description: str
    body: Any = None
    """The type of its JSON body; None for no body."""
    status: int = attrs.field(default=200, kw_only=True)
    others: tuple[Any, ...] = attrs.field(default=(), kw_only=True)
    """Other types that its JSON body may have."""
    media_types: tuple[str, ...] = attrs.field(default=(JSON,), kw_only=True)


@attrs.frozen(kw_only=True)
class Operation:
    """One method of one path. `app.py` has the table of all operations."""

    method: Method
    path: str
    handle: Handler
    scope: Scope | None
    """The scope that the key of a request must have; None accepts every key."""
    answers: tuple[Answer, ...]
    body: Any = None
    """The type of its JSON body."""
    query: type | None = None
    """The type of its query: an attrs class whose fields all have defaults."""
    errors: tuple[int, ...] = ()
    """The statuses of its own errors; `openapi.py` adds those that its other fields imply."""
    takes_idempotency_key: bool = False
    takes_last_event_id: bool = False
    is_public: bool = False
    """It needs no key."""
    is_json_rpc: bool = False
    """Its body is a JSON-RPC message, which names its subject and the scope it needs."""
    companion: Companion | None = None
    """Returns the session that a body names; the request opens its session in the same journal."""

    @property
    def opens_session(self) -> bool:
        """Whether its requests open a session, whose id comes from the Idempotency-Key, if any."""
        return self.takes_idempotency_key and "{" not in self.path

    @property
    def name(self) -> str:
        return getattr(self.handle, "__name__", "")

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring."""
        return (self.handle.__doc__ or "").partition("\n")[0].removesuffix(".")

    @property
    def tag(self) -> str:
        """The group of the operation in the document."""
        parts = self.path.strip("/").split("/")
        return parts[1] if parts[0] == "v1" else "server"


def operation(
    method: Method,
    path: str,
    scope: Scope | None,
    *answers: Answer,
    body: Any = None,
    query: type | None = None,
    errors: tuple[int, ...] = (),
    takes_idempotency_key: bool = False,
    takes_last_event_id: bool = False,
    is_public: bool = False,
    is_json_rpc: bool = False,
    companion: Companion | None = None,
) -> Callable[[Handler], Operation]:
    """Make a handler the operation of a route; its docstring is the summary in the document.

    The arguments are the fields of `Operation`.
    """

    def decorate(handle: Handler) -> Operation:
        return Operation(
            method=method,
            path=path,
            handle=handle,
            scope=scope,
            answers=answers,
            body=body,
            query=query,
            errors=errors,
            takes_idempotency_key=takes_idempotency_key,
            takes_last_event_id=takes_last_event_id,
            is_public=is_public,
            is_json_rpc=is_json_rpc,
            companion=companion,
        )

    return decorate
