"""The objects that a server has for one journal, and the journals that it holds now."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

import attrs
import trio

from orchestrator.delegation import SessionId, SessionRecord
from orchestrator.ports.journals import JournalLease
from orchestrator.ports.reads import ReadApi
from orchestrator.ports.sessions import Orchestrator, RequestDoor
from orchestrator.products.schedule.ports import Scheduler
from orchestrator.products.server.audit import HttpAudit
from orchestrator.products.server.keys.owners import Owners
from orchestrator.products.server.live.live_text import LiveText
from orchestrator.products.server.past_runs import PastRuns
from orchestrator.products.server.run_summaries import RunSummaries
from orchestrator.products.server.transport.errors import SOON, HttpError, journal_away

ONLY: Final = "journal"
"""The name of the only journal of a server."""


class TrackedRequest:
    """A request, and the journal that handles it: the end of the journal cancels the block."""

    def __init__(self) -> None:
        self.scope: trio.CancelScope | None = None
        """Cancels the request; None until a journal handles it."""
        self.has_begun = False
        """Whether its answer has begun."""
        self.waits_for_run = False
        """Whether it waits for the end of a run, and not only for the journal."""
        self.accepted: int | None = None
        """The number of the fact that makes it take effect."""
        self.refusal: HttpError | None = None
        """The answer instead of its own, if it was cancelled."""
        self._journal: ServedJournal | None = None

    def begin(self, journal: "ServedJournal") -> None:
        """Let a journal handle the request, until `end` or the end of the block."""
        self.scope = trio.CancelScope()
        self.scope.__enter__()
        self._journal = journal
        journal.requests.add(self)

    def end(self) -> None:
        """Let another journal handle the request next."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        scope, journal = self.scope, self._journal
        if scope is None or journal is None:
            return False
        self.scope = self._journal = None
        journal.end_request(self)
        return bool(scope.__exit__(kind, error, traceback))

    def cancel(self, reason: str) -> None:
        if self.scope is not None:
            self.scope.cancel(reason=reason)


@attrs.define(kw_only=True, eq=False)
class ServedJournal:
    """One journal of a server, with its orchestrator, door and streams."""

    name: str
    orchestrator: Orchestrator
    read: ReadApi = attrs.field(init=False)
    door: RequestDoor
    scheduler: Scheduler
    """Starts the jobs of its sessions; in one journal, also the jobs of the program."""
    live_text: LiveText
    audit: HttpAudit
    owners: Owners
    past_runs: PastRuns
    summaries: RunSummaries
    unserved_sessions: Sequence[SessionRecord] = ()
    """The unfinished sessions whose agents are not served here."""
    shutdown: trio.Event = attrs.field(factory=trio.Event)
    """Set when the server ends, or lets go of this journal: streams end, and waits return."""
    is_moving: bool = False
    """Whether another server takes over this journal soon: no run begins in it."""
    released: trio.Event = attrs.field(factory=trio.Event)
    """Set when this server no longer holds the journal."""
    lease: JournalLease | None = None
    """The time until other servers may take the journal over; None if none can."""
    requests: set[TrackedRequest] = attrs.field(factory=set[TrackedRequest])
    """The requests that it handles now."""
    _ended: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    def __attrs_post_init__(self) -> None:
        self.read = self.orchestrator.read

    @property
    def is_stopping(self) -> bool:
        """Whether its orchestrator begins no more runs."""
        return self.read.is_stopping

    def set_lease(self, lease: JournalLease | None) -> None:
        """Serve the journal under a lease: requests do not wait while its database is silent."""
        self.lease = lease
        if lease is not None:
            lease.on_silent(self._refuse_waiting)

    @property
    def is_current(self) -> bool:
        """Whether no other server can have taken this journal over."""
        return self.lease is None or self.lease.is_current

    async def require_current(self, *, asks: bool) -> None:  # noqa: ASYNC910 (its caller waits)
        """Raise unless this server was the writer when it read the journal for an answer.

        Args:
            asks: ask the database in any case, and not only when the lease may have ended.

        Raises:
            JournalInUseError: another server writes the journal.
            JournalAwayError: the database does not answer.
        """
        if self.lease is not None and (asks or not self.lease.is_current):
            await self.lease.confirm()

    def end_request(self, request: TrackedRequest) -> None:
        """Note that a request was answered, or that another journal handles it."""
        self.requests.remove(request)
        if not self.requests:
            self._ended.unpark_all()

    def _refuse_waiting(self) -> None:
        """Refuse the requests that wait for a database that does not answer.

        A request that waits for a run goes on: the run continues when the database is back.
        """
        durable = self.read.durable_seq
        for it in self.requests:
            is_accepted = it.accepted is not None and it.accepted <= durable
            if not (it.has_begun or (it.waits_for_run and is_accepted)):
                it.refusal = journal_away()
                it.cancel("the database does not answer")

    async def wait_idle(self) -> None:
        """Wait until no request is under way."""
        await trio.lowlevel.checkpoint()
        while self.requests:
            await self._ended.park()

    def end_requests(self) -> None:
        """Cancel the requests under way: the journal answers no more."""
        for it in self.requests:
            it.cancel("the server no longer holds the journal")


class HeldJournals:
    """The journals that a server holds now, in the order it took them.

    A journal whose lease may have ended is not among them until the lease is renewed.
    """

    def __init__(self) -> None:
        self._held: dict[str, ServedJournal] = {}

    def __iter__(self) -> Iterator[ServedJournal]:
        return iter([it for it in self._held.values() if it.is_current])

    def __len__(self) -> int:
        return len(list(iter(self)))

    @property
    def first_or_none(self) -> ServedJournal | None:
        """The journal that was taken first; None if there is none now."""
        for journal in self._held.values():
            if journal.lease is None or journal.lease.is_current:
                return journal
        return None

    @property
    def first(self) -> ServedJournal:
        """The journal that was taken first; an error if there is none."""
        journal = self.first_or_none
        if journal is None:
            raise no_journal()
        return journal

    def get(self, name: str) -> ServedJournal | None:
        journal = self._held.get(name)
        return journal if journal is not None and journal.is_current else None

    def has_lapsed(self, name: str) -> bool:
        """Return whether the lease of a held journal may have ended."""
        return name in self._held and not self._held[name].is_current

    def of_session(self, session: SessionId) -> ServedJournal | None:
        """Return the journal of a session."""
        for journal in self._held.values():
            if session in journal.read.session_ids and journal.is_current:
                return journal
        return None

    @contextmanager
    def hold(self, journal: ServedJournal) -> Generator[None]:
        """Serve a journal, as long as the block lasts."""
        self._held[journal.name] = journal
        try:
            yield
        finally:
            del self._held[journal.name]


def no_journal() -> HttpError:
    """Return the error of a request to a server that holds no journal now."""
    return HttpError(
        503,
        "this server holds no journal now, so it cannot begin work; try again soon",
        code="no_journal",
        headers=SOON,
    )
