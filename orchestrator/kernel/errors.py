"""The errors of an orchestrator, by their reader.

* OrchestratorError
  x JournalError           the journal cannot be read or written; everything stops
    · JournalInUseError    another process writes it
  x UnknownIdError         there is no such run, session or task
  x SessionOpenError       the session is open already
  x NotInterruptedError    the run cannot be resumed: no process died in it
  x ChangedProgramError    the run cannot go on: its program has changed since a crash
  x EndedError             the task has ended already
  x ClosedError            the orchestrator or the session is closed
  x WrongLoopError         the call needs another event loop than the one that runs here
  x SharedBudgetError      the work under a budget is in another journal than the budget
  x ServerSetupError       a server cannot be started with these settings
  x LoginError             there is no login at an MCP server, or it cannot be made or kept
    · LoginRequiredError   a person has to log in, or to allow more
  x RunFailedError         a run has no output: it did not succeed
  x TaskFailedError        a task that a pipeline delegated did not succeed
    · FanOutFailedError    too many tasks of a fan-out did not succeed
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from orchestrator.agents import well_formed
from orchestrator.delegation import Cause, Outcome

NEEDS_TRIO: Final = (
    "this needs trio, and trio does not run here: under asyncio (FastAPI, a notebook) take"
    " `from orchestrator.asyncio import open_orchestrator` and await the same methods of what that"
    " opens, in a program without a loop call `run_sync(agent, goal)`, and in one of your own use"
    " `trio.run(main)`"
)


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

    def __init__(self, path: object, problem: str, *, writer: str = "another process") -> None:
        super().__init__(path, problem)
        self.writer = writer
        """That process, as people may know it: `process 4711`."""


class JournalAwayError(JournalError):
    """The store of the journal does not answer now, and may soon."""


class UnknownIdError(OrchestratorError):
    """There is no such run, session or task."""


class SessionOpenError(OrchestratorError):
    """The session is open already."""


class NotInterruptedError(OrchestratorError):
    """A run cannot be resumed: it has ended, is under way, or is a conversation."""

    def __init__(self, run: str, problem: str) -> None:
        super().__init__(f"run {run!r} {problem}")
        self.run = run
        self.problem = problem


class ChangedProgramError(OrchestratorError):
    """A run was resumed, and its program has changed: it would repeat finished tasks."""

    def __init__(self, run: str, change: str) -> None:
        super().__init__(
            f"run {run!r} stays interrupted: {change}. Resume it with its earlier code, or"
            f" accept the change with --accept-changes, in Python with on_change='accept'"
        )
        self.run = run
        self.change = change


class EndedError(OrchestratorError):
    """The task has ended already."""


class ClosedError(OrchestratorError):
    """The orchestrator or the session is closed."""


class WrongLoopError(OrchestratorError):
    """The call needs one event loop, and another one, or none, runs here."""

    def __init__(self, sentence: str = NEEDS_TRIO) -> None:
        super().__init__(sentence)


class SharedBudgetError(OrchestratorError):
    """A budget is kept in one journal, and the work under it is in another one."""

    def __init__(self, budget: str, kept_in: object, journal: object) -> None:
        super().__init__(
            f"the {budget} is kept in {_named(kept_in)}, and this would be begun in"
            f" {_named(journal)}, where it would be a second budget of the same size: begin it in"
            " the first journal, or outside of the budget"
        )


def _named(journal: object) -> str:
    return f"the journal {journal}" if isinstance(journal, str) else "a journal in memory"


class LoginError(OrchestratorError):
    """There is no login at an MCP server, or it cannot be made or kept."""


class LoginRequiredError(LoginError):
    """A person has to log in to an MCP server, or to allow more."""


class ServerSetupError(OrchestratorError):
    """A server cannot be started with these settings."""


class RunFailedError(OrchestratorError):
    """A run has no output: it did not succeed."""

    def __init__(self, path: str, outcome: Outcome) -> None:
        super().__init__(f"{path} {outcome.ending}: {outcome.error}")
        self.path = path
        self.outcome = outcome


class TaskFailedError(OrchestratorError):
    """A task that a pipeline delegated did not succeed."""

    def __init__(
        self, path: str, outcome: Outcome, outcomes: Mapping[str, Outcome] | None = None
    ) -> None:
        super().__init__(_sentence(path, outcome))
        self.path = path
        """The path of the task, such as `/brief/researcher[3]`."""
        self.outcome = outcome
        self.outcomes: Mapping[str, Outcome] = {} if outcomes is None else outcomes
        """The outcomes of all tasks of a fan-out by path, including the successful ones."""


class FanOutFailedError(ExceptionGroup[TaskFailedError], TaskFailedError):
    """Too many tasks of a fan-out did not succeed: every failure, with its path."""

    def __new__(
        cls,
        path: str,
        outcome: Outcome,
        failures: Sequence[TaskFailedError],
        outcomes: Mapping[str, Outcome],
    ) -> Self:
        """Build the group from other arguments than `ExceptionGroup` takes."""
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
        """Change nothing: `__new__` has set all attributes."""

    def __str__(self) -> str:
        return self.message

    def derive(self, excs: Sequence[Any], /) -> Any:
        """Return a part of the group: `except*` and nurseries split it."""
        return FanOutFailedError(self.path, self.outcome, excs, self.outcomes)


def _sentence(path: str, outcome: Outcome) -> str:
    # The error of a child names the path of the child.
    if outcome.cause is Cause.CHILD:
        return outcome.error
    return f"{path} {outcome.ending}: {outcome.error}"


def explain(failure: OrchestratorError, outcome: Outcome, error: BaseException | None) -> None:
    """Chain a failure to the error of its task in this process, or to its recorded traceback."""
    if error is not None:
        failure.__cause__ = error
    elif outcome.traceback:
        failure.add_note(f"in an earlier process:\n{outcome.traceback}")


def error_text(exc: BaseException) -> str:
    """Return the text of an error, well-formed: it may come from any library."""
    try:
        return well_formed(str(exc))
    except Exception:  # noqa: BLE001 (the `__str__` of a foreign error failed)
        return f"{type(exc).__name__}, whose text cannot be read"
