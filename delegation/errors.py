"""What can go wrong in the rules of delegation.

* DelegationError
  x OverBudgetError        a model call would go beyond a budget; see `budget.py`
  x ImpossibleEventError   a fact contradicts the facts before it: a bug of ours
  x UnreadableFactError    a stored fact is damaged, or newer than we are
  x UnwritableFactError    a fact holds what JSON cannot carry: whoever said it has to say better
"""


class DelegationError(Exception):
    """The facts do not add up."""


class ImpossibleEventError(DelegationError):
    """A fact contradicts the facts before it."""

    def __init__(self, event: object, because: str) -> None:
        super().__init__(f"{event!r} is impossible: {because}")
        self.event = event
        self.because = because


class UnwritableFactError(DelegationError):
    """A fact holds what JSON cannot carry."""


class UnreadableFactError(DelegationError):
    """A stored fact is damaged, or newer than we are."""


def require(condition: bool, event: object, otherwise: str) -> None:
    """Refuse a fact that contradicts those before it."""
    if not condition:
        raise ImpossibleEventError(event, otherwise)
