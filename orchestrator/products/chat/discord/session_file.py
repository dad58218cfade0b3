"""The file that lets the next process resume a session of the gateway.

The file is only a position, not the truth: without it, or with an old one, the gateway repeats
fewer or more events, and repeated messages are recognized. So it is written at once, and not made
durable.
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
    """The data for resuming a session."""

    id: str
    url: str
    """The URL to resume at; "" after it failed, so that Discord is asked again."""
    seq: int
    """The number of the last event before the first unhandled one."""
    bot: str
    """The id of the bot."""


class SessionFile:
    """The file of a session, if there is one."""

    def __init__(self, path: Path | None, report: Callable[[str], None]) -> None:
        """Set up without reading; `report` is called once if the file cannot be used."""
        self._path = path
        self._report = report

    def load(self) -> GatewaySession | None:
        """Return the session that an earlier process saved."""
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
        """Save a session for the next process."""
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
