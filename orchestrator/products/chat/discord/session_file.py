"""The file that lets the next process go on with a session of the gateway.

It is no truth, only a position to go on from: without it, or with an old one, the gateway says more
or less again, and what was heard already is known. So it is written at once, and not made durable.
"""

import os
from collections.abc import Callable
from pathlib import Path

import attrs
import msgspec

from orchestrator.ports.files import PRIVATE_FILE, PrivateFile
from orchestrator.products.chat.errors import ChatError


@attrs.define
class GatewaySession:
    """What a session is resumed with."""

    id: str
    url: str
    """Where; "" after that failed: the address for all is asked for then."""
    seq: int
    """The number up to which all events are handled."""
    bot: str
    """The id of the bot."""


class SessionFile:
    """The file of a session, or none."""

    def __init__(self, path: Path | None, report: Callable[[str], None]) -> None:
        """Read and write later.

        Args:
            path: where it is; None is nowhere.
            report: is told once that it cannot be read or written: the gateway does without.
        """
        self._path = path
        self._report = report

    def load(self) -> GatewaySession | None:
        """Return what an earlier process has left."""
        if self._path is None:
            return None
        try:
            data = PrivateFile(self._path, error=ChatError).read()
        except ChatError as exc:
            self._give_up(str(exc))
            return None
        try:
            return msgspec.json.decode(data or b"", type=GatewaySession)
        except msgspec.MsgspecError:
            return None

    def save(self, session: GatewaySession) -> None:
        """Leave a session for the next process."""
        if self._path is None:
            return
        new = self._path.with_name(f".{self._path.name}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        try:
            with os.fdopen(os.open(new, flags, PRIVATE_FILE), "wb") as opened:
                opened.write(msgspec.json.encode(session))
            new.replace(self._path)
        except OSError as exc:
            self._give_up(f"{self._path} cannot be written: {exc.strerror}")

    def _give_up(self, problem: str) -> None:
        self._path = None
        self._report(
            f"discord: {problem}; what is said between this process and the next may be lost"
        )
