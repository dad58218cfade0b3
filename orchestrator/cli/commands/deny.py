"""`orchestrator deny`: deny a call that waits, from another terminal or a script."""

from orchestrator.cli.control_requests import answer_approval
from orchestrator.cli.options import JournalOption, journals_of
from orchestrator.delegation.events.approvals import ApprovalVerdict


def deny(
    approval: str | None = None,
    /,
    *,
    why: str = "",
    run: str | None = None,
    journal: JournalOption = None,
) -> int:
    """Deny a call that waits for an approval.

    Exits with 0 if it is denied, and with 1 if it does not wait any more.

    Args:
        approval: The id of the question, or how it begins; by default the only one that waits.
        why: The reason, which the agent reads.
        run: The run in which to look; by default all that go on.
    """
    return answer_approval(
        journals_of(journal), approval, run=run, verdict=ApprovalVerdict.DENY, reason=why
    )
