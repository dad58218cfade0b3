"""What the journal tells of one run: its tree, and what was said.

The facts are folded once more, by the ledger itself. A task that has ended is forgotten by it but
for its place in the tree, so what was said is taken down just before.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence

import attrs

from agents import Message
from delegation import (
    ImpossibleEventError,
    Ledger,
    Outcome,
    SessionId,
    TaskId,
    TaskRecord,
    Tree,
    encode,
    root_of,
)
from delegation.events import (
    Entry,
    JournalOpened,
    ModelAnswered,
    TaskSettled,
    ToolAnswered,
    TurnEnded,
)
from delegation.tree.critical_path import CriticalPath
from orchestrator.errors import JournalError


@attrs.frozen
class TaskTranscript:
    """What one task heard and said, and how it ended."""

    messages: Sequence[Message]
    outcome: Outcome | None


@attrs.frozen(kw_only=True)
class RunHistory:
    """One run, as far as the journal tells it."""

    run: SessionId
    tree: Tree
    began: float
    last_at: float
    """When the last of its facts happened."""
    facts: int
    digest: str
    """The hash of all its facts: the same for the same run, wherever it is read."""
    versions: Sequence[str]
    """The versions of the orchestrators that opened the journal meanwhile."""
    models: Mapping[TaskId, str]
    """Who answered last in each task."""
    tools: Mapping[TaskId, int]
    """How many calls of tools were answered in each task."""
    questions: Mapping[TaskId, str]
    """What tasks wait to be allowed, in words."""
    transcripts: Mapping[TaskId, TaskTranscript]
    critical_path: CriticalPath


def read_history(
    run: SessionId,
    entries: Sequence[Entry],
    *,
    has_writer: bool,
    wants_transcript: Callable[[str], bool],
) -> RunHistory:
    """Return the story of a run.

    Args:
        run: its id.
        entries: all of its entries.
        is_written: somebody writes its journal; else nothing that it leaves running runs.
        listen: whether to take down what was said in a task that stands like this at the end.
    """
    book = _HistoryBuilder(run)
    for entry in entries:
        book.add(entry)
    last = max(entry.at for entry in entries)
    if not has_writer:
        book.mark_interrupted(last)
    tree = book.ledger.sessions[run].tree
    wanted = {
        task: said
        for task, said in {
            **book.transcripts,
            **book.unsettled_transcripts(tree),
        }.items()
        if wants_transcript(tree[task]["status"])
    }
    return RunHistory(
        run=run,
        tree=tree,
        began=tree[tree.root]["requested"],
        last_at=last,
        facts=len(entries),
        digest=book.hash.hexdigest(),
        versions=[*dict.fromkeys(book.versions)],
        models=book.models,
        tools=book.tools,
        questions=book.questions(tree),
        transcripts=wanted,
        critical_path=tree.critical_path(now=last),
    )


class _HistoryBuilder:
    """Taken while the facts are folded."""

    def __init__(self, run: SessionId) -> None:
        self.run = run
        self.ledger = Ledger()
        self.hash = hashlib.sha256()
        self.versions: list[str] = []
        self.models: dict[TaskId, str] = {}
        self.tools: dict[TaskId, int] = {}
        self.transcripts: dict[TaskId, TaskTranscript] = {}
        self.last_outcome: Outcome | None = None

    def add(self, entry: Entry) -> None:
        event = entry.event
        fact = encode(event)
        line = (
            f"{entry.seq}\t{entry.at!r}\t{entry.session}\t{fact.kind}\t{fact.version}\t"
        )
        self.hash.update(line.encode())
        self.hash.update(fact.body)
        self.hash.update(b"\n")
        if isinstance(event, TaskSettled) and event.task in self.ledger.tasks:
            messages = [*self.ledger.tasks[event.task].transcript]
            self.transcripts[event.task] = TaskTranscript(messages, event.outcome)
        try:
            self.ledger.fold(entry)
        except ImpossibleEventError as exc:
            problem = f"entry {entry.seq} contradicts those before it: {exc.because}"
            raise JournalError(self.run, problem) from exc
        match event:
            case JournalOpened():
                self.versions.append(event.version)
            case ModelAnswered() if event.message.model:
                self.models[event.task] = event.message.model
            case ToolAnswered():
                self.tools[event.task] = self.tools.get(event.task, 0) + 1
            case TurnEnded():
                self.last_outcome = event.outcome
            case _:
                pass

    def mark_interrupted(self, at: float) -> None:
        nobody = JournalOpened("read only")
        self.ledger.fold(Entry(self.ledger.last_seq + 1, at, SessionId(""), nobody))

    def record(self, task: TaskId) -> TaskRecord:
        return self.ledger.tasks[task]

    def unsettled_transcripts(self, tree: Tree) -> dict[TaskId, TaskTranscript]:
        """Return what was said in those that have not ended; a session never does."""
        root = root_of(self.run)
        return {
            task: TaskTranscript(
                [*self.record(task).transcript],
                self.last_outcome if task == root else None,
            )
            for task in tree.graph
            if task not in self.transcripts
        }

    def questions(self, tree: Tree) -> dict[TaskId, str]:
        open_asks = {
            task: [it for it in self.record(task).questions.values() if it.is_open]
            for task in tree.graph
            if self.record(task).questions
        }
        return {
            task: "\n".join(ask.details or ask.subject for ask in asks)
            for task, asks in open_asks.items()
            if asks
        }
