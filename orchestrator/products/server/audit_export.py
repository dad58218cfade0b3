"""The export of the audit: a copy of each recorded event goes to syslog, or to a file.

The journal keeps the record; this is a copy of it. A request never waits for it. While the receiver
is away, events wait in memory, up to a limit. Later events are dropped, and the event
`audit.dropped` says how many.
"""

import errno
import os
import platform
import re
import socket as sockets
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec
import trio
from msgspec.structs import asdict

from orchestrator.agents import raising_one_error
from orchestrator.ports.errors import ServerSetupError
from orchestrator.ports.files import PRIVATE_FILE, foreign_hand
from orchestrator.ports.journals import ACCEPTED, SERVER, AuditEvent

MOST_WAITING: Final = 10_000
"""The number of events that wait for a receiver."""
BATCH: Final = 100
SEND_SECONDS: Final = 10
LAST_SECONDS: Final = 2
"""The most seconds for the events that wait when the server ends."""
LONGEST_PAUSE: Final = 30
"""The most seconds between two attempts to reach a receiver."""
DROPPED: Final = "audit.dropped"
AUDIT_FACILITY: Final = 13
WARNING, INFORMATIONAL = 4, 6
_NOT_PRINTABLE: Final = re.compile(r"[^!-~]")


class Receiver(Protocol):
    """Takes the lines of events."""

    name: str

    def line(self, at: float, event: AuditEvent, journal: str) -> bytes:
        """Return an event in the form of the receiver."""
        ...

    async def send(self, lines: Sequence[bytes], note_sent: Callable[[], object]) -> None:
        """Send lines, and call a function after each one.

        Raises:
            OSError: the receiver is away.
        """
        ...

    def close(self) -> None:
        """Close the file or the socket."""
        ...


class AuditExport:
    """Sends audit events to a receiver, in their order. `open_export` runs it."""

    def __init__(self, receiver: Receiver, report: Callable[[str], None]) -> None:
        self._receiver = receiver
        self._report = report
        self._waiting: deque[bytes] = deque()
        self._dropped, self._dropped_at = 0, 0.0
        self._has_work = trio.Event()

    def put(self, journal: str, at: float, event: AuditEvent) -> None:
        """Take an event, without a wait."""
        if len(self._waiting) >= MOST_WAITING:
            self._dropped, self._dropped_at = self._dropped + 1, at
            return
        self._tell_dropped()
        self._waiting.append(self._receiver.line(at, event, journal))
        self._has_work.set()

    def _tell_dropped(self) -> None:
        """Put the number of dropped events at their place in the order."""
        if self._dropped:
            lost = AuditEvent(actor=SERVER, action=DROPPED, count=self._dropped)
            self._waiting.append(self._receiver.line(self._dropped_at, lost, ""))
            self._report(f"{self._dropped:,} events of the audit were dropped from its export")
            self._dropped = 0

    async def send_forever(self) -> None:
        """Send events; during an outage, try again and again."""
        pause, is_away = 1.0, False
        while True:
            await self._has_work.wait()
            self._has_work = trio.Event()
            try:
                await self.send_all()
            except (OSError, trio.TooSlowError) as exc:
                if not is_away:
                    self._report(
                        f"the audit cannot be exported to {self._receiver.name}"
                        f" ({_reason(exc)}); up to {MOST_WAITING:,} events wait"
                    )
                is_away = True
                self._has_work.set()
                await trio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                if is_away:
                    self._report(f"the audit is exported to {self._receiver.name} again")
                pause, is_away = 1.0, False

    def close(self) -> None:
        """Close the receiver, and report how many events it did not get."""
        self._receiver.close()
        if left := len(self._waiting) + self._dropped:
            self._report(f"{left:,} events of the audit were not exported; the journal has them")

    async def send_all(self) -> None:
        """Send the events that wait, or raise if the receiver is away."""
        await trio.lowlevel.checkpoint()
        while self._waiting:
            lines = list(islice(self._waiting, BATCH))
            with trio.fail_after(SEND_SECONDS):
                await self._receiver.send(lines, self._waiting.popleft)
            if not self._waiting:
                self._tell_dropped()


@asynccontextmanager
async def open_export(
    receiver: Receiver, report: Callable[[str], None]
) -> AsyncGenerator[AuditExport]:
    """Export audit events, as long as the block lasts."""
    export = AuditExport(receiver, report)
    try:
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(export.send_forever)
                try:
                    yield export
                finally:
                    nursery.cancel_scope.cancel(reason="the server has ended")
    finally:
        with suppress(OSError, trio.TooSlowError), trio.move_on_after(LAST_SECONDS, shield=True):
            await export.send_all()
        export.close()


