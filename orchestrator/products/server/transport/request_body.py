"""Reading the body of a request, within limits of length and time."""

from collections.abc import Callable
from typing import Final

import trio
from starlette.requests import ClientDisconnect, Request

from orchestrator.products.server.operation import Operation
from orchestrator.products.server.transport.errors import HttpError
from orchestrator.products.server.transport.http11 import WHOLE_BODY

BODY_SECONDS: Final = 30
"""The most seconds of silence in the middle of a body."""
WHOLE_BODY_SECONDS: Final = 120
"""The most seconds for the whole body."""
UNREAD_BODY: Final = 65_536
"""The most bytes for a route without a body: some clients send an empty object."""


async def read_body(request: Request, operation: Operation, most: int) -> bytes:
    """Return the body of a request; refuse one of more than `most` bytes, or a slow one."""
    limit, refused = _limit(operation, most)
    whole_body: Callable[[], bytes | None] | None = request.scope["state"].get(WHOLE_BODY)
    if whole_body is not None and (body := whole_body()) is not None:
        if len(body) > limit:
            raise refused(limit)
        return body  # noqa: ASYNC910 (mostly it came with the head, and needs no timeout)
    pieces: list[bytes] = []
    length, begun = 0, trio.current_time()
    with trio.CancelScope(deadline=begun + BODY_SECONDS) as timeout:
        while True:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            pieces.append(message.get("body", b""))
            length += len(pieces[-1])
            if length > limit:
                raise refused(limit)
            if not message.get("more_body"):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            now = trio.current_time()
            timeout.deadline = min(begun + WHOLE_BODY_SECONDS, now + BODY_SECONDS)
    raise HttpError(
        408,
        f"the body is not complete: its client sent nothing for {BODY_SECONDS} s, or took more"
        f" than {WHOLE_BODY_SECONDS} s",
        code="body_too_slow",
        headers={"connection": "close"},
    )


def _limit(operation: Operation, most: int) -> tuple[int, Callable[[int], HttpError]]:
    """Return the most bytes that an operation takes, and the error that refuses more."""
    if operation.body is None and most > UNREAD_BODY:
        return UNREAD_BODY, _takes_no_body
    if operation.is_public:
        # A client without a key must not fill the memory.
        return min(most, UNREAD_BODY), _too_large_for_all
    return most, too_large


def _takes_no_body(limit: int) -> HttpError:
    del limit
    return HttpError(
        413, "this route takes no body; send the request without one", code="body_too_large"
    )


def _too_large_for_all(limit: int) -> HttpError:
    return HttpError(413, f"this route takes at most {limit:,} bytes", code="body_too_large")


def too_large(limit: int) -> HttpError:
    return HttpError(
        413,
        f"the body has more than {limit:,} bytes, which is the limit; send less, or start the"
        " server with a larger --body-limit",
        code="body_too_large",
    )
