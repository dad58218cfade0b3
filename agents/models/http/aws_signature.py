"""Signatures of requests to AWS (version 4), by the keys of an account.

Written out, since the library of AWS is fourteen megabytes: one header, from four hashes.
"""

import datetime as dt
import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote, urlsplit

import attrs
import trio

ALGORITHM: Final = "AWS4-HMAC-SHA256"


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@attrs.frozen(kw_only=True)
class AwsKeys:
    """The keys of an AWS account, which sign a request."""

    access_key: str
    secret_key: str = attrs.field(repr=False)
    session_token: str = attrs.field(default="", repr=False)
    region: str
    service: str = "bedrock"
    clock: Callable[[], dt.datetime] = attrs.field(default=_now, repr=False, eq=False)

    async def headers(self, url: str, content: bytes) -> Mapping[str, str]:
        await trio.lowlevel.checkpoint()
        return self.signed_headers("POST", url, content)

    def signed_headers(self, method: str, url: str, content: bytes) -> Mapping[str, str]:
        """Return the headers that a request needs besides its own."""
        now = self.clock()
        stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        parts = urlsplit(url)
        signed = {"host": parts.netloc, "x-amz-date": stamp}
        if self.session_token:
            signed["x-amz-security-token"] = self.session_token
        names = ";".join(sorted(signed))
        request = "\n".join(
            (
                method,
                # All services except S3 sign the path escaped once more.
                quote(parts.path or "/", safe="/~"),
                parts.query,
                *(f"{name}:{signed[name]}" for name in sorted(signed)),
                "",
                names,
                hashlib.sha256(content).hexdigest(),
            )
        )
        scope = f"{day}/{self.region}/{self.service}/aws4_request"
        text = "\n".join((ALGORITHM, stamp, scope, hashlib.sha256(request.encode()).hexdigest()))
        key = f"AWS4{self.secret_key}".encode()
        for part in (day, self.region, self.service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        del signed["host"]
        return {
            **signed,
            "authorization": (
                f"{ALGORITHM} Credential={self.access_key}/{scope},"
                f" SignedHeaders={names}, Signature={signature}"
            ),
        }
