"""The session context of a request, from its headers `x-session-*` and `traceparent`.

A variable without a header is cleared, because the environment of this process describes another
caller. A workspace must be a folder below the server's workspace.
"""

import os.path
from collections.abc import Mapping
from operator import itemgetter
from pathlib import PurePath
from typing import Final

from starlette.datastructures import Headers

from orchestrator.delegation.session_context import door_context
from orchestrator.delegation.traceparent import checked_traceparent
from orchestrator.products.server.transport.errors import HttpError

HEADERS: Final[Mapping[str, str]] = {
    "x-session-platform": "platform",
    "x-session-source": "source",
    "x-session-chat-id": "chat_id",
    "x-session-chat-name": "chat_name",
    "x-session-thread-id": "thread_id",
    "x-session-user-id": "user_id",
    "x-session-user-name": "user_name",
    "x-session-key": "session_key",
    "x-session-message-id": "message_id",
    "x-session-workspace": "cwd",
}
"""The headers, with their variables of `orchestrator.delegation.session_context`."""
PLATFORM: Final = "http"
TRACEPARENT: Final = "traceparent"
_SENT: Final = frozenset(header.encode() for header in (*HEADERS, TRACEPARENT))
_NOT_SENT: Final = door_context(platform=PLATFORM)
LONGEST: Final = 256
_name_of: Final = itemgetter(0)


def context_of(headers: Headers) -> dict[str, str]:
    """Return the session context of a request, with every variable set."""
    if _SENT.isdisjoint(map(_name_of, headers.raw)):
        return _NOT_SENT.copy()
    context = door_context(**{name: headers.get(header, "") for header, name in HEADERS.items()})
    for header, name in HEADERS.items():
        if len(context[name]) > LONGEST or not context[name].isprintable():
            raise HttpError(
                400,
                f"the header {header} must have at most {LONGEST} printable characters",
                code="invalid_header",
                param=header,
            )
    context["platform"] = context["platform"] or PLATFORM
    if traceparent := traceparent_of(headers):
        context[TRACEPARENT] = traceparent
    _require_below(context["cwd"])
    return context


def traceparent_of(headers: Headers) -> str:
    """Return the span of the caller of a request; "" if its header is missing or malformed."""
    return checked_traceparent(headers.get(TRACEPARENT))


def _require_below(folder: str) -> None:
    parts = PurePath(os.path.normpath(folder)).parts if folder else ()
    if folder.startswith("/") or ".." in parts or "\0" in folder:
        raise HttpError(
            400,
            f"{folder!r} is not a folder below the workspace of this server; name a relative path"
            " without '..'",
            code="invalid_workspace",
            param="x-session-workspace",
        )
