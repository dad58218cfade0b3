"""The header that tells another server the address of the client, and who is signed in.

It counts only with the signature of a server that has the same secret. So no client can claim
another address, or that its request was already checked, and no request is forwarded twice. The
secret is random and made of no key, so no client has it. A stolen header is useless: it is valid
for one request and one minute.
"""

import base64
import hashlib
import hmac
from ipaddress import ip_address
from typing import Final

import attrs
import msgspec

from orchestrator.products.server.keys.key import Key

HEADER: Final = "x-orchestrator-forwarded"
MOVED: Final = "x-orchestrator-moved"
"""Says that the request had no effect: another server holds the journal now or soon."""
ACCEPTED_SECONDS: Final = 60
"""The most seconds between the clocks of two servers."""


class StaleHeaderError(Exception):
    """A server signed the header, but not at the present time of this server's clock."""


@attrs.frozen
class Forwarded:
    """The header of another server, which has checked the request."""

    peer: str
    """The address of the client."""
    key: Key | None = None
    """The key of a person who is signed in at that server; None if the request has its own key."""


def sign(
    secret: bytes,
    *,
    peer: str,
    method: str,
    target: str,
    request: str,
    now: float,
    key: Key | None = None,
) -> str:
    """Return the header of a forwarded request; `now` is in seconds since 1970."""
    at = str(int(now))
    person = "" if key is None else base64.urlsafe_b64encode(msgspec.json.encode(key)).decode()
    signature = _signature(secret, peer, at, method, target, request, person)
    return f"{peer} {at} {signature} {person}".rstrip()


def read_forwarded(
    secret: bytes | None, header: str, *, method: str, target: str, request: str, now: float
) -> Forwarded | None:
    """Return the content of a header that a server of ours has signed, or None."""
    peer, at, given, person = (*header.split(" "), "", "", "", "")[:4]
    if secret is None or not given:
        return None
    right = _signature(secret, peer, at, method, target, request, person)
    if not hmac.compare_digest(given.encode(errors="replace"), right.encode()):
        return None
    if abs(now - int(at)) > ACCEPTED_SECONDS:
        raise StaleHeaderError
    try:
        address = str(ip_address(peer.partition("%")[0]))
    except ValueError:
        return None
    if not person:
        return Forwarded(address)
    return Forwarded(address, msgspec.json.decode(base64.urlsafe_b64decode(person), type=Key))


def _signature(secret: bytes, *signed_parts: str) -> str:
    signed = "\n".join(signed_parts)
    return hmac.new(secret, signed.encode(errors="replace"), hashlib.sha256).hexdigest()
