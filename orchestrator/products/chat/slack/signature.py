"""The signature of Slack's requests: who sent them, and when.

It is compared in constant time. A request that is older than five minutes is refused, so none that
was overheard can be sent again later.
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
    """Return whether Slack has signed a request, and just now.

    Args:
        secret: the signing secret of the app.
        headers: those of the request, their names in lower case.
        body: that of the request, as it came.
        now: the time of day.
    """
    timestamp = headers.get(TIMESTAMP, "")
    if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) < 16):
        return False
    if abs(now - int(timestamp)) > OLDEST_SECONDS:
        return False
    claimed = headers.get(SIGNATURE, "")
    # What is not ASCII cannot be compared as text.
    return hmac.compare_digest(
        sign(secret, timestamp, body).encode(), claimed.encode(errors="replace")
    )
