"""The topics of a run that another process writes: its journal is read beside its writer."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import trio

from orchestrator.agents import unanswered_calls
from orchestrator.delegation import TaskId, events, root_of
from orchestrator.ports.reads import FoundSession
from orchestrator.products.server.cluster.followed_run import FollowedRun
from orchestrator.products.server.cluster.other_processes import OtherProcesses
from orchestrator.products.server.console.rows import state_of
from orchestrator.products.server.console.topics import Message, RunTopic, Topic
from orchestrator.products.server.served_journal import ServedJournal


class OtherRunTopic(RunTopic):
    """The rows of a run that another process writes."""

    def __init__(
        self,
        journal: ServedJournal,
        note_change: Callable[[], None],
        others: OtherProcesses,
        run: FollowedRun,
        after: int,
    ) -> None:
        assert run.found is not None, "a deleted run has no topic"
        super().__init__(journal, note_change, run.found, after)
        self._others = others
        self._run = run

    @property
    def found(self) -> FoundSession:
        return self._run.found or self._found

    async def open(self, stack: ExitStack) -> None:
        stack.enter_context(self._others.follow(self._run, self._receive_entries))
        await self._catch_up(self._run.seq, self._run.entries)

    def _receive_entries(self, entries: Sequence[events.Entry]) -> None:
        for entry in entries:
            if entry.session:
                self._mark(entry)
        # Without entries, the process has left: the browser opens another topic.
        self.has_ended = not entries
        self._note_change()

    def _position(self, found: FoundSession) -> Message:
        state = {**state_of(found.session, found.records), "process": self._run.writer.process}
        return {"seq": self._run.seq, "state": state}


class OtherTaskTopic(Topic):
    """The conversation of a task that another process runs: its growth, without the live text."""

    def __init__(
        self,
        journal: ServedJournal,
        note_change: Callable[[], None],
        others: OtherProcesses,
        run: FollowedRun,
        task: TaskId,
    ) -> None:
        super().__init__([journal], note_change)
        self._others = others
        self._run = run
        self._task = task
        self._has_grown = True

    async def open(self, stack: ExitStack) -> None:
        await trio.lowlevel.checkpoint()
        stack.enter_context(self._others.follow(self._run, self._receive_entries))
        self._note_change()

    def _receive_entries(self, entries: Sequence[events.Entry]) -> None:
        own = (getattr(it.event, "task", None) for it in entries)
        is_root = self._task == root_of(self._run.session)
        self._has_grown |= any(it == self._task or (it is None and is_root) for it in own)
        self.has_ended = not entries
        self._note_change()

    def take(self) -> Message | None:
        if not self._has_grown:
            return None
        self._has_grown = False
        found = self._run.found
        record = None if found is None else found.records.tasks.get(self._task)
        calls = [] if record is None else unanswered_calls(record.transcript)
        return {
            "messages": True,
            "afresh": True,
            "text": "",
            "reasoning": "",
            "notice": None,
            "calls": [it.id for it in calls],
        }
