"""The subject of a JSON-RPC message, read before it is handled: its method, run and scope.

The handler gets the checked message, encoded again, and never the bytes of the client. Otherwise
two parsers could read one body in two ways, and one message would be checked and another carried
out.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec
import trio
from starlette.responses import Response

from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.transport.errors import JSON, HttpError
from orchestrator.products.server.transport.json_body import decoded

CALL: Final = "tools/call"
SCOPES: Final[Mapping[str, Scope]] = {
    CALL: Scope.RUN,
    "tasks/get": Scope.READ,
    "tasks/update": Scope.APPROVE,
    "tasks/cancel": Scope.STEER,
    "resources/list": Scope.READ,
    "resources/read": Scope.READ,
}
"""The scope that a key must have for each method; any key may use the others."""
_WRITES: Final = frozenset({CALL, "tasks/update", "tasks/cancel"})
_RUN: Final = "run://"
_PAGE: Final = "ui://"
NO_JSON: Final = "invalid_json"
_REFUSED: Final = -32_600
_NO_JSON: Final = -32_700
_CODES: Final[Mapping[int, int]] = {404: -32_602, 500: -32_603, 503: -32_603}
"""The codes of JSON-RPC for errors that are not the client's fault."""


class RpcMessage(msgspec.Struct):
    """The parts of a JSON-RPC message that decide how it is handled."""

    method: str = ""
    id: Any = None
    params: Any = None
    raw: bytes = b""
    """The whole message, for its handler."""

    @property
    def scope(self) -> Scope | None:
        """The scope that the key of the request must have; None accepts every key."""
        return SCOPES.get(self.method)

    @property
    def is_write(self) -> bool:
        """Whether it changes something."""
        return self.method in _WRITES

    @property
    def action(self) -> str:
        """The name of its action in the audit; methods without a scope share one name."""
        return f"mcp {self.method}" if self.method in SCOPES else "mcp"

    @property
    def opens_session(self) -> bool:
        return self.method == CALL and self.run is None

    @property
    def fields(self) -> dict[str, Any]:
        """Its parameters by their names."""
        params: object = self.params
        return cast("dict[str, Any]", params) if isinstance(params, dict) else {}

    @property
    def run(self) -> str | None:
        """The id of its run; None if there is no run yet."""
        params = self.fields
        task, uri, state = params.get("taskId"), params.get("uri"), params.get("requestState")
        if self.method == CALL and isinstance(state, str):
            return state
        if self.method.startswith("tasks/") and isinstance(task, str):
            return task
        if self.method == "resources/read" and isinstance(uri, str):
            if uri.startswith(_PAGE):
                return None  # the same for all runs
            return uri.removeprefix(_RUN).partition("/")[0] or None
        return None


async def read_message(raw: bytes) -> RpcMessage:
    """Return the message in a body; the handler refuses a message without a method."""
    await trio.lowlevel.checkpoint()
    try:
        found = await decoded(raw, object)
        written = msgspec.json.encode(found)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        raise HttpError(
            400, "the body is not JSON in UTF-8; send one message", code=NO_JSON
        ) from exc
    if not isinstance(found, dict):
        raise HttpError(400, "the body is not a single message of JSON-RPC", code="invalid_message")
    fields = cast("dict[str, Any]", found)
    method = fields.get("method")
    return RpcMessage(
        method=method if isinstance(method, str) else "",
        id=fields.get("id"),
        params=fields.get("params"),
        raw=written,
    )


def error_response(message: RpcMessage, error: HttpError) -> Response:
    """Return the response for an error: its status, and an error of JSON-RPC."""
    problem = error.problem
    body = {
        "jsonrpc": "2.0",
        "id": message.id if isinstance(message.id, str | int) else None,
        "error": {
            "code": _NO_JSON if problem.code == NO_JSON else _CODES.get(error.status, _REFUSED),
            "message": problem.message,
            "data": {"code": problem.code, "type": problem.type},
        },
    }
    return Response(
        msgspec.json.encode(body), error.status, headers=dict(error.headers), media_type=JSON
    )
