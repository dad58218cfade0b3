"""The topics that a page can watch: each receives facts, and returns its changes when asked.

A fact marks the values that it changes, in constant time; a message has their present state. So a
thousand facts in a second make no more messages than ten, and the last change is never lost. A
message is sent when everything in it is durable.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import attrs
import msgspec
import trio
from msgspec.structs import asdict

from orchestrator.agents import Compacted, ModelEvent, Queued, Retrying, Switched
from orchestrator.delegation import Encoded, SessionId, SessionRecord, TaskId, events, root_of
from orchestrator.ports.reads import FoundSession, ReadApi
from orchestrator.products.server.api.approvals import approval_bodies, other_approvals
from orchestrator.products.server.api.bodies import RunSummary, run_summary, summary_of
from orchestrator.products.server.cluster.other_processes import OtherProcesses, OtherRun
from orchestrator.products.server.console.rows import changing_part, fixed_part, state_of
from orchestrator.products.server.keys.key import DEFAULT, Key
from orchestrator.products.server.served_journal import ServedJournal

BATCH: Final = 1_000
"""The most rows in a message."""
MOST_READ: Final = 5_000
"""A page that missed more facts than this gets all rows again."""
MOST_RUNS: Final = 50
"""The most runs in a message about the list of runs."""

Message = dict[str, Any]


class Topic(ABC):
    """A subject that a page watches."""

    def __init__(self, journals: Sequence[ServedJournal], note_change: Callable[[], None]) -> None:
        self.journals = journals
        """The journals whose facts it shows."""
        self._note_change = note_change
        self.has_ended = False
        """Whether it has no more messages, and the browser has to open another topic."""

    @property
    def journal(self) -> ServedJournal:
        """The journal of the subject."""
        return self.journals[0]

    async def wait_durable(self) -> None:
        """Wait until everything taken so far survives a crash."""
        await trio.lowlevel.checkpoint()
        for journal in self.journals:
            await journal.read.wait_durable()

    @abstractmethod
    async def open(self, stack: ExitStack) -> None:
        """Subscribe to facts, until the stack is closed."""

    @abstractmethod
    def take(self) -> Message | None:
        """Return the changes since the last call; None if there are none."""


class RunTopic(Topic):
    """The rows of a run. After a message, the page has the tree at the message's fact number."""

    def __init__(
        self,
        journal: ServedJournal,
        note_change: Callable[[], None],
        found: FoundSession,
        after: int,
    ) -> None:
        super().__init__([journal], note_change)
        self._found = found
        self._after = after
        self._is_reset = False
        self._added: dict[TaskId, None] = {}
        self._changed: dict[TaskId, None] = {}

    @property
    def found(self) -> FoundSession:
        # A session at rest may be evicted; loading it again makes another record.
        records = self.journal.read.records
        session = records.sessions.get(self._found.session.id)
        if session is not None:
            self._found = FoundSession(session, records)
        return self._found

    async def open(self, stack: ExitStack) -> None:
        read, id_ = self.journal.read, self._found.session.id
        stack.enter_context(read.subscribe(self._receive, session=id_))
        await self._catch_up(read.last_seq, partial(read.entries, id_))

    async def _catch_up(
        self, last: int, read: Callable[..., Awaitable[Sequence[events.Entry]]]
    ) -> None:
        """Mark the changes that the page missed, or all rows."""
        id_ = self._found.session.id
        if not 0 < self._after <= last:
            await trio.lowlevel.checkpoint()
            self._reset()
            return
        missed = await read(after=self._after)
        if len(missed) > MOST_READ or any(
            isinstance(it.event, events.JournalOpened) for it in missed
        ):
            self._reset()
            return
        for entry in missed:
            if entry.session:
                self._mark(entry)
        # The page gets a message even without changes, and learns that it has everything.
        self._changed[root_of(id_)] = None
        self._note_change()

    def _reset(self) -> None:
        self._is_reset = True
        self._added = dict.fromkeys(self.found.session.tree)
        self._changed.clear()
        self._note_change()

    def _receive(self, entry: events.Entry, _encoded: Encoded) -> None:
        self._mark(entry)
        self._note_change()

    def _mark(self, entry: events.Entry) -> None:
        event = entry.event
        # The status of a session depends on all its tasks.
        self._changed[root_of(entry.session)] = None
        if isinstance(event, events.TaskRequested):
            self._added[event.request.id] = None
        elif (task := getattr(event, "task", None)) is not None:
            self._changed[task] = None

    def take(self) -> Message | None:
        if not (self._added or self._changed):
            return None
        session, records = self.found.session, self.found.records
        tree = session.tree
        added = [*self._added][:BATCH]
        message: Message = {
            "rows": [[it, *changing_part(tree, it), *fixed_part(tree, records, it)] for it in added]
        }
        if self._is_reset:
            self._is_reset = False
            message["reset"] = True
        for task in added:
            del self._added[task]
            self._changed.pop(task, None)
        if self._added:
            message["more"] = True
            return message
        changed = [*self._changed][:BATCH]
        message["rows"] += [[it, *changing_part(tree, it)] for it in changed]
        for task in changed:
            del self._changed[task]
        if self._changed:
            message["more"] = True
            return message
        return message | {
            "at": self.journal.read.now(),
            "working": _is_working(session),
            "turns": tree.turns,
            "awaited": tree.awaited,
            "to_come": tree.to_come,
            "budgets": _budgets(self.journal.read, session),
            **self._position(FoundSession(session, records)),
        }

    def _position(self, found: FoundSession) -> Message:
        """Return the number of the last fact, and the state of the run."""
        state = state_of(found.session, found.records)
        return {"seq": self.journal.read.last_seq, "state": state}


