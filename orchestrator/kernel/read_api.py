"""The read API: sessions, tasks, entries and live events of an open orchestrator.

The server, the command line and the control socket read through `Orchestrator.read`. Its methods
change no session. An `async` method waits until the facts that it shows are durable, so a crash
takes no result back.

There are two subscriptions: to facts (`subscribe`, and on top of it `queue` and `feed`), and to
model events (`subscribe_model_events`, and on top of it `open_model_events`).
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from orchestrator.agents import Message, ToolCall, unanswered_calls
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.delegation import Account, SessionId, SessionRecord, TaskId, TaskRecord, Tree
from orchestrator.delegation.amounts import Amounts
from orchestrator.delegation.events import Entry, Event, TaskRequested
from orchestrator.delegation.events.approvals import ApprovalQuestion
from orchestrator.delegation.events.incidents import Incident
from orchestrator.kernel.engine.model_events import (
    ModelEventSubscribers,
    ReceiveModelEvent,
    TaskModelEvent,
)
from orchestrator.kernel.engine.questions import open_questions
from orchestrator.kernel.errors import UnknownIdError
from orchestrator.kernel.journal.bookkeeper import Bookkeeper
from orchestrator.kernel.journal.fact_feed import FactFeed, FactFeeds
from orchestrator.kernel.journal.records import Records
from orchestrator.kernel.journal.session_summary import SessionSummary
from orchestrator.kernel.journal.subscriptions import FactQueue, ReceiveFact

if TYPE_CHECKING:
    from orchestrator.kernel.engine.common_accounts import CommonAccounts
    from orchestrator.kernel.engine.workload import Workload

ID_PATTERN: Final = re.compile(r"[a-z]+_[0-9a-z_-]{1,64}")
"""The form of our ids; the journal is not searched for anything else."""


class FoundSession(msgspec.Struct, frozen=True):
    """A session, and the records that it is among: the orchestrator's, or its own."""

    session: SessionRecord
    records: Records


class FoundTask(msgspec.Struct, frozen=True):
    """A task, its session, and the records that both are among."""

    task: TaskRecord
    session: SessionRecord
    records: Records


class Conversation(msgspec.Struct, frozen=True):
    """The messages of a task, and the events of its model calls."""

    messages: Sequence[Message]
    incidents: Sequence[Incident]


