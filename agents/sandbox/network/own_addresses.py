"""The addresses of this machine: the kernel lets a socket be bound to them, and to no others."""

import socket
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
_Place: TypeAlias = tuple[str, int] | tuple[str, int, int, int]
# Documentation uses them, and no machine has them.
_NOT_OURS: Final = {4: "192.0.2.1", 6: "2001:db8::1"}
_ANY_PORT: Final = 9


def is_of_this_machine(address: Address) -> bool:
    """Return whether an address belongs to this machine."""
    if address.is_loopback:
        return True
    if not any(_can_bind(where) for where in _places(address)):
        return False
    # With `ip_nonlocal_bind` the kernel lets all be bound. It answers from an address of its own.
    return not _can_bind((_NOT_OURS[address.version], 0)) or _is_source(address)


def _places(address: Address) -> Iterator[_Place]:
    """Yield the socket addresses to try. A link-local address could be on any interface."""
    if isinstance(address, IPv6Address) and address.is_link_local:
        for index, _ in socket.if_nameindex():
            yield str(address), 0, 0, index
    else:
        yield str(address), 0


def _can_bind(where: _Place) -> bool:
    with _datagram_socket(where[0]) as probe:
        try:
            probe.bind(where)
        except OSError:
            return False
    return True


def _is_source(address: Address) -> bool:
    """Return whether packets to an address would come from that address; it sends none."""
    with _datagram_socket(str(address)) as probe:
        try:
            probe.connect((str(address), _ANY_PORT))
        except OSError:
            return False
        return bool(probe.getsockname()[0] == str(address))


def _datagram_socket(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