class RestingRunTopic(Topic):
    """The rows of a run at rest, read by another process or thread and sent all at once."""

    def __init__(
        self,
        journal: ServedJournal,
        note_change: Callable[[], None],
        run: SessionId,
        message: bytes,
    ) -> None:
        super().__init__([journal], note_change)
        self._run = run
        self._message: Message | None = {
            **msgspec.json.decode(message, type=dict[str, msgspec.Raw]),
            "seq": journal.read.last_seq,
        }

    async def open(self, stack: ExitStack) -> None:
        await trio.lowlevel.checkpoint()
        stack.enter_context(self.journal.read.subscribe(self._receive, session=self._run))
        self._note_change()

    def _receive(self, _entry: events.Entry, _encoded: Encoded) -> None:
        self.has_ended = True
        self._note_change()

    def take(self) -> Message | None:
        message, self._message = self._message, None
        return message


def _is_working(session: SessionRecord) -> bool:
    """Return whether a task of a run is working."""
    is_in_turn = session.turn is not None and not session.awaits_resume
    return is_in_turn or bool(session.unsettled_detached)


def _budgets(read: ReadApi, session: SessionRecord) -> list[Message]:
    """Return the limits and the use of each budget around the run."""
    accounts = {it.id: it for it in (*session.accounts, *session.root.accounts)}
    return [
        {
            "limits": attrs.asdict(account.budget),
            "used": msgspec.to_builtins(read.used_amounts(account)),
            "started": account.started_at,
        }
        for account in accounts.values()
    ]


