"""The HTTP error of a session that ended without an answer."""

import math
from collections.abc import Mapping
from typing import Final

from orchestrator.delegation import Cause, Ending, Outcome, SessionRecord
from orchestrator.products.server.session_status import (
    cut_reason,
    failure_reason,
    last_outcome_of,
    refusal_of,
)
from orchestrator.products.server.transport.errors import HttpError

RUN: Final = "x-run-id"
"""The header with the id of the run; its tree is at `/v1/runs/{run}/tree`."""
DAY_SECONDS: Final = 24 * 3600
# OpenAI's codes, which make libraries choose another model, wait, or shorten the conversation.
_CODES: Final[Mapping[str, str]] = {
    "rate_limit": "rate_limit_exceeded",
    "quota": "insufficient_quota",
    "context": "context_length_exceeded",
}
_TYPES: Final[Mapping[str, str]] = {
    "rate_limit": "rate_limit_error",
    "quota": "insufficient_quota",
    "context": "invalid_request_error",
}
_HINTS: Final[Mapping[str, str]] = {
    # LangChain and litellm ignore the code, and detect an overflow by this sentence of OpenAI's.
    "context": ". Input tokens exceed the configured limit of the model."
}
_NO_OUTCOME: Final = Outcome(Ending.CANCELLED, error="it was stopped", cause=Cause.ASKED)


def session_error(session: SessionRecord) -> HttpError | None:
    """Return the error of a session without an answer; a cut answer or a refusal is one."""
    outcome = last_outcome_of(session) or _NO_OUTCOME
    if outcome.succeeded:
        return None
    if cut_reason(session) is not None or refusal_of(session) is not None:
        return None
    reason = failure_reason(outcome)
    if reason is None:
        return None
    headers = {
        # A retry runs everything again, so the client decides it, not its library.
        "x-should-retry": "false",
        **run_header(session),
    }
    retry_after = reason.retry_after
    if outcome.ending is Ending.OVER_BUDGET and reason.code == "quota":
        # The budget of a key is for one day, in UTC.
        ended = session.tree[session.root.id].ended or 0
        retry_after = DAY_SECONDS - ended % DAY_SECONDS
    if retry_after is not None:
        headers["retry-after"] = str(math.ceil(retry_after))
    return HttpError(
        reason.status,
        reason.message + _HINTS.get(reason.code, ""),
        code=_CODES.get(reason.code, reason.code),
        type=_TYPES.get(reason.code, "server_error"),
        headers=headers,
    )


def run_header(session: SessionRecord) -> dict[str, str]:
    return {RUN: session.id}
