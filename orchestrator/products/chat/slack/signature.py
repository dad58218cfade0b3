"""The signature of Slack's requests: it proves their sender and time.

Signatures are compared in constant time. A request older than five minutes is refused, so an
intercepted request cannot be sent again later.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

OLDEST_SECONDS: Final = 300
SIGNATURE: Final = "x-slack-signature"
TIMESTAMP: Final = "x-slack-request-timestamp"


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a request."""
    signed = f"v0:{timestamp}:".encode() + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256)
    return f"v0={digest.hexdigest()}"


def is_signed(secret: str, headers: Mapping[str, str], body: bytes, *, now: float) -> bool:
    """Return whether Slack has just signed this body; names of headers are in lower case."""
    timestamp = headers.get(TIMESTAMP, "")
    if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) < 16):
        return False
    if abs(now - int(timestamp)) > OLDEST_SECONDS:
        return False
    claimed = headers.get(SIGNATURE, "")
    # Texts that are not ASCII cannot be compared as text.
    return hmac.compare_digest(
        sign(secret, timestamp, body).encode(), claimed.encode(errors="replace")
    )
