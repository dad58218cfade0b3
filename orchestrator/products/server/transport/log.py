"""The server's log: its own errors and, by an option, a line for each request.

Secrets are redacted. A line has no body, query or token. The path is escaped, so that no request
can write a line of its own.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import attrs
import trio
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.loggers import logger_of
from orchestrator.products.server.keys.store import Access
from orchestrator.products.server.transport.errors import CLIENT_CLOSED_REQUEST

ACCESS: Final = "server.access"
LONGEST_PATH: Final = 500


def redacted_logger(redactor: Redactor, package: str = "server") -> logging.Logger:
    """Return a logger below the logger of a package, whose records have no secrets."""
    parent = logger_of(package)
    # Not a named logger: it knows the secrets of one server, and dies with that server.
    logger = logging.Logger(parent.name)  # noqa: LOG001
    logger.parent = parent
    logger.addFilter(_Redaction(redactor))
    return logger


def access_logger(redactor: Redactor) -> logging.Logger:
    """Return the logger of requests, whose records have no secrets."""
    logger = redacted_logger(redactor, ACCESS)
    logger.setLevel(logging.INFO)
    return logger


class _Redaction(logging.Filter):
    """Removes secrets from the text of a record, and from its traceback."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = self._redactor.redact(record.getMessage()), ()
        if record.exc_info:
            traceback = logging.Formatter().formatException(record.exc_info)
            record.exc_text, record.exc_info = self._redactor.redact(traceback), None
        return True


@attrs.frozen(kw_only=True)
class AccessLog:
    """Writes a line for each request to an application when the request has ended."""

    app: ASGIApp
    write: Callable[[str], None]
    now: Callable[[], float]
    """The time of day."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, at = trio.current_time(), self.now()
        status, run = CLIENT_CLOSED_REQUEST, "-"

        async def send_noted(message: Message) -> None:
            nonlocal status, run
            if message["type"] == "http.response.start":
                status = message["status"]
                run = Headers(raw=message.get("headers", [])).get("x-run-id", "-")
            await send(message)

        try:
            await self.app(scope, receive, send_noted)
        finally:
            seconds = trio.current_time() - begun
            self.write(_line(scope, at, status, seconds, run))


def _line(scope: Scope, at: float, status: int, seconds: float, run: str) -> str:
    state = scope.get("state", {})
    access: Access | None = state.get("access")
    client = scope.get("client")
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return " ".join(
        [
            datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
            client[0] if client else "-",
            "-" if access is None else access.key.name,
            scope["method"],
            # ASCII without blanks, for any path.
            ascii(path[:LONGEST_PATH].decode("ascii", "backslashreplace"))[1:-1],
            str(status),
            f"{seconds:.3f}s",
            run,
            state.get("request_id", "-"),
        ]
    )
