"""Errors as HTTP responses, in OpenAI's shape, or in Anthropic's for its clients."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from orchestrator.ports import errors
from orchestrator.products.history.ports import ReplayError

JSON: Final = "application/json"
INVALID_REQUEST: Final = "invalid_request_error"
SERVER_ERROR: Final = "server_error"
_TYPES: Final[Mapping[int, str]] = {401: "authentication_error", 403: "permission_error"}
_ANTHROPIC_TYPES: Final[Mapping[int, str]] = {
    **_TYPES,
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
MESSAGES: Final = "/v1/messages"
"""The path of Anthropic's protocol."""
NO_HEADERS: Final[Mapping[str, str]] = {}
CLIENT_CLOSED_REQUEST: Final = 499
"""The status of a request whose client disconnected before the response."""
SOON: Final = {"retry-after": "1"}
_CONFLICTS: Final[Mapping[type[Exception], str]] = {
    errors.ClosedError: "conflict",
    errors.SessionOpenError: "conflict",
    errors.EndedError: "ended",
    errors.NotInterruptedError: "not_interrupted",
    errors.ChangedProgramError: "changed_program",
    ReplayError: "cannot_be_copied",
}
"""The codes of errors that conflict with the present state."""


class Problem(msgspec.Struct, kw_only=True):
    """An error."""

    message: str
    type: str
    param: str | None = None
    """The part of the request that is wrong."""
    code: str | None = None
    """The kind of error, for programs."""


class ErrorBody(msgspec.Struct):
    """The body of every response with a status of 400 or more."""

    error: Problem


class AnthropicDetails(msgspec.Struct):
    """The kind of an error, for programs."""

    error_code: str | None


class AnthropicProblem(msgspec.Struct):
    """An error, in Anthropic's words."""

    type: str
    message: str
    details: AnthropicDetails


class AnthropicErrorBody(msgspec.Struct, kw_only=True):
    """The body of an error for Anthropic's clients."""

    error: AnthropicProblem
    request_id: str | None = None
    type: Literal["error"] = "error"


class HttpError(Exception):
    """An error with its HTTP status, which the client receives."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        type: str = "",  # noqa: A002 (the word of the protocol)
        param: str | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        super().__init__(message)
        self.status = status
        default = SERVER_ERROR if status >= 500 else INVALID_REQUEST
        kind = type or _TYPES.get(status, default)
        self.problem = Problem(message=message, type=kind, param=param, code=code)
        self.headers = headers

    def response(self) -> Response:
        return _ErrorResponse(self)

    def anthropic_body(self, request_id: str | None = None) -> bytes:
        """Return the body for Anthropic's clients."""
        default = "api_error" if self.status >= 500 else INVALID_REQUEST
        kind = _ANTHROPIC_TYPES.get(self.status, default)
        details = AnthropicDetails(self.problem.code)
        problem = AnthropicProblem(kind, self.problem.message, details)
        return msgspec.json.encode(AnthropicErrorBody(error=problem, request_id=request_id))


class _ErrorResponse(Response):
    """The response for an error, in the shape that its client reads."""

    def __init__(self, error: HttpError) -> None:
        super().__init__(
            msgspec.json.encode(ErrorBody(error.problem)),
            error.status,
            headers=dict(error.headers),
            media_type=JSON,
        )
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope.get("state", {})
        if state.get("is_anthropic"):
            self.body = self._error.anthropic_body(state["request_id"])
            self.headers["content-length"] = str(len(self.body))
        await super().__call__(scope, receive, send)


def not_found(message: str) -> HttpError:
    return HttpError(404, message, code="not_found")


def server_stopping(message: str) -> HttpError:
    """Return the error of a request to a server that shuts down."""
    return HttpError(503, message, code="stopping", headers=SOON)


def journal_moved(header: str | None = None) -> HttpError:
    """Return the error of a moved journal; a `header` tells a proxy that there was no effect."""
    return HttpError(
        503,
        "another server goes on with this run, now or soon; send the request again",
        code="journal_moved",
        headers=SOON if header is None else {**SOON, header: "1"},
    )


def journal_away() -> HttpError:
    """Return the error of a request that waited too long for the database of its journal."""
    return HttpError(
        503,
        "the database of this server does not answer, so the request may or may not take effect:"
        " send it again, with the same Idempotency-Key",
        code="journal_away",
        headers=SOON,
    )


def key_ended() -> HttpError:
    """Return the error of a request whose key ended while it was under way."""
    return HttpError(
        401,
        "the key of this request has expired, or was revoked",
        code="invalid_api_key",
        headers={"www-authenticate": "Bearer"},
    )


def to_http_error(exc: Exception, *, is_stopping: bool) -> HttpError:
    """Translate an error of the orchestrator to an HTTP error."""
    match exc:
        case errors.UnknownIdError():
            return not_found(str(exc))
        case errors.ClosedError() if is_stopping:
            return server_stopping(str(exc))
        case _ if type(exc) in _CONFLICTS:
            return HttpError(409, str(exc), code=_CONFLICTS[type(exc)])
        case errors.JournalInUseError() | errors.JournalAwayError():
            is_away = isinstance(exc, errors.JournalAwayError)
            return journal_away() if is_away else journal_moved()
        case errors.JournalError():
            # Without the path: clients must not learn about the owner's machine.
            message = f"the journal of this server failed: {exc.problem}"
            return HttpError(500, message, code="internal")
        case _:
            return HttpError(500, str(exc), code="internal")


def bad_request(message: str, *, param: str, code: str = "unsupported") -> HttpError:
    """Return the error for an invalid or unsupported request."""
    return HttpError(400, message, param=param, code=code)
