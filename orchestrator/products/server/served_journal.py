"""The objects that a server has for one journal, and the journals that it holds now.

Each journal has an orchestrator of its own. When one ends, only its own streams and waits end, and
the server goes on with the others.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import attrs
import trio

from orchestrator.delegation import SessionId, SessionRecord
from orchestrator.ports.reads import ReadApi
from orchestrator.ports.sessions import Orchestrator, RequestDoor
from orchestrator.products.schedule.ports import Scheduler
from orchestrator.products.server.audit import HttpAudit
from orchestrator.products.server.keys.owners import Owners
from orchestrator.products.server.live.live_text import LiveText
from orchestrator.products.server.past_runs import PastRuns
from orchestrator.products.server.run_summaries import RunSummaries
from orchestrator.products.server.transport.errors import SOON, HttpError

ONLY: Final = "journal"
"""The name of the only journal of a server."""


@attrs.define(kw_only=True, eq=False)
class ServedJournal:
    """One journal of a server, with its orchestrator, door and streams."""

    name: str
    orchestrator: Orchestrator
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
    _requests: set[trio.CancelScope] = attrs.field(factory=set[trio.CancelScope])
    _ended: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    @property
    def read(self) -> ReadApi:
        return self.orchestrator.read

    @property
    def is_stopping(self) -> bool:
        """Whether its orchestrator begins no more runs."""
        return self.read.is_stopping

    @contextmanager
    def track_request(self) -> Generator[trio.CancelScope]:
        """Let the end of this journal cancel a request, as long as the block lasts."""
        with trio.CancelScope() as scope:
            self._requests.add(scope)
            try:
                yield scope
            finally:
                self._requests.remove(scope)
                if not self._requests:
                    self._ended.unpark_all()

    async def wait_idle(self) -> None:
        """Wait until no request is under way."""
        await trio.lowlevel.checkpoint()
        while self._requests:
            await self._ended.park()

    def end_requests(self) -> None:
        """Cancel the requests under way: the journal answers no more."""
        for scope in self._requests:
            scope.cancel(reason="the server no longer holds the journal")


class HeldJournals:
    """The journals that a server holds now, in the order it took them."""

    def __init__(self) -> None:
        self._held: dict[str, ServedJournal] = {}

    def __iter__(self) -> Iterator[ServedJournal]:
        return iter(list(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    @property
    def first_or_none(self) -> ServedJournal | None:
        """The journal that was taken first; None if there is none now."""
        return next(iter(self._held.values()), None)

    @property
    def first(self) -> ServedJournal:
        """The journal that was taken first; an error if there is none."""
        journal = self.first_or_none
        if journal is None:
            raise no_journal()
        return journal

    def get(self, name: str) -> ServedJournal | None:
        return self._held.get(name)

    def of_session(self, session: SessionId) -> ServedJournal | None:
        """Return the journal of a session."""
        for journal in self._held.values():
            if session in journal.read.session_ids:
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
