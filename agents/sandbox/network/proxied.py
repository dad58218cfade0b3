"""The connections that proxies of commands have open.

A server in this process cannot tell them from its own process by the kernel: the proxy is a part of
it. So it asks here.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, TypeAlias

import trio

from orchestrator.agents.sandbox.network.allowed_hosts import as_address
from orchestrator.agents.sandbox.network.own_addresses import Address

End: TypeAlias = tuple[Address | None, int]

_ENDS: Final[trio.lowlevel.RunVar[set[End]]] = trio.lowlevel.RunVar("connections of proxies")


@contextmanager
def note_proxied(stream: trio.SocketStream) -> Generator[None]:
    """Note that a connection speaks for a command, as long as the block lasts."""
    try:
        ends = _ENDS.get()
    except LookupError:
        ends = set[End]()
        _ENDS.set(ends)
    host, port, *_ = stream.socket.getsockname()
    end = as_address(host), port
    ends.add(end)
    try:
        yield
    finally:
        ends.discard(end)


def is_proxied(address: Address, port: int) -> bool:
    """Return whether a connection from this address and port speaks for a command."""
    return (address, port) in _ENDS.get(set[End]())
