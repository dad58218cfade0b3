"""The listening socket of a server, and its certificate."""

import socket
import ssl
from pathlib import Path
from typing import Final

import attrs

from orchestrator.errors import ServerSetupError
from orchestrator.server.transport.sse import WRITE_SECONDS

PORT: Final = 8642
BACKLOG: Final = 1024


@attrs.frozen(kw_only=True)
class Listening:
    """The address and the certificate of a server."""

    host: str = "127.0.0.1"
    port: int = PORT
    """0 is any free port."""
    certificate: Path | None = None
    key: Path | None = None
    """None: the key is in the file of the certificate."""


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
            f"cannot listen at {where}: {exc.strerror}; choose another --port, 0 is any free one"
        ) from exc
    return bound


def require_certificate(listening: Listening) -> None:
    """Raise if the certificate cannot be used, before the server listens."""
    if listening.certificate is None:
        if listening.key is not None:
            raise ServerSetupError("--key is given, and no --certificate that it is of")
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            listening.certificate, listening.key, password=_no_password
        )
    except OSError as exc:
        files = f"{listening.certificate}"
        if listening.key is not None:
            files += f" with the key {listening.key}"
        problem = exc.strerror or exc
        raise ServerSetupError(
            f"the certificate {files} cannot be used: {problem}; it must be PEM, with its key"
        ) from exc


def _no_password() -> str:
    raise ServerSetupError("the key is encrypted: give one that needs no password")
