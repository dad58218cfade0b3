"""The tokens of keys: made once, shown once, and stored as salted hashes.

A token is `orc_ID_SECRET`. The id finds the hash, so a secret is compared with one hash only. The
secret has 256 random bits, so a fast hash is enough.
"""

import hashlib
import hmac
import re
from secrets import token_bytes, token_hex
from typing import Final

import attrs

PREFIX: Final = "orc_"
"""The start of every token. `agents/redaction/key_shapes.py` repeats it."""
_TOKEN: Final = re.compile(rf"{PREFIX}([0-9a-f]{{16}})_([0-9a-f]{{64}})")


@attrs.frozen(kw_only=True)
class TokenHash:
    """The stored form of a token."""

    id: str
    salt: bytes
    digest: bytes
    until: float | None = None
    """The time when it ends, if that is before its key does: another token replaces it."""
    shown: str = ""
    """For a cookie: the mark of its token; the cookie ends with that token."""
    person: str = ""
    """For a cookie of a person: the name that the console shows."""
    unlocked_until: float = 0
    """For a cookie: the time until which it has the scopes of `sign_in.LOCKED`."""

    def matches(self, secret: str) -> bool:
        """Compare in constant time."""
        return hmac.compare_digest(self.digest, _digest(self.salt, secret))


NO_TOKEN: Final = TokenHash(id="", salt=b"", digest=bytes(32))
"""Matches no secret. An unknown id takes as long as a known one."""


def new_token() -> tuple[str, TokenHash]:
    """Return a token and its hash."""
    id_, secret, salt = token_hex(8), token_hex(32), token_bytes(16)
    return f"{PREFIX}{id_}_{secret}", TokenHash(id=id_, salt=salt, digest=_digest(salt, secret))


def split_token(token: str) -> tuple[str, str] | None:
    """Return the id and the secret of a token; None if the text is not a token."""
    found = _TOKEN.fullmatch(token)
    return None if found is None else (found[1], found[2])


def _digest(salt: bytes, secret: str) -> bytes:
    return hashlib.sha256(salt + secret.encode()).digest()
