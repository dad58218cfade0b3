"""The tokens of keys: made once, shown once, and stored as salted hashes.

A token is `orc_ID_SECRET`. The id finds the hash, so that a secret is compared with one only. The
secret has 256 random bits, so that a fast hash is enough.
"""

import hashlib
import hmac
import re
from secrets import token_bytes, token_hex
from typing import Final

import attrs

PREFIX: Final = "orc_"
"""How tokens begin; `agents/redaction/key_shapes.py` has it, too."""
_TOKEN: Final = re.compile(rf"{PREFIX}([0-9a-f]{{16}})_([0-9a-f]{{64}})")


@attrs.frozen(kw_only=True)
class TokenHash:
    """What is stored of a token."""

    id: str
    salt: bytes
    digest: bytes
    until: float | None = None
    """When it ends before its key does: another has taken its place."""
    shown: str = ""
    """The mark of the token for which it was given, if it is a cookie: it ends with that one."""

    def matches(self, secret: str) -> bool:
        """Compare in a time that does not depend on how much is right."""
        return hmac.compare_digest(self.digest, _digest(self.salt, secret))


NO_TOKEN: Final = TokenHash(id="", salt=b"", digest=bytes(32))
"""Matches nothing: an id that does not exist takes the time of one that does."""


def new_token() -> tuple[str, TokenHash]:
    """Return a token, and what is stored of it."""
    id_, secret, salt = token_hex(8), token_hex(32), token_bytes(16)
    return f"{PREFIX}{id_}_{secret}", TokenHash(id=id_, salt=salt, digest=_digest(salt, secret))


def split_token(token: str) -> tuple[str, str] | None:
    """Return the id and the secret of a token; None if it does not look like one."""
    found = _TOKEN.fullmatch(token)
    return None if found is None else (found[1], found[2])


def _digest(salt: bytes, secret: str) -> bytes:
    return hashlib.sha256(salt + secret.encode()).digest()