class ReadApi:
    """Reads the sessions of one orchestrator, and subscribes to their events."""

    def __init__(
        self,
        book: Bookkeeper,
        model_events: ModelEventSubscribers,
        feeds: FactFeeds,
        workload: "Callable[[], Workload | None]",
        common: "Callable[[], CommonAccounts | None]",
    ) -> None:
        self._book = book
        self._common = common
        self._workload = workload
        self._model_events = model_events
        self.feeds = feeds

    # The current state: in memory, durable or not.

    @property
    def last_seq(self) -> int:
        """The number of the last fact that was posted."""
        return self._book.records.last_seq

    @property
    def durable_seq(self) -> int:
        """The number of a fact that survives a crash, as all before it do; later ones may, too."""
        return self._book.durable_seq

    @property
    def records(self) -> Records:
        """The sessions and tasks in memory: all but the sessions that are evicted."""
        return self._book.records

    @property
    def session_ids(self) -> Collection[SessionId]:
        """The ids of all sessions in the journal, oldest first."""
        return self._book.records.all_sessions.keys()

    @property
    def journal_file(self) -> Path | None:
        """The file of the journal, with the control socket beside it; None if it is not a file."""
        return self._book.journal_file

    @property
    def is_stopping(self) -> bool:
        """Whether the orchestrator begins nothing new."""
        return self._book.admission.is_stopping

    @property
    def is_closed(self) -> bool:
        """Whether no more facts will come."""
        return self._book.closed

    @property
    def running_count(self) -> int:
        """The number of tasks that run now, the turns of sessions included."""
        from orchestrator.kernel.engine.shutdown import count_running

        return count_running(self._book)

    @property
    def has_running_tasks(self) -> bool:
        """Whether a task runs now."""
        from orchestrator.kernel.engine.shutdown import has_running_tasks

        return has_running_tasks(self._book)

    @property
    def active_sessions(self) -> Collection[SessionId]:
        """The sessions in memory that are not idle."""
        return self._book.cache.active

    @property
    def untaken_sessions(self) -> Collection[SessionId]:
        """The evicted sessions with a reply that no door has taken."""
        return self._book.cache.untaken

    @property
    def redactor(self) -> Redactor:
        """Removes known secrets from other text than facts, which are redacted when posted."""
        return self._book.redactor

    def tree(self, session: str) -> Tree:
        """Return the tree of a session that is in memory; it grows while the session runs.

        Raises:
            UnknownIdError: there is no such session, or it is in the journal only.
        """
        records = self._book.records
        if records.is_evicted(SessionId(session)):
            raise UnknownIdError(
                f"run {session!r} is not in memory any more: await read_tree(...) reads it"
            )
        if session not in records.sessions:
            raise UnknownIdError(f"there is no run {session!r}")
        return records.sessions[SessionId(session)].tree

    def calls(self, task: str) -> list[ToolCall]:
        """Return the tool calls of a task in memory that are not answered yet."""
        record = self._book.records.tasks.get(TaskId(task))
        return [] if record is None else unanswered_calls(record.transcript)

    def awaited_place(self, task: str) -> str:
        """Return the place at which a task in memory waits for a worker; empty if it does not."""
        record = self._book.records.tasks.get(TaskId(task))
        return "" if record is None else record.awaits_worker

    def awaited_provider(self, task: str) -> str:
        """Return the place of a task's model call in the queue of its provider, for people.

        It is empty if the task does not wait.
        """
        workload = self._workload()
        return "" if workload is None else workload.wait_text(TaskId(task))

    def awaited_providers(self) -> dict[TaskId, str]:
        """Return the same of all tasks that wait."""
        workload = self._workload()
        return {} if workload is None else workload.wait_texts()

    def used_amounts(self, account: Account) -> Amounts:
        """Return the usage of an account, in all journals that share it as far as known."""
        common = self._common() if account.is_common else None
        return account.used if common is None else common.total_used(account)

    def waiting_calls(self) -> Counter[str]:
        """Return how many calls wait for a worker, by place."""
        return Counter(
            placed.place
            for task in self._book.records.tasks.values()
            for placed in task.placed.values()
            if not placed.execution and task.awaits_worker
        )

    def has_untaken_reply(self, session: SessionId) -> bool:
        """Return whether a session has a reply that no door has taken, in memory or not."""
        record = self._book.records.sessions.get(session)
        if record is None:
            return session in self._book.cache.untaken
        return bool(record.undelivered)

    def now(self) -> float:
        """Return the time of the orchestrator, which dates its facts."""
        return self._book.clock()

    def open_questions(self, session: SessionId | None = None) -> list[ApprovalQuestion]:
        """Return the approvals that wait for a verdict, oldest first."""
        return open_questions(self._book, session)

    # The durable state: from memory, or read back from the journal.

    async def session(self, session: str) -> FoundSession:
        """Return a session. An evicted one is read back for this call alone.

        Raises:
            UnknownIdError: there is no such session, or it was deleted.
        """
        id_ = SessionId(session)
        records = await self._book.cache.read_evicted(id_) or self._book.records
        record = records.sessions.get(id_)
        if record is None or record.deleted:
            raise UnknownIdError(f"there is no run {session!r}")
        return FoundSession(record, records)

    async def task(self, task: str) -> FoundTask:
        """Return a task, also one of an evicted session.

        Raises:
            UnknownIdError: there is no such task.
        """
        id_ = TaskId(task)
        session = await self.session_of(task)
        if session is not None:
            found = await self.session(session)
            record = found.records.tasks.get(id_)
            if record is not None:
                return FoundTask(record, found.session, found.records)
        raise UnknownIdError(f"there is no task {task!r}")

    async def session_of(
        self, task: str, *, sees: Callable[[SessionId], bool] = lambda _: True
    ) -> SessionId | None:
        """Return the session of a task; a session is its own root task.

        Args:
            task: the id of the task.
            sees: tells whether the caller sees a session. A task in another one takes as long as
                one that does not exist.
        """
        await self._book.wait_durable()
        records = self._book.records
        record = records.tasks.get(TaskId(task))
        if record is not None and sees(record.session):
            return record.session
        if SessionId(task) in records.all_sessions and sees(SessionId(task)):
            return SessionId(task)
        for entry in await self.entries_naming(TaskRequested, task):
            event = entry.event
            is_it = isinstance(event, TaskRequested) and event.request.id == task
            if is_it and sees(entry.session):
                return entry.session
        return None

    async def last_time(self, session: SessionId) -> float | None:
        """Return the time of the last fact of a session; None without a fact."""
        return await self._book.read_last_time(session)

    async def owners(self) -> Mapping[SessionId, str]:
        """Return the owners of all sessions that have one, oldest first."""
        return await self._book.read_owners()

    async def read_tree(self, session: str) -> Tree:
        """Return the tree of a session, from memory or from the journal."""
        id_ = SessionId(session)
        past = await self._book.cache.read_evicted(id_)
        return self.tree(session) if past is None else past.sessions[id_].tree

    async def file_of_large_session(self, session: str, *, facts: int) -> Path | None:
        """Return the journal's file if a session is at rest and has more facts than this.

        To read it here would keep every other task waiting; None if it would not.
        """
        return await self._book.file_of_large_session(SessionId(session), facts=facts)

    async def summary(self, session: SessionId) -> SessionSummary | None:
        """Return the stored summary of an evicted session; None if it has none, or is in memory."""
        return await self._book.read_summary(session)

    async def entries(self, session: str, *, after: int = 0) -> Sequence[Entry]:
        """Return the entries of a session after a number, and those of no session among them."""
        return await self._book.read_entries(SessionId(session), after=after)

    async def entries_naming(self, kind: type[Event], id_: str) -> Sequence[Entry]:
        """Return the entries of one kind, of all sessions, that contain an id."""
        if not ID_PATTERN.fullmatch(id_):
            await trio.lowlevel.checkpoint()
            return ()
        return await self._book.read_naming(kind, id_)

    async def transcript(self, task: str) -> Sequence[Message]:
        """Return the messages of a task; for a settled task they are read from the journal."""
        return (await self.conversation(task)).messages

    async def conversation(self, task: str) -> Conversation:
        """Return the messages of a task, and the events of its model calls."""
        found = await self.task(task)
        if found.task.outcome is None:
            return Conversation(found.task.transcript, found.task.incidents)
        # Imported late: running tasks do not need it.
        from orchestrator.kernel.journal.run_history import read_history
        from orchestrator.kernel.journal.task_history import read_task_transcript

        session, id_ = found.session.id, found.task.id
        own = read_task_transcript(session, id_, await self._book.read_task_entries(session, id_))
        if own is not None:
            return Conversation(own.messages, own.incidents)
        entries = await self.entries(session)
        # It folds the session once more, which takes seconds for a large one.
        history = await trio.to_thread.run_sync(
            lambda: read_history(session, entries, has_writer=True, wants_transcript=lambda _: True)
        )
        read = history.transcripts[TaskId(task)]
        return Conversation(read.messages, read.incidents)

    # Waiting for a change. The caller looks at the state again after each.

    async def wait_posted(self, *, after: int) -> int:
        """Wait until the journal has more entries than this; return the last number."""
        await self._book.wakeups.wait_posted(after=after)
        return self.last_seq

    async def wait_durable(self, *, after: int = 0) -> int:
        """Wait until more entries than this survive a crash; return the last of them."""
        seq = await self.wait_posted(after=after)
        await self._book.wait_durable()
        return seq

    async def wait_committed(self, seq: int) -> None:
        """Wait until a posted fact survives a crash; no commit begins for this reader alone."""
        await self._book.wait_committed(seq)

    async def wait_changed(self) -> None:
        """Wait until any fact is posted, or the orchestrator stops or closes."""
        await self._book.wakeups.wait_changed()

    async def wait_session_changed(self, session: str) -> None:
        """Wait until a fact of a session is posted, or the orchestrator stops or closes."""
        await self._book.wakeups.wait_session_changed(SessionId(session))

    # Subscriptions.

    def subscribe(
        self,
        receive: ReceiveFact,
        *,
        session: str | None = None,
        kinds: Collection[type[Event]] = (),
    ) -> AbstractContextManager[None]:
        """Call `receive` with every fact when it is posted, as long as the block lasts.

        Args:
            receive: takes a fact and its stored form, and neither waits nor posts.
            session: the only session whose facts are received; by default all sessions.
            kinds: the only facts that are received, of all sessions; by default all.
        """
        if kinds:
            return self._book.subscribers.subscribe_kinds(receive, kinds)
        id_ = None if session is None else SessionId(session)
        return self._book.subscribers.subscribe(receive, session=id_)

    def watch_pruning(self, note_pruned: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `note_pruned` when sessions were deleted for good, as long as the block lasts."""
        return self._book.watch_pruning(note_pruned)

    @contextmanager
    def queue(self, *, session: str | None = None) -> Generator[FactQueue]:
        """Queue every fact when it is posted, as long as the block lasts.

        `facts.take(until=await read.wait_durable())` takes durable facts only.
        """
        facts = FactQueue()
        with self.subscribe(facts.put, session=session):
            yield facts

    def feed(self, session: str, *, after: int = 0) -> AbstractContextManager[FactFeed]:
        """Read the durable facts of a session, past and present, as long as the block lasts.

        Args:
            session: whose facts.
            after: the number of the last fact that the reader has.
        """
        return self.feeds.open(SessionId(session), after=after)

    def subscribe_model_events(self, receive: ReceiveModelEvent) -> AbstractContextManager[None]:
        """Call `receive` with every event of a model that answers, as long as the block lasts.

        Args:
            receive: takes a task and an event, and does not wait.
        """
        return self._model_events.subscribe(receive)

    def open_model_events(
        self,
    ) -> AbstractContextManager[trio.MemoryReceiveChannel[TaskModelEvent]]:
        """Receive the events of models through a channel, as long as the block lasts.

        A reader that falls behind misses events, and each event says how many; no model waits.
        """
        return self._model_events.open_channel()