def receiver_at(address: str) -> Receiver:
    """Return the receiver with an address: a path, or `syslog:…`."""
    if address.startswith(("syslog:/", "syslog+tcp:/")) and "://" not in address:
        return Syslog(address, address.partition(":")[2])
    if "://" not in address:
        if not address or not Path(address).absolute().parent.is_dir():
            raise ServerSetupError(f"--audit-export is {address!r}, and its folder does not exist")
        return LogFile(Path(address).absolute())
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in {"syslog", "syslog+tcp"} or not host or not port:
        raise ServerSetupError(
            f"--audit-export is {address!r}; write a path, syslog:/dev/log, syslog://HOST:PORT"
            " (UDP) or syslog+tcp://HOST:PORT"
        )
    return Syslog(address, (host, port), is_stream=parts.scheme == "syslog+tcp")


class LogFile:
    """Appends JSON lines to a private file, also after another program has moved it away."""

    def __init__(self, file: Path) -> None:
        self.name = str(file)
        self._file = file
        self._descriptor = -1

    def line(self, at: float, event: AuditEvent, journal: str) -> bytes:
        return _json(at, event, journal) + b"\n"

    async def send(self, lines: Sequence[bytes], note_sent: Callable[[], object]) -> None:
        # A disk may take its time, and an abandoned write would be repeated.
        await trio.to_thread.run_sync(partial(self._write, lines, note_sent))

    def _write(self, lines: Sequence[bytes], note_sent: Callable[[], object]) -> None:
        self._open()
        for line in lines:
            if os.write(self._descriptor, line) < len(line):
                self.close()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            note_sent()

    def _open(self) -> None:
        """Open the file, unless it is open and still at its place."""
        if self._descriptor >= 0:
            own = os.fstat(self._descriptor)
            try:
                there = self._file.lstat()
            except FileNotFoundError:
                there = None
            if there is not None and (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino):
                return
            self.close()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        self._descriptor = os.open(self._file, flags, PRIVATE_FILE)
        found = os.fstat(self._descriptor)
        if problem := foreign_hand(found):
            self.close()
            raise OSError(errno.EPERM, problem)
        # A full disk or a crash may have cut the last line off; its event is written again.
        if found.st_size and os.pread(self._descriptor, 1, found.st_size - 1) != b"\n":
            os.write(self._descriptor, b"\n")

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Syslog:
    """Sends messages of RFC 5424 to a local socket, over UDP, or over TCP with their lengths."""

    def __init__(
        self, name: str, address: str | tuple[str, int], *, is_stream: bool = False
    ) -> None:
        self.name = name
        self._address = address
        self._is_stream = is_stream
        self._socket: trio.socket.SocketType | None = None
        self._head = f"{_word(platform.node())} orchestrator {os.getpid()}"

    def line(self, at: float, event: AuditEvent, journal: str) -> bytes:
        severity = INFORMATIONAL if event.outcome == ACCEPTED else WARNING
        priority = AUDIT_FACILITY * 8 + severity
        time = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        head = f"<{priority}>1 {time} {self._head} {_word(event.action)[:32]} - "
        message = head.encode() + _json(at, event, journal)
        return f"{len(message)} ".encode() + message if self._is_stream else message

    async def send(self, lines: Sequence[bytes], note_sent: Callable[[], object]) -> None:
        await trio.lowlevel.checkpoint()
        try:
            # A receiver sends nothing: if there is something to read, it has hung up.
            if self._socket is None or (self._is_stream and self._socket.is_readable()):
                self.close()
                self._socket = await self._connected()
            for line in lines:
                rest = line
                while rest:
                    rest = rest[await self._socket.send(rest) :]
                note_sent()
        except BaseException:
            self.close()
            raise

    async def _connected(self) -> trio.socket.SocketType:
        kind = sockets.SOCK_STREAM if self._is_stream else sockets.SOCK_DGRAM
        family: int = sockets.AF_UNIX
        address: object = self._address
        if not isinstance(self._address, str):
            [found, *_] = await trio.socket.getaddrinfo(*self._address, type=kind)
            family, address = found[0], found[4]
        opened = trio.socket.socket(family, kind)
        try:
            await opened.connect(address)
        except BaseException:
            opened.close()
            raise
        return opened

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _json(at: float, event: AuditEvent, journal: str) -> bytes:
    named = {"journal": journal} if journal else {}
    return msgspec.json.encode({"at": at, **asdict(event), **named})


def _word(text: str) -> str:
    """Return a text as a field of RFC 5424: printable ASCII without blanks."""
    return _NOT_PRINTABLE.sub("_", text)[:255] or "-"


def _reason(exc: Exception) -> str:
    return (exc.strerror if isinstance(exc, OSError) else None) or type(exc).__name__
