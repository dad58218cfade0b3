"""What a client that waits is told of a session that has no answer: why, in HTTP's words."""

import math
from collections.abc import Mapping
from typing import Final

from delegation import Cause, Ending, Outcome, SessionRecord
from orchestrator.server.session_status import failure_reason
from orchestrator.server.transport.errors import HttpError

RUN: Final = "x-run-id"
"""The header that says where the tree of an answer is."""
_TYPES: Final[Mapping[str, str]] = {
    "rate_limit": "rate_limit_error",
    "quota": "insufficient_quota",
    "context": "invalid_request_error",
}
_NOTHING: Final = Outcome(Ending.CANCELLED, error="it was stopped", cause=Cause.ASKED)


def session_error(session: SessionRecord) -> HttpError | None:
    """Return why a session that is over has no answer; None if it has one."""
    why = failure_reason(session.last_outcome or _NOTHING)
    if why is None:
        return None
    headers = {
        # Whoever asks again runs all of it again, which they have to want.
        "x-should-retry": "false",
        **run_header(session),
    }
    if why.retry_after is not None:
        headers["retry-after"] = str(math.ceil(why.retry_after))
    return HttpError(
        why.status,
        why.message,
        code=why.code,
        type=_TYPES.get(why.code, "server_error"),
        headers=headers,
    )


def run_header(session: SessionRecord) -> dict[str, str]:
    return {RUN: session.id}
