"""The header that tells another server the address of the client.

It counts only with the signature of a server that has the same secret. So no client can claim
another address, or that its request was already checked, and no request is forwarded twice. The
secret is random and made of no key, so no client has it. A stolen header is useless: it is valid
for one request and one minute.
"""

import hashlib
import hmac
from ipaddress import ip_address
from typing import Final

HEADER: Final = "x-orchestrator-forwarded"
MOVED: Final = "x-orchestrator-moved"
"""Says that the request had no effect: another server holds the journal now or soon."""
ACCEPTED_SECONDS: Final = 60
"""The most seconds between the clocks of two servers."""


class StaleHeaderError(Exception):
    """A server signed the header, but not at the present time of this server's clock."""


def sign(secret: bytes, *, peer: str, method: str, target: str, request: str, now: float) -> str:
    """Return the header of a forwarded request; `now` is in seconds since 1970."""
    at = str(int(now))
    return f"{peer} {at} {_signature(secret, peer, at, method, target, request)}"


def forwarded_peer(
    secret: bytes | None, header: str, *, method: str, target: str, request: str, now: float
) -> str | None:
    """Return the client's address in a header that a server of ours has signed, or None."""
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
