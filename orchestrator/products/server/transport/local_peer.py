"""The process at the other end of a connection from this machine, as far as Linux tells it.

A command of an agent may find a token and approve its own agent's calls with it. So a request that
approves must not come from such a command. This is a fence, not a wall: a proxy on this machine
speaks for all its clients.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Final

import attrs
import trio
from starlette.types import Scope

from orchestrator.agents.sandbox.network.own_addresses import Address, is_of_this_machine
from orchestrator.agents.sandbox.network.proxied import is_proxied
from orchestrator.agents.tools.terminal.process_origin import (
    PROCESSES,
    Origin,
    judge_in_thread,
    origin_of,
)
from orchestrator.products.server.transport.errors import HttpError

TABLES: Final = (PROCESSES / "net" / "tcp", PROCESSES / "net" / "tcp6")
WORD: Final = 4


@attrs.frozen
class _End:
    """One end of a connection."""

    address: Address
    port: int


@attrs.frozen
class _Socket:
    """A socket of this machine."""

    user: int
    inode: int
    """0 if no process has the socket any more."""


async def require_person(scope: Scope) -> None:
    """Refuse a request that a command of an agent has sent, or may have sent."""
    if await _origin_of(scope.get("client"), scope.get("server")) is Origin.ELSEWHERE:
        return
    raise HttpError(
        403,
        "this request may not approve: it comes from a process that an agent has started, or from"
        " a process of this machine that has ended or is hidden",
        code="not_from_a_person",
    )


async def _origin_of(client: tuple[str, int] | None, server: tuple[str, int] | None) -> Origin:
    """Return the origin of the process that has sent a request."""
    await trio.lowlevel.checkpoint()
    if not TABLES[0].exists():
        return Origin.ELSEWHERE  # this system tells nothing about processes
    if client is None or server is None:
        return Origin.UNKNOWN
    near, far = _end(*client), _end(*server)
    if is_proxied(near.address, near.port):
        return Origin.COMMAND
    if not is_of_this_machine(near.address):
        return Origin.ELSEWHERE
    return await judge_in_thread(lambda: _origin_of_connection(near, far))


def _origin_of_connection(near: _End, far: _End) -> Origin:
    found = _find_socket(near, far)
    if found is None or not found.inode:
        return Origin.UNKNOWN
    if found.user != os.geteuid():
        # The process of another user is hidden. Commands run as the user of this process, unless
        # they have changed their user.
        origins = {origin_of(pid) for pid in _processes_of(found.user)}
        return Origin.COMMAND if Origin.COMMAND in origins else Origin.ELSEWHERE
    origins = {origin_of(pid) for pid in _holders(found.inode)}
    # One suspicious process is enough: several may share the connection.
    for origin in (Origin.COMMAND, Origin.UNKNOWN):
        if origin in origins:
            return origin
    return Origin.ELSEWHERE if origins else Origin.UNKNOWN


def _end(host: str, port: int) -> _End:
    return _End(_plain(ip_address(host.partition("%")[0])), port)


def _plain(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address maps; any other address unchanged."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _find_socket(near: _End, far: _End) -> _Socket | None:
    for table in TABLES:
        for fields in _rows(table):
            if _listed_end(fields[1]) == near and _listed_end(fields[2]) == far:
                return _Socket(int(fields[7]), int(fields[9]))
    return None


def _rows(table: Path) -> Iterator[list[str]]:
    if not table.exists():
        return  # without IPv6
    with table.open() as lines:
        next(lines)
        for line in lines:
            yield line.split()


def _listed_end(text: str) -> _End:
    """Parse one end of a connection in a table of the kernel: words of four bytes, host order."""
    host, _, port = text.partition(":")
    raw = bytes.fromhex(host)
    words = (raw[at : at + WORD][::-1] for at in range(0, len(raw), WORD))
    return _End(_plain(ip_address(b"".join(words))), int(port, 16))


def _processes_of(user: int) -> Iterator[int]:
    for process in PROCESSES.iterdir():
        # A process may be gone meanwhile. If it hides itself, root owns its folder.
        if process.name.isdecimal():
            with suppress(OSError):
                _, _, rest = (process / "status").read_bytes().partition(b"\nUid:")
                if str(user).encode() in rest.partition(b"\n")[0].split():
                    yield int(process.name)


def _holders(inode: int) -> Iterator[int]:
    """Yield the processes of this user that have a socket open."""
    name = f"socket:[{inode}]"
    for process in PROCESSES.iterdir():
        # Processes of other users are hidden; a process or a file may be gone meanwhile.
        if process.name.isdecimal():
            with suppress(OSError):
                if any(_link(it) == name for it in (process / "fd").iterdir()):
                    yield int(process.name)


def _link(file: Path) -> str:
    with suppress(OSError):
        return os.readlink(file)  # noqa: PTH115 (the target is no path)
    return ""
