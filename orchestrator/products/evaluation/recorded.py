"""The state that an evaluation keeps in its runs, and the runs of a set, read from its journal.

A set is a journal. Each of its runs knows its case, its version and its scores, so a set needs no
second file.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

import attrs

from orchestrator.agents import Agent
from orchestrator.delegation import Ending, Ledger, SessionId
from orchestrator.delegation.events import Entry, JournalOpened
from orchestrator.delegation.session_state import NO_ENTRIES, Entries, SessionState
from orchestrator.ports.journals import Journals, fold_entries
from orchestrator.products.evaluation.cases import Case
from orchestrator.products.evaluation.scorers import Score
from orchestrator.products.evaluation.task_result import TaskResult, result_of_run

TRIAL_PREFIX: Final = "e_"
"""The start of the ids of runs that answer a case."""
NO_RESULTS: Final = (Ending.CANCELLED, Ending.LOST)
"""The endings of runs that ended with their process, which says nothing about a version."""


class EvaluationState(SessionState, frozen=True):
    """The case that a run answers, and its scores."""

    NAME: ClassVar[str] = "evaluation"
    case: str = ""
    """The key of the case; empty in a run of a judge."""
    name: str = ""
    """The name of the case."""
    dataset: str = ""
    """The name of the dataset of the case."""
    expected: Any = None
    version: str = ""
    """The name of the version: the settings that a sweep varied, or the name of the set."""
    team: str = ""
    """The fingerprint of the team."""
    repeat: int = 0
    judged: str = ""
    """The run that a judge scores."""
    scores: Entries[Score] = NO_ENTRIES
    """The scores, by their names."""
    broken: str = ""
    """Why the run could not be scored."""


@attrs.frozen(kw_only=True)
class Trial:
    """One run of a case with a version, and its scores."""

    case: Case
    version: str
    repeat: int
    result: TaskResult
    scores: Mapping[str, Score]
    dataset: str = ""
    """The name of the dataset of its case."""
    broken: str = ""
    """Why it has no scores although it succeeded: a scorer raised an error."""

    @property
    def run(self) -> SessionId:
        return self.result.session.id

    @property
    def error(self) -> str:
        """Why it has no scores; empty if it has."""
        if self.broken or self.result.succeeded:
            return self.broken
        return f"{self.result.ending}: {self.result.error}"


def read_trials(journals: Journals, *, run: str = TRIAL_PREFIX) -> list[Trial]:
    """Return the trials of a set that have ended, oldest first, or the trial of one run.

    A version that has changed since its first trials has only the trials of its newest team.
    """
    found: list[tuple[str, Trial]] = []
    teams: dict[str, str] = {}
    for result in read_results(journals, prefix=run):
        state = result.session.state(EvaluationState)
        if not state.case or result.outcome is None:
            continue
        case = Case(
            name=state.name,
            inputs=result.goal,
            expected_output=state.expected,
            recorded_key=state.case,
        )
        trial = Trial(
            case=case,
            version=state.version,
            repeat=state.repeat,
            result=attrs.evolve(result, case=case),
            scores={name: it for name, it in state.scores.items() if it is not None},
            dataset=state.dataset,
            broken=state.broken,
        )
        if result.outcome.ending not in (*NO_RESULTS, Ending.OVER_BUDGET):
            teams[state.version] = state.team
            found.append((state.team, trial))
    return [trial for team, trial in found if teams[trial.version] == team]


def read_results(
    journals: Journals, *, agent: Agent[Any] | None = None, prefix: str = ""
) -> Iterator[TaskResult]:
    """Yield the runs of all journals that have begun, oldest first; no model is asked."""
    listed = journals.sessions(prefix=prefix)
    for error in listed.unreadable.values():
        raise error
    for it in listed.sessions:
        with journals.store(it.journal).open_reader() as reader:
            ledger = _fold(reader.entries(it.id), it.id)
        session = ledger.sessions.get(it.id)
        if session is not None and session.kind.is_run and session.turns:
            yield result_of_run(session, ledger.tasks, agent=agent)


def _fold(entries: Any, run: SessionId) -> Ledger:
    ledger = fold_entries(entries, run)
    if entries:
        # A task that the journal shows as running may have no process any more.
        closed = JournalOpened("read only")
        ledger.fold(Entry(ledger.last_seq + 1, entries[-1].at, SessionId(""), closed))
    return ledger