class TaskTopic(Topic):
    """The conversation of a task: its growth, and the text that its model is writing."""

    def __init__(
        self,
        journal: ServedJournal,
        note_change: Callable[[], None],
        session: SessionId,
        task: TaskId,
    ) -> None:
        super().__init__([journal], note_change)
        self._session = session
        self._task = task
        self._has_grown = True
        self._is_afresh = True
        self._pieces: list[str] = []
        self._thoughts: list[str] = []
        self._notice: Message | None = None

    async def open(self, stack: ExitStack) -> None:
        await trio.lowlevel.checkpoint()
        live_text, read = self.journal.live_text, self.journal.read
        stack.enter_context(read.subscribe(self._receive, session=self._session))
        stack.enter_context(live_text.subscribe(self._task, self._receive_text))
        stack.enter_context(live_text.subscribe_reasoning(self._task, self._receive_thought))
        stack.enter_context(read.subscribe_model_events(self._receive_model_event))
        self._pieces = [live_text.text_so_far(self._task)]
        self._thoughts = [live_text.reasoning_so_far(self._task)]
        if read.awaited_provider(self._task):
            self._notice = {"kind": "queued"}
        self._note_change()

    def _receive(self, entry: events.Entry, _encoded: Encoded) -> None:
        event = entry.event
        task = getattr(event, "task", None)
        if task != self._task and (task is not None or self._task != root_of(self._session)):
            return
        # A closed session has no more messages, and may be deleted by now.
        if isinstance(event, events.TaskRequested | events.SessionClosed | events.DoorClosed):
            return
        if isinstance(
            event, events.ModelAnswered | events.ModelFailed | events.TaskSettled | events.TurnEnded
        ):
            self._begin_text()
        self._has_grown = True
        self._note_change()

    def _begin_text(self) -> None:
        self._pieces.clear()
        self._thoughts.clear()
        self._notice = None
        self._is_afresh = True

    def _receive_text(self, text: str | None) -> None:
        if text is None:
            self._begin_text()
        else:
            self._pieces.append(text)
        self._note_change()

    def _receive_thought(self, text: str) -> None:
        self._thoughts.append(text)
        self._note_change()

    def _receive_model_event(self, task: TaskId, event: ModelEvent) -> None:
        if task != self._task:
            return
        match event:
            case Retrying(kind=kind, seconds=seconds):
                why = kind.value.replace("_", " ")
                self._notice = {"kind": "retrying", "why": why, "seconds": seconds}
            case Switched(kind=kind, model=model):
                why = kind.value.replace("_", " ")
                self._notice = {"kind": "switched", "why": why, "model": model}
            case Compacted():
                self._notice = {"kind": "compacted", **asdict(event)}
            case Queued(waiting):
                self._notice = {"kind": "queued" if waiting else ""}
            case _:
                return
        self._note_change()

    def take(self) -> Message | None:
        news = (self._pieces, self._thoughts, self._notice)
        if not (self._has_grown or self._is_afresh or any(news)):
            return None
        notice = self._notice
        if notice is not None and notice["kind"] == "queued":
            notice["text"] = self.journal.read.awaited_provider(self._task)
        message: Message = {
            "messages": self._has_grown,
            "afresh": self._is_afresh,
            "text": "".join(self._pieces),
            "reasoning": "".join(self._thoughts),
            # About the call under way; the transcript has earlier calls.
            "notice": notice,
            "calls": [it.id for it in self.journal.read.calls(self._task)],
        }
        self._has_grown = self._is_afresh = False
        self._pieces, self._thoughts, self._notice = [], [], None
        return message


class KeyTopic(Topic):
    """A subject in all journals, as far as a key sees them."""

    def __init__(
        self,
        journals: Sequence[ServedJournal],
        note_change: Callable[[], None],
        key: Key,
        others: OtherProcesses | None = None,
    ) -> None:
        super().__init__(journals, note_change)
        self._key = key
        self._others = others


