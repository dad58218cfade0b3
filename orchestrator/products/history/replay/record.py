"""The record of one run: its indexed facts, and queries for replay and fork."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import attrs

from orchestrator.agents import Agent
from orchestrator.delegation import (
    Account,
    Cause,
    DeliveryCapability,
    Ending,
    Grant,
    Ledger,
    Outcome,
    SessionId,
    TaskId,
    events,
)
from orchestrator.delegation.amounts import NOTHING, Amounts
from orchestrator.ports.errors import OrchestratorError, UnknownIdError
from orchestrator.ports.journals import fold, fold_entries
from orchestrator.products.history.replay.index import RunIndex

DELEGATION_TOOLS: Final = frozenset({"delegate_task", "task"})
"""The tools that a replay runs."""


class ReplayError(OrchestratorError):
    """A run cannot be replayed."""


@attrs.frozen
class OtherUsage:
    """Usage of a budget by another run, or by a call that a crash broke off."""

    seq: int
    account: Account
    used: Amounts

    def apply(self, ledger: Ledger) -> None:
        """Book the usage in the ledger of a replay."""
        id_ = self.account.id
        if id_ not in ledger.accounts:
            ledger.accounts[id_] = self.account.without_use()
        ledger.accounts[id_].used += self.used


class RecordedRun(RunIndex):
    """The recorded facts of one run."""

    def __init__(self, entries: Sequence[events.Entry], run: str | None = None) -> None:
        """Index a run, by default the newest, from the entries of the journal or the run alone."""
        runs = {entry.session: None for entry in entries if entry.session}
        if not runs:
            raise UnknownIdError("there are no runs in the journal")
        if run is not None and run not in runs:
            raise UnknownIdError(f"there is no run {run!r}")
        super().__init__(SessionId(run) if run is not None else list(runs)[-1])
        whole = [entry for entry in entries if entry.session in {self.run, ""}]
        own = [index for index, entry in enumerate(whole) if entry.session]
        recorded = _until_process_died(whole[own[0] : own[-1] + 1])
        self.ledger = fold_entries(recorded, f"run {self.run}")
        self.entries = [*events.in_parts(recorded)]
        """The facts in their parts: a replay may post them apart."""
        self.session = self.ledger.sessions[self.run]
        for entry in self.entries:
            self.add(entry, entry.seq)
        self.end_steps()
        self.ends_after_crash = dict(self._answers_before_a_crash())
        """The positions of final answers right before a crash, and of the ends after it."""
        self.other_usage = list(
            self._find_other_usage(recorded if len(runs) == 1 else entries, recorded)
        )
        """The usage of this run's budgets that a replay does not repeat."""

    def _answers_before_a_crash(self) -> Iterator[tuple[int, int]]:
        for task_turn, end in self.outcomes.items() if self.crash_seqs else ():
            for answer in self.model_answers.get(task_turn, [])[-1:]:
                is_final = not (
                    isinstance(answer.value, events.ModelAnswered) and answer.value.message.calls
                )
                if is_final and any(answer.seq < it < end.seq for it in self.crash_seqs):
                    yield answer.seq, end.seq

    def _find_other_usage(
        self, entries: Sequence[events.Entry], own: Sequence[events.Entry]
    ) -> Iterator[OtherUsage]:
        shared = {grant.id for it in own for grant in _grants(it.event)}
        if entries is own or not shared:
            entries = own if self.crash_seqs else ()
        ledger = Ledger()
        for entry in entries:
            ids: Collection[str] = ()
            if isinstance(entry.event, events.JournalOpened):
                ids = self.ledger.accounts  # a crash charges the calls that were open
            elif entry.session != self.run:
                ids = shared
            before = {id_: it.used for id_ in ids if (it := ledger.accounts.get(id_)) is not None}
            fold(ledger, [entry], "journal")
            for id_ in ids:
                # The run that opens an account describes it, even before the account is used.
                account = ledger.accounts.get(id_)
                if account is not None and account.used != before.get(id_):
                    yield OtherUsage(entry.seq, account, account.used - before.get(id_, NOTHING))

    def cancel_seqs_of(self, task: TaskId) -> Sequence[int]:
        """Return the positions at which the end of a task was requested."""
        return self.cancel_seqs.get(task, ())

    def called_tools(self, prefix: str) -> list[str]:
        """Return the names of called tools that start with a prefix, each once."""
        return list(
            dict.fromkeys(it.name for it in self.calls.values() if it.name.startswith(prefix))
        )

    @property
    def is_whole(self) -> bool:
        """Whether the record has the end of the run; if not, its process died or still works."""
        return self.session.has_nothing_pending

    def require_replayable(self, agent: Agent[Any]) -> None:
        """Raise `ReplayError` if the run cannot be replayed."""
        if agent.name != self.session.root.agent:
            raise ReplayError(
                f"run {self.run} belongs to agent {self.session.root.agent!r}, not {agent.name!r}"
            )
        for entry in self.entries:
            match entry.event:
                case events.TurnResumed(afresh=True) | events.TaskStarted(afresh=True):
                    raise ReplayError(
                        f"in run {self.run} a task started again after a crash, and its"
                        " earlier steps are not recorded: this cannot be replayed"
                    )
                case events.TaskSettled(_, outcome) | events.TurnEnded(_, _, outcome):
                    if outcome.ending is Ending.LOST:
                        raise ReplayError(
                            f"run {self.run} cannot be replayed: a task was lost with its process,"
                            " at an unknown time"
                        )
                case _:
                    pass

    @property
    def is_one_shot(self) -> bool:
        """Whether the run had one goal and one answer, without a door."""
        return all(it.value.capability is DeliveryCapability.NONE for it in self.turns.values())

    def caller_cancelled_seq(self, turn: int) -> int | None:
        """Return the position of the first fact after the caller of a turn was cancelled."""
        end = self.outcomes.get((self.root, turn))
        if end is None or end.value.ending is not Ending.CANCELLED or self.root in self.cancel_seqs:
            return None
        first = end.seq
        for entry in reversed([it for it in self.entries if it.seq < end.seq]):
            match entry.event:
                case events.TaskSettled(_, Outcome(ending=Ending.CANCELLED)) | events.ModelFailed():
                    first = entry.seq
                case _:
                    break
        return first

    @property
    def session_opened(self) -> events.SessionOpened:
        event = self.entries[0].event
        assert isinstance(event, events.SessionOpened), "a run begins with this fact"
        return event

    def downtime(self) -> dict[int, float]:
        """Return the seconds without a running process, by the position at which each gap ended."""
        return {
            entry.seq: max(0.0, entry.at - before.at)
            for before, entry in zip(self.entries, self.entries[1:], strict=False)
            if isinstance(entry.event, events.JournalOpened)
            or (
                isinstance(entry.event, events.TurnResumed)
                and isinstance(before.event, events.JournalOpened)
            )
        }


def _until_process_died(entries: Sequence[events.Entry]) -> Sequence[events.Entry]:
    """Return the entries of a run up to the death of its process, if the next one gave it up."""
    end = entries[-1].event
    if isinstance(end, events.TurnEnded) and end.outcome.cause is Cause.PROCESS_DIED:
        for index in reversed(range(len(entries))):
            if isinstance(entries[index].event, events.JournalOpened):
                return entries[:index]
    return entries


def _grants(event: events.Event) -> Sequence[Grant]:
    match event:
        case events.SessionOpened() | events.MessageReceived():
            return event.grants
        case events.TaskRequested(request):
            return request.grants
        case _:
            return ()
