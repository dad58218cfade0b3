"""The errors of the rules of delegation.

* DelegationError
  x OverBudgetError        a model call would exceed a budget; see `budget.py`
  x ImpossibleEventError   a fact contradicts the facts before it: a bug of ours
  x UnreadableFactError    a stored fact is damaged, or newer than this version
  x UnwritableFactError    JSON cannot carry a value of a fact: its author must change it
  x ScheduleError          a text names no time that a job can have; see `schedule.py`
"""

from typing import Final

import msgspec

MISFITS: Final = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError),
    *(RecursionError, TypeError, ValueError, msgspec.MsgspecError),
)
"""Errors of our code for stored values that it never wrote, or that contradict each other."""


class DelegationError(Exception):
    """The facts do not add up."""


class ImpossibleEventError(DelegationError):
    """A fact contradicts the facts before it."""

    def __init__(self, event: object, because: str, history: tuple[str, ...] = ()) -> None:
        states = f"; the states of its task: {', '.join(history)}" if history else ""
        super().__init__(f"{event!r} is impossible: {because}{states}")
        self.event = event
        self.because = because
        self.history = history
        """The states of the task that the fact is about, oldest first."""


class UnwritableFactError(DelegationError):
    """A fact holds what JSON cannot carry."""


class UnreadableFactError(DelegationError):
    """A stored fact is damaged, or newer than we are."""
