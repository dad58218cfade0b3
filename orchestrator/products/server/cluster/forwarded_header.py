"""The header by which one server tells another for whom it asks.

It is believed only with the signature of a server that has the same secret. So no client can claim
another address, or that its request was checked already, and no request is forwarded twice. No
client has the secret: it is random, and made of no key. A header that is found later is of no use:
it is for one request, and for a minute.
"""

import hashlib
import hmac
from ipaddress import ip_address
from typing import Final

HEADER: Final = "x-orchestrator-forwarded"
MOVED: Final = "x-orchestrator-moved"
"""Says that nothing was done: another server holds the journal by now, or soon."""
ACCEPTED_SECONDS: Final = 60
"""How far the clocks of two servers may be apart."""


class StaleHeaderError(Exception):
    """A server has signed it, at another time than now by the clock of this one."""


def sign(secret: bytes, *, peer: str, method: str, target: str, request: str, now: float) -> str:
    """Return the header of a request that is forwarded.

    Args:
        secret: that of the servers.
        peer: the address of the client.
        method: the method.
        target: the path with the query.
        request: the id of the request.
        now: the time in seconds since 1970.
    """
    at = str(int(now))
    return f"{peer} {at} {_signature(secret, peer, at, method, target, request)}"


def forwarded_peer(
    secret: bytes | None, header: str, *, method: str, target: str, request: str, now: float
) -> str | None:
    """Return the address of the client that a server forwards a request of.

    Returns:
        None if no server of ours has signed it.

    Raises:
        StaleHeaderError: one has, and not now.
    """
    peer, _, rest = header.partition(" ")
    at, _, given = rest.partition(" ")
    if secret is None or not given:
        return None
    right = _signature(secret, peer, at, method, target, request)
    if not hmac.compare_digest(given.encode(errors="replace"), right.encode()):
        return None
    if abs(now - int(at)) > ACCEPTED_SECONDS:
        raise StaleHeaderError
    try:
        return str(ip_address(peer.partition("%")[0]))
    except ValueError:
        return None


def _signature(secret: bytes, *signed_parts: str) -> str:
    signed = "\n".join(signed_parts)
    return hmac.new(secret, signed.encode(errors="replace"), hashlib.sha256).hexdigest()
