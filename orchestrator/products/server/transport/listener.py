"""The listening socket of a server: its address, certificate and limits."""

import socket
from pathlib import Path
from typing import Final

import attrs

from orchestrator.ports.errors import ServerSetupError
from orchestrator.products.server.transport.api_key import is_loopback
from orchestrator.products.server.transport.http11 import KEEP_ALIVE_SECONDS
from orchestrator.products.server.transport.sse import WRITE_SECONDS
from orchestrator.products.server.transport.tls import load_context

PORT: Final = 8642
BACKLOG: Final = 1024


@attrs.frozen(kw_only=True)
class Listening:
    """The address and the certificate of a server."""

    host: str = "127.0.0.1"
    port: int = PORT
    """0 chooses a free port."""
    certificate: Path | None = None
    key: Path | None = None
    """None if the key is in the file of the certificate."""
    is_insecure: bool = False
    """Whether other machines may connect without TLS, because a proxy in front speaks TLS."""
    connections_per_peer: int | None = None
    """The most connections of one address; None allows 100, and this machine half of all."""
    keep_alive: float = KEEP_ALIVE_SECONDS
    """The most seconds between two requests on a connection."""


def bind(listening: Listening) -> socket.socket:
    """Return a socket that listens at an address."""
    where = f"{listening.host} port {listening.port}"
    try:
        found = socket.getaddrinfo(
            listening.host.strip("[]"),
            listening.port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )
    except (OSError, UnicodeError) as exc:
        raise ServerSetupError(f"there is no host {listening.host!r}: {exc}") from exc
    # A name may have two addresses: most clients try IPv4 first.
    family, kind, protocol, _, address = min(found, key=lambda it: it[0])
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Accepted sockets inherit it. A write to them cannot be cancelled: a client that has
            # stopped reading would hold its response for ever.
            bound.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(WRITE_SECONDS * 1000)
            )
        bound.bind(address)
        # Two sockets may be bound to one address until one of them listens.
        bound.listen(BACKLOG)
    except OSError as exc:
        bound.close()
        raise ServerSetupError(
            f"cannot listen at {where}: {exc.strerror}; choose another --port; 0 takes a free one"
        ) from exc
    return bound


def require_usable(listening: Listening) -> None:
    """Raise if the certificate cannot be used, or if text would cross the network in the clear."""
    if listening.certificate is not None:
        load_context(listening.certificate, listening.key)
    elif listening.key is not None:
        raise ServerSetupError("--tls-key needs its certificate: give --tls-cert, too")
    elif not (listening.is_insecure or is_loopback(listening.host)):
        raise ServerSetupError(
            f"other machines could connect to {listening.host}, and keys and texts would cross the"
            " network in the clear: leave out --host, to serve only this machine; or give"
            " --tls-cert and --tls-key; or give --insecure, if a proxy in front speaks TLS"
        )
