"""What a session looks like from outside: how far it is, what it said, why it failed."""

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import attrs

from agents import AssistantMessage, ToolCall, unanswered_calls
from delegation import Ending, Outcome, SessionRecord
from orchestrator.doors.http import is_over

State: TypeAlias = Literal["queued", "in_progress", "completed", "failed", "cancelled"]

# Of a provider that failed: what clients know such an error by, and its status.
_PROVIDER: Final = {
    "rate_limit": ("rate_limit", 429),
    "overloaded": ("provider", 503),
    "timeout": ("provider", 504),
    "connection": ("provider", 502),
    "malformed": ("provider", 502),
    "auth": ("auth", 502),
    "quota": ("quota", 429),
    "context_too_long": ("context", 400),
    "bad_request": ("provider", 502),
    "refused": ("provider", 502),
    "cut_off": ("provider", 502),
    "other": ("provider", 502),
}
_ENDINGS: Final = {
    Ending.OVER_BUDGET: ("tool_limit", 500),
    Ending.TIMED_OUT: ("tool_limit", 504),
    Ending.CANCELLED: ("cancelled", 499),
    Ending.LOST: ("internal", 500),
}


@attrs.frozen(kw_only=True)
class FailureReason:
    """Why a session did not succeed, for clients."""

    code: str
    """`rate_limit`, `auth`, `quota`, `context`, `provider`, `tool_limit`, `cancelled` or
    `internal`."""
    message: str
    status: int
    """Of the response, where the client waits for it."""
    retry_after: float | None = None


def state_of(session: SessionRecord) -> State:
    """Return how far a session is."""
    if not is_over(session):
        has_begun = session.turn is not None or session.turns > 0
        return "in_progress" if has_begun else "queued"
    outcome = session.last_outcome
    if session.closed or outcome is None or outcome.ending is Ending.CANCELLED:
        return "cancelled"
    return "completed" if outcome.succeeded else "failed"


def failure_reason(outcome: Outcome) -> FailureReason | None:
    """Return why something failed; None if it did not."""
    if outcome.succeeded:
        return None
    if outcome.ending is Ending.FAILED:
        code, status = _PROVIDER.get(outcome.kind, ("internal", 500))
    else:
        code, status = _ENDINGS.get(outcome.ending, ("internal", 500))
    return FailureReason(
        code=code,
        message=f"{outcome.ending}: {outcome.error}",
        status=status,
        retry_after=outcome.retry_after,
    )


@attrs.frozen
class AgentMessage:
    """One thing that an agent said to whoever asked."""

    id: str
    text: str


def agent_messages(session: SessionRecord) -> list[AgentMessage]:
    """Return all that the agent of a session said, oldest first.

    The last one is its answer once it has succeeded; those before it were said on the way.
    """
    every = [
        AgentMessage(message.id, message.text)
        for message in session.root.transcript
        if isinstance(message, AssistantMessage) and message.text
    ]
    said = [it for it in every if not it.id.startswith("h_")]
    outcome = session.last_outcome
    is_ended = is_over(session) and session.turn is None
    if is_ended and outcome is not None and outcome.output:
        # What failed has the last thing that was ever said, if nothing was said since.
        known = said if outcome.succeeded else every
        if not known or outcome.output != known[-1].text:
            # A program said it and no model, or a model that failed in the midst of it.
            said.append(AgentMessage(f"m_{session.id}", outcome.output))
    return said


def client_calls(session: SessionRecord) -> Sequence[ToolCall]:
    """Return the calls that whoever asked is to run."""
    outcome = session.last_outcome
    if session.turn is not None or outcome is None or not outcome.succeeded:
        return ()
    return unanswered_calls(session.root.transcript)
