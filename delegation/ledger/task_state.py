"""The state of a task: one value, and the table of permitted transitions.

A root is idle, running or interrupted, for ever. Any other task is queued, ready, running or
interrupted until it has ended, once.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from orchestrator.delegation.task import Outcome, TaskId

NO_DEPENDENCIES: Final = frozenset[TaskId]()


class Idle(msgspec.Struct, frozen=True, gc=False):
    """A root between two turns."""


class Queued(msgspec.Struct, frozen=True, gc=False):
    """It waits for its dependencies, and then for a slot."""

    dependencies: frozenset[TaskId] = NO_DEPENDENCIES
    """The tasks that have not succeeded yet."""


class Ready(msgspec.Struct, frozen=True, gc=False):
    """It has a slot, and its owner may start it."""

    resumes: bool = False
    """It was interrupted, and got its slot without having to queue again."""


class Running(msgspec.Struct, frozen=True, gc=False):
    """An agent works on it; it has a slot."""

    quiet: bool = False
    """It has shown no activity for a while."""


class Interrupted(msgspec.Struct, frozen=True, gc=False):
    """Its process is gone, and with it the slot."""

    dependencies: frozenset[TaskId] = NO_DEPENDENCIES


class Ended(msgspec.Struct, frozen=True, gc=False):
    """It was settled."""

    outcome: Outcome


TaskState: TypeAlias = Idle | Queued | Ready | Running | Interrupted | Ended

IDLE: Final = Idle()
QUEUED: Final = Queued()
READY: Final = Ready()
READY_TO_RESUME: Final = Ready(resumes=True)
RUNNING: Final = Running()
QUIET: Final = Running(quiet=True)
INTERRUPTED: Final = Interrupted()

TRANSITIONS: Final[Mapping[type[TaskState], frozenset[type[TaskState]]]] = {
    Idle: frozenset({Running}),
    # From the queue to an agent without a slot: the fact was written under other rules.
    Queued: frozenset({Ready, Running, Interrupted, Ended}),
    Ready: frozenset({Running, Interrupted, Ended}),
    Running: frozenset({Idle, Interrupted, Ended}),
    Interrupted: frozenset({Idle, Queued, Ready, Running, Ended}),
    Ended: frozenset(),
}
"""The kinds of state that may follow each kind."""


def state_name(state: TaskState) -> str:
    """Return a state as people read it: of a task that has ended, how."""
    if isinstance(state, Ended):
        return state.outcome.ending.value
    return type(state).__name__.lower()
