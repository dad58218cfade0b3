"""The troubles of a platform: each is reported once, and the pauses between attempts grow."""

from typing import Final

import trio

from orchestrator.products.chat.errors import ChatError, RetryAfterError
from orchestrator.products.chat.platform import Inbox

LONGEST_PAUSE: Final = 60.0


class Troubles:
    """Reports each trouble once, until it is over."""

    def __init__(self, inbox: Inbox, name: str) -> None:
        self._inbox = inbox
        self._name = name
        self._last = ""
        self._count = 0

    def over(self) -> None:
        """Report that the trouble is over."""
        if self._last:
            self._inbox.report(f"{self._name}: heard again")
        self._last, self._count = "", 0

    async def pause(self, exc: ChatError) -> None:
        """Report an error if it differs from the last, and wait longer each time."""
        if isinstance(exc, RetryAfterError):
            await trio.sleep(exc.seconds)
            return
        if str(exc) != self._last:
            self._last = str(exc)
            self._inbox.report(f"{self._name}: {exc}; it is tried again")
        self._count += 1
        await trio.sleep(min(LONGEST_PAUSE, 2.0 ** min(self._count - 1, 10)))
