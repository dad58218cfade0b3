"""What can go wrong in the house, by who reads it.

* OrchestratorError
  x JournalError           the journal cannot be read or written; everything stops
    · JournalInUseError    another process writes it
  x UnknownIdError         there is no such run, session or task
  x SessionOpenError       somebody talks to that session already
  x ClosedError            the orchestrator or the session is closed
  x RunFailedError         a run did not succeed, and its output was asked for
"""

from agents import well_formed
from delegation import Outcome


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


class RunFailedError(OrchestratorError):
    """A run did not succeed, and its output was asked for."""

    def __init__(self, path: str, outcome: Outcome) -> None:
        super().__init__(f"{path} {outcome.ending}: {outcome.error}")
        self.path = path
        self.outcome = outcome


def words_of(exc: BaseException) -> str:
    """Return what an error says, as it can be written down: it may be anybody's."""
    try:
        return well_formed(str(exc))
    except Exception:  # noqa: BLE001 (an error that cannot even say what it is)
        return f"{type(exc).__name__}, which cannot say what it is"
