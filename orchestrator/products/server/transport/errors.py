"""Errors as HTTP responses, in OpenAI's shape."""

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.responses import Response

from orchestrator.ports import errors
from orchestrator.products.history.ports import ReplayError

JSON: Final = "application/json"
INVALID_REQUEST: Final = "invalid_request_error"
SERVER_ERROR: Final = "server_error"
_TYPES: Final[Mapping[int, str]] = {401: "authentication_error", 403: "permission_error"}
NO_HEADERS: Final[Mapping[str, str]] = {}
CLIENT_CLOSED_REQUEST: Final = 499
"""The status of a request whose client disconnected before the response."""
SOON: Final = {"retry-after": "1"}
_CONFLICTS: Final[Mapping[type[Exception], str]] = {
    errors.ClosedError: "conflict",
    errors.SessionOpenError: "conflict",
    errors.EndedError: "ended",
    errors.NotInterruptedError: "not_interrupted",
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
        return Response(
            msgspec.json.encode(ErrorBody(self.problem)),
            self.status,
            headers=dict(self.headers),
            media_type=JSON,
        )


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
