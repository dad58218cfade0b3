"""Calls that are lent to workers: each is known until it has its result."""

from orchestrator.agents import CallId, ToolMessage
from orchestrator.delegation import Ledger
from orchestrator.delegation.events import CallPlaced, ToolAnswered
from tests.delegation.test_ledger import PUSH, ROOT, Tell

FIRST, SECOND = CallId("first"), CallId("second")


def test_a_lent_call_is_forgotten_with_its_result(ledger: Ledger, begin: Tell, tell: Tell) -> None:
    begin(PUSH)
    second = CallPlaced(ROOT, SECOND, "gpu", attempt=1)
    tell(CallPlaced(ROOT, FIRST, "gpu", attempt=1), second)

    tell(ToolAnswered(ROOT, ToolMessage(FIRST, "done")))
    assert ledger.tasks[ROOT].placed == {SECOND: second}

    tell(ToolAnswered(ROOT, ToolMessage(SECOND, "done")))
    assert not ledger.tasks[ROOT].placed


def test_the_worker_of_a_turn_stays_after_the_result_of_its_call(
    ledger: Ledger, begin: Tell, tell: Tell
) -> None:
    begin(PUSH)
    placed = CallPlaced(ROOT, FIRST, "gpu", attempt=1, worker="w", execution="e", turn=True)
    tell(placed, ToolAnswered(ROOT, ToolMessage(FIRST, "done")))

    assert ledger.tasks[ROOT].placed_turn == placed