class RunsTopic(KeyTopic):
    """The runs that have changed, in the form of the list of runs."""

    def __init__(
        self,
        journals: Sequence[ServedJournal],
        note_change: Callable[[], None],
        key: Key,
        others: OtherProcesses | None = None,
    ) -> None:
        super().__init__(journals, note_change, key, others)
        self._other_rows: dict[str, RunSummary] = {}
        self._changed: dict[SessionId, None] = {}
        self._deleted: dict[SessionId, None] = {}
        self._is_unknown = True
        """Whether unknown runs have changed, so that the page reads its list again."""

    async def open(self, stack: ExitStack) -> None:
        await trio.lowlevel.checkpoint()
        for journal in self.journals:
            stack.enter_context(journal.read.subscribe(self._receive))
            stack.enter_context(journal.read.watch_pruning(self._note_pruned))
        if self._others is not None:
            stack.enter_context(self._others.watch(self._receive_rows))
        self._note_change()

    def _receive_rows(self, rows: Sequence[OtherRun]) -> None:
        """Note the runs of other processes that have changed."""
        for it in rows:
            summary = it.summary
            if summary.kind.is_run and self._key.may_see(summary.owner or DEFAULT):
                self._other_rows[summary.id] = run_summary(summary, it.process)
                self._note_change()

    def _receive(self, entry: events.Entry, _encoded: Encoded) -> None:
        if not entry.session:
            return
        if isinstance(entry.event, events.SessionClosed) and entry.event.deleted:
            self._deleted[entry.session] = None
            self._changed.pop(entry.session, None)
        else:
            self._changed[entry.session] = None
        self._note_change()

    def _note_pruned(self) -> None:
        self._is_unknown = True
        self._note_change()

    def take(self) -> Message | None:
        runs: list[RunSummary] = [*self._other_rows.values()]
        self._other_rows.clear()
        changed = [*self._changed][:MOST_RUNS]
        for id_ in changed:
            del self._changed[id_]
            journal = self._journal_of(id_)
            if journal is None:
                continue
            records = journal.read.records
            session = records.sessions.get(id_)
            if session is None:
                # A large run that has ended may already be out of memory.
                self._is_unknown = True
            elif not session.deleted and session.kind.is_run:
                runs.append(summary_of(session, records))
        deleted = [it for it in self._deleted if self._journal_of(it) is not None]
        self._deleted.clear()
        is_unknown, self._is_unknown = self._is_unknown, False
        if self._changed:
            self._note_change()
        if not (runs or deleted or is_unknown):
            return None
        # Earlier changes are not sent: the page reads its list now.
        return {"begins": is_unknown, "runs": runs, "deleted": deleted}

    def _journal_of(self, session: SessionId) -> ServedJournal | None:
        """Return the journal of a session that the key sees."""
        for journal in self.journals:
            if journal.owners.sees(self._key, session):
                return journal
        return None


class ApprovalsTopic(KeyTopic):
    """All approvals that wait for a verdict."""

    _may_have_changed = True
    _sent: list[str] | None = None

    async def open(self, stack: ExitStack) -> None:
        await trio.lowlevel.checkpoint()
        kinds = (
            *(events.ApprovalAsked, events.ApprovalAnswered, events.ToolAnswered),
            *(events.TaskSettled, events.TurnEnded, events.SessionClosed),
        )
        for journal in self.journals:
            stack.enter_context(journal.read.subscribe(self._receive, kinds=kinds))
        if self._others is not None:
            stack.enter_context(self._others.watch(self._receive_rows))
        self._note_change()

    def _receive_rows(self, _rows: Sequence[OtherRun]) -> None:
        self._may_have_changed = True
        self._note_change()

    def _receive(self, _entry: events.Entry, _encoded: Encoded) -> None:
        self._may_have_changed = True
        self._note_change()

    def take(self) -> Message | None:
        if not self._may_have_changed:
            return None
        self._may_have_changed = False
        bodies = [it for journal in self.journals for it in approval_bodies(journal, self._key)]
        if self._others is not None:
            bodies += other_approvals(self._others, self._key)
        ids = [it.id for it in bodies]
        if ids == self._sent:
            return None
        self._sent = ids
        return {"approvals": bodies}


class JobsTopic(KeyTopic):
    """Tells that jobs have changed: the page reads them again, also from other servers."""

    _has_changed = False

    async def open(self, stack: ExitStack) -> None:
        await trio.lowlevel.checkpoint()
        kinds = (events.JobSet, events.JobPaused, events.JobRemoved, events.JobOccurred)
        for journal in self.journals:
            stack.enter_context(journal.read.subscribe(self._receive, kinds=kinds))

    def _receive(self, entry: events.Entry, _encoded: Encoded) -> None:
        if any(it.owners.sees(self._key, entry.session) for it in self.journals):
            self._has_changed = True
            self._note_change()

    def take(self) -> Message | None:
        if not self._has_changed:
            return None
        self._has_changed = False
        return {"jobs": True}
