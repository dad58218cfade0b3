"""The one hand that writes the journal.

Deciding and posting are one synchronous step, so no two requests pass the same limit. Whoever
posts then waits until the fact is durable, and only then acts on it.
"""

from collections.abc import Callable, Sequence

import trio

from delegation import (
    Detach,
    Encoded,
    Join,
    Ledger,
    Mode,
    Refuse,
    Rules,
    TaskRequest,
    decide,
    decode,
    encode,
)
from delegation.events import Entry, Event, TaskRequested
from orchestrator.errors import ClosedError
from orchestrator.storage.journal import Journal


class Bookkeeper:
    """Numbers and dates facts, folds them, and has them kept."""

    def __init__(
        self,
        journal: Journal,
        ledger: Ledger,
        *,
        rules: Rules,
        clock: Callable[[], float],
        secrets: Sequence[str] = (),
    ) -> None:
        self.ledger = ledger
        self.rules = rules
        self.clock = clock
        self.closed = False
        self._secrets = [secret.encode() for secret in secrets]
        self._journal = journal
        self._posted = trio.lowlevel.ParkingLot()
        self._startable = trio.lowlevel.ParkingLot()
        self._wakeable = trio.lowlevel.ParkingLot()

    def post(self, event: Event) -> None:
        """Make a fact true for all decisions to come. It is not durable yet."""
        if self.closed:
            raise ClosedError("the orchestrator is closed")
        ledger = self.ledger
        # What cannot be written down must not become true.
        encoded = encode(event)
        if self._secrets and any(map(encoded.body.__contains__, self._secrets)):
            encoded = self._without_secrets(encoded)
            event = decode(encoded)
        entry = Entry(
            ledger.last_seq + 1, self.clock(), ledger.session_of(event), event
        )
        ledger.post(entry)
        self._journal.append(entry, encoded)
        if self._posted:
            self._posted.unpark_all()
        if ledger.startable and self._startable:
            self._startable.unpark_all()
        if ledger.wakeable and self._wakeable:
            self._wakeable.unpark_all()

    def _without_secrets(self, encoded: Encoded) -> Encoded:
        """Return a fact without the keys that somebody let slip: nobody is to read them here."""
        body = encoded.body
        for secret in self._secrets:
            body = body.replace(secret, b"***")
        return Encoded(encoded.kind, encoded.version, body)

    def admit(self, requests: Sequence[TaskRequest]) -> Refuse | None:
        """Decide what is asked for in one call, and post all of it unless it is refused."""
        facts: list[TaskRequested] = []
        for request in requests:
            match decide(request, self.ledger, self.rules):
                case Refuse() as refused:
                    return refused
                case Join(reason):
                    facts.append(TaskRequested(request, Mode.JOINED, reason))
                case Detach(reason):
                    facts.append(TaskRequested(request, Mode.DETACHED, reason))
        for fact in facts:
            self.post(fact)
        return None

    async def wait_durable(self) -> None:
        """Wait until everything posted so far survives a crash."""
        await self._journal.wait_durable(self.ledger.last_seq)

    async def wait_posted(self, *, after: int) -> None:
        """Wait until there are more facts than this."""
        await trio.lowlevel.checkpoint()
        while self.ledger.last_seq <= after:
            await self._posted.park()

    async def wait_stirred(self) -> None:
        """Wait until something happens, whatever it is."""
        await self._posted.park()

    def stir(self) -> None:
        """Let whoever waits look again: something has changed that is no fact."""
        self._posted.unpark_all()

    def close(self) -> None:
        """Take no more facts."""
        self.closed = True
        self.stir()

    async def wait_startable(self) -> None:
        """Wait until a detached task is due."""
        await trio.lowlevel.checkpoint()
        while not self.ledger.startable:
            await self._startable.park()

    async def wait_wakeable(self) -> None:
        """Wait until a session is due for a turn."""
        await trio.lowlevel.checkpoint()
        while not self.ledger.wakeable:
            await self._wakeable.park()
