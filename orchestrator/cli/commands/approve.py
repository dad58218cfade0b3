"""`orchestrator approve`: approve a call that waits, from another terminal or a script."""

from typing import Annotated, Literal

from cyclopts import Parameter

from orchestrator.cli.control_requests import answer_approval
from orchestrator.cli.options import JournalOption, journals_of
from orchestrator.delegation.events.approvals import ApprovalVerdict


def approve(
    approval: str | None = None,
    /,
    *,
    scope: Annotated[Literal["once", "task", "session"], Parameter(name="--for")] = "once",
    run: str | None = None,
    journal: JournalOption = None,
) -> int:
    """Approve a call that waits for an approval.

    Exits with 0 if it is approved, and with 1 if it does not wait any more.

    Args:
        approval: The id of the question, or how it begins; by default the only one that waits.
        scope: Approve it once, or also the same call later in its task or its session.
        run: The run in which to look; by default all that go on.
    """
    return answer_approval(journals_of(journal), approval, run=run, verdict=ApprovalVerdict(scope))
