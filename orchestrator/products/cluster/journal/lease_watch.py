"""The lease of a journal by the clock of its writer, and the silence of its database.

A renewal counts from the moment before its statement was sent, so the lease ends here before
another process may take the journal over. The clock goes on while the process, or the machine,
stands still.
"""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from itertools import count
from typing import Final

import trio

from orchestrator.products.cluster.database.database import ANSWER_SECONDS

AGAIN_SECONDS: Final = 1.0
"""How long after one word about a silent database the next one comes."""


class LeaseWatch:
    """Knows whether the lease of a journal lasts, and whether its database answers."""

    def __init__(
        self,
        *,
        seconds: float,
        clock: Callable[[], float],
        sent: float,
        confirm: Callable[[], Awaitable[None]],
    ) -> None:
        """Watch a journal that was taken just after `sent`, by a clock that any thread reads."""
        self._seconds = seconds
        self.clock: Final = clock
        self._sent = sent
        self._confirm = confirm
        self._receivers: list[Callable[[], None]] = []
        self._numbers = count()
        self._unanswered: dict[int, float] = {}
        """When the statements under way began, oldest first."""
        self._begun = trio.Event()

    @property
    def is_current(self) -> bool:
        return self.clock() < self._sent + self._seconds

    async def confirm(self) -> None:
        await self._confirm()

    def renew(self, sent: float) -> None:
        """Note that the database has confirmed a renewal that was sent at this time."""
        self._sent = max(self._sent, sent)

    def on_silent(self, receive: Callable[[], None]) -> None:
        self._receivers.append(receive)

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Watch a statement of the block, which may wait through an outage."""
        number = next(self._numbers)
        self._unanswered[number] = trio.current_time()
        self._begun.set()
        try:
            yield
        finally:
            del self._unanswered[number]

    async def watch_forever(self, scope: trio.CancelScope) -> None:
        """Tell the receivers while the database is silent, until the scope is cancelled."""
        with scope:
            while True:
                if not self._unanswered:
                    self._begun = trio.Event()
                    await self._begun.wait()
                    continue
                oldest = next(iter(self._unanswered.values()))
                left = oldest + ANSWER_SECONDS - trio.current_time()
                if left <= 0:
                    for receive in self._receivers:
                        receive()
                await trio.sleep(left if left > 0 else AGAIN_SECONDS)
