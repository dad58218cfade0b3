"""A route as one value: its method, path, bodies and scope."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias

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
RunKey: TypeAlias = Callable[[bytes], str | None]
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


def _missing(call: "ApiCall") -> NoReturn:
    raise AssertionError(f"{call.operation.path} has no handler: @Operation was not applied")


@attrs.frozen
class Operation:
    """One method of one path, and the decorator of its handler. `app.py` has all operations.

    The docstring of the handler is the summary in the OpenAPI document.
    """

    method: Method
    path: str
    scope: Scope | None
    """The scope that the key of a request must have; None accepts every key."""
    answer: Answer
    other_answers: tuple[Answer, ...] = attrs.field(default=(), kw_only=True)
    body: Any = attrs.field(default=None, kw_only=True)
    """The type of its JSON body."""
    query: type | None = attrs.field(default=None, kw_only=True)
    """The type of its query: an attrs class whose fields all have defaults."""
    errors: tuple[int, ...] = attrs.field(default=(), kw_only=True)
    """The statuses of its own errors; `openapi.py` adds those that its other fields imply."""
    takes_idempotency_key: bool = attrs.field(default=False, kw_only=True)
    takes_last_event_id: bool = attrs.field(default=False, kw_only=True)
    is_public: bool = attrs.field(default=False, kw_only=True)
    """It needs no key."""
    ends_sign_in: bool = attrs.field(default=False, kw_only=True)
    """Its answer is sent although the sign-in of its request has ended."""
    is_json_rpc: bool = attrs.field(default=False, kw_only=True)
    """Its body is a JSON-RPC message, which names its subject and the scope it needs."""
    companion: Companion | None = attrs.field(default=None, kw_only=True)
    """Returns the session that a body names; the request opens its session in the same journal."""
    run_key: RunKey | None = attrs.field(default=None, kw_only=True)
    """Returns the name of the run in a body; it stands for a session, like an Idempotency-Key."""
    handle: Handler = attrs.field(default=_missing, kw_only=True)

    def __call__(self, handle: Handler) -> "Operation":
        return attrs.evolve(self, handle=handle)

    def at(self, path: str, answer: Answer | None = None) -> "Operation":
        """Return the same operation at another path."""
        return attrs.evolve(self, path=path, answer=answer or self.answer)

    @property
    def answers(self) -> tuple[Answer, ...]:
        return self.answer, *self.other_answers

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
