"""Durable runs: a call finds the run that a crash interrupted by its agent and its goal.

The program starts again and makes the same call, and the run continues from its last step, like the
children of a pipeline. So the id of such a run starts with a digest of its agent and goal. The rest
of the id only tells equal runs apart: any of them may be deleted, and any process may start one.

The journal that a process writes is its own: no other process takes an interrupted run from it.
"""

import hashlib
import re
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, NewType, TypeAlias

import trio

from orchestrator.agents import Agent, Part, UserMessage
from orchestrator.delegation import Ledger, SessionId
from orchestrator.delegation.events import Entry, JournalOpened
from orchestrator.kernel.doors import one_shot
from orchestrator.kernel.doors.inbound import goal_message
from orchestrator.kernel.errors import NotInterruptedError, UnknownIdError
from orchestrator.kernel.journal.journal import fold_entries
from orchestrator.kernel.journal.journals import Journals, ListedSession
from orchestrator.kernel.journal.store import JournalStore
from orchestrator.kernel.sessions import Sessions

LOOKED_AT: Final = 16
"""The number of newest equal runs to search for one that an earlier crash interrupted; each is read
whole. Runs that the last crash interrupted are known without a search.
"""
DurableKey = NewType("DurableKey", str)
"""How the ids of equal runs begin."""
EarlierRuns: TypeAlias = dict[str, dict[SessionId, None]]
"""The runs of earlier processes that may be interrupted, by their keys, oldest first."""
_ID: Final = re.compile(r"(r_[0-9a-f]{16})[0-9a-f]{8}")


def durable_key(agent: Agent[Any], message: UserMessage) -> DurableKey:
    """Return how the ids of the runs of an agent on a goal begin."""
    digest = hashlib.blake2b(digest_size=8)
    for part in (agent.name, message.text, *_texts(message.parts)):
        # With its length: no two lists of texts are the same bytes.
        data = part.encode(errors="surrogatepass")
        digest.update(b"%d:%b" % (len(data), data))
    for it in message.parts:
        digest.update(b"%d:%b" % (len(it.data), it.data))
    return DurableKey(f"r_{digest.hexdigest()}")


def goal_key(agent: Agent[Any], goal: Any) -> DurableKey:
    """Return how the ids of the runs of an agent on a goal without files begin."""
    return durable_key(agent, goal_message(agent, goal))


class DurableRuns:
    """The durable runs of one orchestrator: knows which earlier ones may be interrupted."""

    def __init__(self, sessions: Sessions, journals: Journals | None, earlier: EarlierRuns) -> None:
        self._sessions = sessions
        self._others = None if journals is None else OtherJournals(journals)
        self._earlier = earlier

    async def run(
        self, agent: Agent[Any], goal: Any, parts: tuple[Part, ...], *, attended: bool, deps: object
    ) -> one_shot.Run[Any]:
        """Continue an interrupted run of the same agent and goal, or start one.

        Raise `UnknownIdError` if an interrupted one is in a journal that no process writes.
        """
        sessions = self._sessions
        request = await one_shot.inbound_run(
            sessions, agent, goal, parts, attended=attended, deps=deps
        )
        assert request.message is not None, "a run has a goal"
        key = durable_key(agent, request.message)
        known, earlier = sessions.read.session_ids, self._earlier.get(key, {})
        for run in list(earlier):
            try:
                return await one_shot.resume_once(sessions, agent, run, deps=deps)
            except NotInterruptedError:
                earlier.pop(run, None)
            except UnknownIdError:
                if run in known:
                    raise
                earlier.pop(run, None)  # it was deleted
        if self._others is not None:
            await self._others.refuse_interrupted(key)
        session = one_shot.open_one_turn(sessions, request, self._new_id(key))
        end = await one_shot.take_only_turn(sessions, session)
        return one_shot.ended_run(sessions, agent, session, end.outcome, end.error)

    def _new_id(self, key: DurableKey) -> SessionId:
        while True:
            id_ = SessionId(f"{key}{self._sessions.new_session_id()[-8:]}")
            if id_ not in self._sessions.read.session_ids:
                return id_


class OtherJournals:
    """The journals without a writing process that may have an equal, interrupted run."""

    def __init__(self, journals: Journals) -> None:
        self._journals = journals
        self._ended: set[SessionId] = set()
        """The runs that have ended, which is for ever: they are read once."""

    async def refuse_interrupted(self, key: DurableKey) -> None:
        """Refuse to begin a run if an equal one waits in a journal that no process writes."""
        found = await trio.to_thread.run_sync(self._find_beside, key)
        if found is not None:
            raise UnknownIdError(
                f"the interrupted run {found.id!r} of the same agent and goal is in another"
                f" journal, {found.journal}: open_orchestrator(..., session={found.id!r})"
                " opens that journal, and `run` continues the run"
            )

    def _find_beside(self, key: DurableKey) -> ListedSession | None:
        # Most often the journal of this process is the only one.
        return self.find_interrupted(key) if len(self._journals.names()) > 1 else None

    def find_interrupted(self, key: DurableKey) -> ListedSession | None:
        """Return an interrupted run, if any; raise `JournalError` if no journal can tell."""
        for name, runs in self._journals.waiting().items():
            for run in runs:
                if run.startswith(key) and self._is_interrupted(name, run):
                    return ListedSession(name, run, 0)
        # A process that has opened its journal since the crash, and did not ask for it, has left
        # it at rest.
        found = self._journals.sessions(prefix=key)
        unread: dict[str, list[ListedSession]] = {}
        for it in found.sessions:
            if it.id not in self._ended:
                unread.setdefault(it.journal, []).append(it)
        for listed in unread.values():
            for it in listed[-LOOKED_AT:]:
                if self._is_interrupted(it.journal, it.id):
                    return it
        for error in found.unreadable.values():
            raise error
        return None

    def _is_interrupted(self, journal: str, run: SessionId) -> bool:
        store = self._journals.store(journal)
        if store.writer() is not None:
            return False
        is_interrupted = _reads_interrupted(store, run)
        if store.writer() is not None:
            return False  # a process has taken it meanwhile
        if not is_interrupted:
            self._ended.add(run)
        return is_interrupted


def find_earlier(ledger: Ledger) -> EarlierRuns:
    """Return the durable runs that may be interrupted, before this process changes any.

    Args:
        ledger: the ledger of the opened journal; the runs that the last crash interrupted are in
            memory.
    """
    earlier: EarlierRuns = {}
    unread: dict[str, deque[SessionId]] = {}
    for run in ledger.all_sessions:
        if (found := _ID.fullmatch(run)) is None:
            continue
        key = found[1]
        record = ledger.sessions.get(run)
        if record is None:
            newest = unread.setdefault(key, deque())
            newest.append(run)
            if len(newest) > LOOKED_AT:
                del earlier[key][newest.popleft()]
        if record is None or record.turn is not None:
            earlier.setdefault(key, {})[run] = None
    return earlier


def _reads_interrupted(store: JournalStore, run: SessionId) -> bool:
    """Return whether a run in a journal without a writer was interrupted."""
    with store.open_reader() as reader:
        entries = reader.entries(run)
    if not entries:
        return False  # it was deleted just now
    last = entries[-1]
    # Its writer is gone, so tasks that the journal shows as running do not run.
    closed = Entry(last.seq + 1, last.at, SessionId(""), JournalOpened("read only"))
    record = fold_entries([*entries, closed], run).sessions[run]
    return record.awaits_resume and not record.closed


def _texts(parts: tuple[Part, ...]) -> Iterable[str]:
    return [text for it in parts for text in (it.media_type, it.url, it.name)]
