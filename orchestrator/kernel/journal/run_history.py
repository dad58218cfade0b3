"""The history of one run, read from its facts: the tree and the transcripts.

The ledger folds the facts. It forgets the transcript of a settled task, so the transcript is copied
just before.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence

import attrs

from orchestrator.agents import Message
from orchestrator.delegation import (
    ImpossibleEventError,
    Ledger,
    Outcome,
    SessionId,
    TaskId,
    TaskRecord,
    Tree,
    encode,
    events,
    root_of,
)
from orchestrator.delegation.events.incidents import Incident
from orchestrator.delegation.tree.critical_path import CriticalPath
from orchestrator.delegation.tree.intervals import last_moment
from orchestrator.kernel.errors import JournalError


@attrs.frozen
class TaskTranscript:
    """The messages of one task, what else happened to its model calls, and its outcome."""

    messages: Sequence[Message]
    outcome: Outcome | None
    incidents: Sequence[Incident] = ()


def ended_transcript(record: TaskRecord, event: events.TaskSettled) -> TaskTranscript:
    """Return the transcript of a task that a fact is about to end."""
    messages, incidents, answer = [*record.transcript], record.incidents, event.answer
    if answer is not None:
        if answer.left_out:
            incidents = [*incidents, Incident(len(messages), left_out=answer.left_out)]
        messages.append(answer.message)
    return TaskTranscript(messages, event.outcome, incidents)


@attrs.frozen(kw_only=True)
class RunHistory:
    """One run, as the journal has it."""

    run: SessionId
    tree: Tree
    began: float
    last_at: float
    """The time of its last fact."""
    facts: int
    """How many it has; 0 where it was made of a tree alone."""
    digest: str
    """The hash of all its facts: the same for the same run, wherever it is read."""
    versions: Sequence[str]
    """The versions of the orchestrators that opened the journal."""
    models: Mapping[TaskId, str]
    """The model that answered last in each task."""
    tools: Mapping[TaskId, int] | None
    """The number of answered tool calls of each task; None where it is not known."""
    questions: Mapping[TaskId, str]
    """The open approval questions of each task, as text."""
    answer: str
    """The answer of the last turn; empty if it did not succeed, or has not ended."""
    transcripts: Mapping[TaskId, TaskTranscript]
    tracebacks: Mapping[TaskId, str]
    """Where in the code the tasks have failed that an error of a tool or a function ended."""
    critical_path: CriticalPath


def read_history(
    run: SessionId,
    entries: Sequence[events.Entry],
    *,
    has_writer: bool,
    wants_transcript: Callable[[str], bool],
) -> RunHistory:
    """Read the history of a run.

    Without a writer, running tasks are interrupted. `wants_transcript` judges the last status of a
    task.
    """
    builder = _HistoryBuilder(run)
    for entry in entries:
        builder.add(entry)
    # The next process may have opened the journal days later: that is no part of the run.
    last = max(entry.at for entry in entries if entry.session)
    if not has_writer:
        builder.mark_interrupted(last)
    tree = builder.ledger.sessions[run].tree
    if not tree.tally().unsettled:
        # Its door may have been closed days later, too.
        last = last_moment(tree, tree)
    wanted = {
        task: transcript
        for task, transcript in {
            **builder.transcripts,
            **builder.unsettled_transcripts(tree),
        }.items()
        if wants_transcript(tree[task].status)
    }
    return RunHistory(
        run=run,
        tree=tree,
        began=tree[tree.root].requested,
        last_at=last,
        facts=len(entries),
        digest=builder.hash.hexdigest(),
        versions=[*dict.fromkeys(builder.versions)],
        models=builder.models,
        tools=builder.tools,
        questions=builder.questions(tree),
        answer="" if builder.last_outcome is None else builder.last_outcome.output,
        transcripts=wanted,
        tracebacks=builder.tracebacks,
        critical_path=tree.critical_path(now=last),
    )


class _HistoryBuilder:
    """Folds the facts, and collects texts that the ledger forgets."""

    def __init__(self, run: SessionId) -> None:
        self.run = run
        self.ledger = Ledger()
        self.hash = hashlib.sha256()
        self.versions: list[str] = []
        self.models: dict[TaskId, str] = {}
        self.tools: dict[TaskId, int] = {}
        self.transcripts: dict[TaskId, TaskTranscript] = {}
        self.tracebacks: dict[TaskId, str] = {}
        self.last_outcome: Outcome | None = None

    def add(self, entry: events.Entry) -> None:
        event = entry.event
        fact = encode(event)
        line = f"{entry.seq}\t{entry.at!r}\t{entry.session}\t{fact.kind}\t{fact.version}\t"
        self.hash.update(line.encode())
        self.hash.update(fact.body)
        self.hash.update(b"\n")
        if isinstance(event, events.TaskSettled) and event.task in self.ledger.tasks:
            self.transcripts[event.task] = ended_transcript(self.ledger.tasks[event.task], event)
        try:
            self.ledger.fold(entry)
        except ImpossibleEventError as exc:
            problem = f"entry {entry.seq} contradicts those before it: {exc.because}"
            raise JournalError(self.run, problem) from exc
        for part in events.parts_of(event):
            self._collect(part)

    def _collect(self, event: events.Event) -> None:
        match event:
            case events.JournalOpened():
                self.versions.append(event.version)
            case events.ModelAnswered() if event.message.model:
                self.models[event.task] = event.message.model
            case events.ToolAnswered():
                self.tools[event.task] = self.tools.get(event.task, 0) + 1
            case events.TaskSettled() if event.outcome.traceback:
                self.tracebacks[event.task] = event.outcome.traceback
            case events.TurnEnded():
                self.last_outcome = event.outcome
                self.tracebacks[root_of(self.run)] = event.outcome.traceback
            case _:
                pass

    def mark_interrupted(self, at: float) -> None:
        taken_over = events.JournalOpened("read only")
        self.ledger.fold(events.Entry(self.ledger.last_seq + 1, at, SessionId(""), taken_over))

    def record(self, task: TaskId) -> TaskRecord:
        return self.ledger.tasks[task]

    def unsettled_transcripts(self, tree: Tree) -> dict[TaskId, TaskTranscript]:
        """Return the transcripts of tasks that have not settled; the root never does."""
        root = root_of(self.run)
        return {
            task: TaskTranscript(
                [*self.record(task).transcript],
                self.last_outcome if task == root else None,
                self.record(task).incidents,
            )
            for task in tree
            if task not in self.transcripts
        }

    def questions(self, tree: Tree) -> dict[TaskId, str]:
        open_questions = {
            task: [
                question for question in self.record(task).questions.values() if question.is_open
            ]
            for task in tree
            if self.record(task).questions
        }
        return {
            task: "\n".join(question.details or question.subject for question in questions)
            for task, questions in open_questions.items()
            if questions
        }
