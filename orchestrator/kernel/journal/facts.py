"""The port for writing: doors and products post facts by it, and wait until these are durable."""

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Protocol, TypeVar

from orchestrator.delegation import SessionId
from orchestrator.delegation.events import Event

if TYPE_CHECKING:
    from orchestrator.kernel.journal.accounts import AccountStore
    from orchestrator.kernel.journal.audit import AuditEvent

EventT = TypeVar("EventT", bound=Event)


class Facts(Protocol):
    """Posts facts to one journal (`Bookkeeper` implements it). `ReadApi` subscribes to them."""

    closed: bool
    """No more facts are posted."""
    is_broken: bool
    """The journal failed: nothing becomes durable any more."""
    on_audit: "Callable[[float, AuditEvent], None] | None"
    """Receives a copy of each event of the audit."""

    @property
    def journal_identity(self) -> Hashable:
        """The value that tells its journal from others."""
        ...

    @property
    def account_store(self) -> "AccountStore | None":
        """The accounts that its journal shares with the others at its address."""
        ...

    @property
    def clock(self) -> Callable[[], float]:
        """Returns the time of day, as facts have it."""
        ...

    def post(self, event: EventT, /, *more: EventT) -> EventT:
        """Make facts of one session true for all later decisions, and return the last as stored."""
        ...

    async def wait_durable(self) -> None:
        """Wait until everything posted so far survives a crash."""
        ...

    def audit(self, event: "AuditEvent") -> None:
        """Record who did something, in the commit of the facts that were posted just before."""
        ...

    async def wait_audited(self) -> None:
        """Wait until all that was posted and recorded so far survives a crash."""
        ...

    def require_running(self) -> None:
        """Raise `ClosedError` if the orchestrator begins nothing new."""
        ...

    async def wait_running(self) -> None:
        """Wait until the orchestrator may begin something new."""
        ...

    async def load(self, session: SessionId) -> None:
        """Read a session back into memory, so that facts about it can be posted."""
        ...

    def note_pruned(self) -> None:
        """Tell those who watch that sessions were deleted in another journal beside it."""
        ...
