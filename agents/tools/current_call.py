"""The current call of a tool, for a log, and for a process that runs calls of turns elsewhere."""

from orchestrator.agents.approved_call import APPROVED_CALL, ApprovedCall
from orchestrator.agents.tools.tool import CURRENT_CALL_KEY, SECONDS_LEFT, CallKey


def current_call_key() -> CallKey | None:
    """Return the key of the call that runs here, which begins with the id of its task."""
    return CURRENT_CALL_KEY.get(None)


def set_current_call(key: CallKey, approved: ApprovedCall | None, seconds: float | None) -> None:
    """Set the current call of this trio task; `approved` is None if no rule is about the call."""
    APPROVED_CALL.set(approved)
    CURRENT_CALL_KEY.set(key)
    if seconds is not None:
        SECONDS_LEFT.set(seconds)
