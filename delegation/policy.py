"""May this be delegated, and who then owns it? Pure rules, decided before anything starts."""

from typing import TypeAlias

import attrs

from delegation.ledger import Ledger
from delegation.task import DeliveryCapability, Reason, TaskRequest


@attrs.frozen(kw_only=True)
class Rules:
    """The limits of delegation. Each is its own number, and 0 means none at all."""

    depth: int = 10
    """How many levels of tasks there may be below a session."""
    children_per_call: int = 100
    """How many tasks one call of `delegate_task` may ask for."""


@attrs.frozen
class Join:
    """Run it within the call that asks."""

    reason: Reason


@attrs.frozen
class Detach:
    """Run it on its own, and tell the session later."""

    reason: Reason = Reason.CAN_BE_TOLD_LATER


@attrs.frozen
class Refuse:
    """Do not run it; the model reads the reason and goes on."""

    reason: str


Verdict: TypeAlias = Join | Detach | Refuse


def decide(request: TaskRequest, ledger: Ledger, rules: Rules) -> Verdict:
    """Decide one request. It is posted in the same synchronous step."""
    if ledger.is_cancelled(request.parent):
        return Refuse("this task was asked to end, and hands nothing on any more")
    if ledger.tasks[request.parent].depth + 1 > rules.depth:
        return Refuse(
            f"delegation may go {rules.depth} level{'s' * (rules.depth != 1)} deep, and"
            " this task is at the bottom: do the work yourself"
        )
    if request.background is False:
        return Join(Reason.ASKED_TO_WAIT)
    if request.origin.capability is DeliveryCapability.NONE:
        return Join(Reason.CANNOT_BE_TOLD_LATER)
    return Detach()
