"""What can go wrong in the house, by who reads it.

* OrchestratorError
  x JournalError           the journal cannot be read or written; everything stops
    · JournalInUseError    another process writes it
  x UnknownIdError         there is no such run, session or task
  x SessionOpenError       somebody talks to that session already
  x ClosedError            the orchestrator or the session is closed
  x ServerSetupError       a server cannot be started as it was asked to
  x RunFailedError         a run did not succeed, and its output was asked for
  x TaskFailedError        what a pipeline delegated did not succeed
    · FanOutFailedError    too much of what it delegated at once did not
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from agents import well_formed
from delegation import Cause, Outcome


class OrchestratorError(Exception):
    """Something that the caller can act on."""


class JournalError(OrchestratorError):
    """The journal cannot be read or written."""

    def __init__(self, path: object, problem: str) -> None:
        super().__init__(f"journal {path}: {problem}")
        self.path = path
        self.problem = problem


class JournalInUseError(JournalError):
    """Another process writes the journal."""


class UnknownIdError(OrchestratorError):
    """There is no such run, session or task."""


class SessionOpenError(OrchestratorError):
    """Somebody talks to that session already."""


class ClosedError(OrchestratorError):
    """The orchestrator or the session is closed."""


class ServerSetupError(OrchestratorError):
    """A server cannot be started as it was asked to."""


class RunFailedError(OrchestratorError):
    """A run did not succeed, and its output was asked for."""

    def __init__(self, path: str, outcome: Outcome) -> None:
        super().__init__(f"{path} {outcome.ending}: {outcome.error}")
        self.path = path
        self.outcome = outcome


class TaskFailedError(OrchestratorError):
    """What a pipeline delegated did not succeed."""

    def __init__(
        self,
        path: str,
        outcome: Outcome,
        outcomes: Mapping[str, Outcome] | None = None,
    ) -> None:
        super().__init__(_sentence(path, outcome))
        self.path = path
        """Whose task it was, such as `/brief/researcher[3]`."""
        self.outcome = outcome
        self.outcomes: Mapping[str, Outcome] = {} if outcomes is None else outcomes
        """Of a fan-out, how all below it ended, by path: what had succeeded is not lost."""


class FanOutFailedError(ExceptionGroup[TaskFailedError], TaskFailedError):
    """Too much of what was delegated at once did not succeed: every failure, with its path."""

    def __new__(
        cls,
        path: str,
        outcome: Outcome,
        failures: Sequence[TaskFailedError],
        outcomes: Mapping[str, Outcome],
    ) -> Self:
        """Make the group; it takes other arguments than `ExceptionGroup`."""
        self = super().__new__(cls, _sentence(path, outcome), failures)
        self.path = path
        self.outcome = outcome
        self.outcomes = outcomes
        return self

    def __init__(
        self,
        path: str,
        outcome: Outcome,
        failures: Sequence[TaskFailedError],
        outcomes: Mapping[str, Outcome],
    ) -> None:
        """Leave it as `__new__` has made it."""

    def __str__(self) -> str:
        return self.message

    def derive(self, excs: Sequence[Any], /) -> Any:
        """Return a part of it: `except*`, and every nursery on the way, takes it apart."""
        return FanOutFailedError(self.path, self.outcome, excs, self.outcomes)


def _sentence(path: str, outcome: Outcome) -> str:
    # The error of a child names the path of the child.
    if outcome.cause is Cause.CHILD:
        return outcome.error
    return f"{path} {outcome.ending}: {outcome.error}"


def error_text(exc: BaseException) -> str:
    """Return what an error says, as it can be written down: it may be anybody's."""
    try:
        return well_formed(str(exc))
    except Exception:  # noqa: BLE001 (an error that cannot even say what it is)
        return f"{type(exc).__name__}, which cannot say what it is"
