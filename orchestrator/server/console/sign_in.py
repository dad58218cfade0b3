"""Who is signed in to the console: a one-time link becomes a cookie, and a cookie is a key.

A cookie is a token of its own, stored as a hash like those of keys, so that people stay signed in
when the server is started again. It ends with its time, when its person signs out, and with the key
that was shown. It counts only in requests of the console's own pages.
"""

from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from typing import Final, NoReturn

import attrs
import trio
from starlette.datastructures import Headers

from orchestrator.server.keys.file import (
    Signature,
    StoredKey,
    changed_keys,
    read_keys,
    signature_of,
)
from orchestrator.server.keys.key import CONSOLE, DEFAULT, ORDINARY, Key, Scope
from orchestrator.server.keys.store import KeyStore
from orchestrator.server.keys.tokens import NO_TOKEN, TokenHash, new_token, split_token
from orchestrator.server.keys.wrong_keys import WrongKeys
from orchestrator.server.transport.errors import HttpError

FILE: Final = "keys/console.json"
"""The file of the cookies, beside that of the keys."""
LINK_SECONDS: Final = 3600
COOKIE_SECONDS: Final = 7 * 24 * 3600
COOKIE: Final = "orchestrator"
"""How its name begins; the port follows, since a browser sends a cookie to all ports of a host."""
SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
PERSON: Final = frozenset({*ORDINARY, Scope.APPROVE, Scope.ADMIN})
"""What the person may do who has started the server."""
VIEWER: Final = frozenset({Scope.READ})


@attrs.frozen(kw_only=True)
class SignedIn:
    """Who makes a request with a cookie."""

    key: Key
    token_id: str
    """A token with which it ends; "" is none."""
    until: float
    """When the cookie ends."""


class SignIns:
    """Makes one-time links and cookies, and finds the key of a cookie."""

    def __init__(
        self, keys: KeyStore, file: Path | None, *, is_view_only: bool = False
    ) -> None:
        """Let people sign in.

        Args:
            keys: finds the keys that people show.
            file: stores the hashes of cookies; None forgets them with this process.
            is_view_only: no one who is signed in may change anything.
        """
        self._keys = keys
        self._file = file
        self._most = VIEWER if is_view_only else frozenset(Scope)
        self._links: dict[bytes, float] = {}
        """The digests of one-time codes that were not used, and when they end."""
        self._cookies: dict[str, StoredKey] = {}
        """The cookies by their ids: each is a key with one token."""
        self._signature: Signature | None = None
        self._wrong = WrongKeys()

    def new_link(self) -> str:
        """Return a code that signs one browser in, once."""
        code = token_urlsafe(32)
        self._links[_digest(code)] = self._keys.now() + LINK_SECONDS
        return code

    async def use_link(self, code: str, peer: str) -> str:
        """Return a cookie for a one-time code."""
        await trio.lowlevel.checkpoint()
        if self._links.pop(_digest(code), 0) <= self._keys.now():
            self._refuse(
                peer,
                "this link was used already, or its time is over: start the server again for"
                " another one, or sign in with a token",
            )
        return await self._new_cookie(Key(name=CONSOLE, owner=DEFAULT, scopes=PERSON))

    async def use_token(self, token: str, peer: str) -> str:
        """Return a cookie for the token of a key."""
        await trio.lowlevel.checkpoint()
        found = self._keys.find(token)
        if found is None:
            self._refuse(peer, "no key has this token")
        return await self._new_cookie(found[0])

    async def sign_out(self, cookie: str) -> None:
        """End a cookie."""
        id_, _ = split_token(cookie) or ("", "")
        self._cookies.pop(id_, None)
        await self._store()

    def find(self, cookie: str) -> SignedIn | None:
        """Return who a cookie is for; None if it is wrong or over."""
        id_, secret = split_token(cookie) or ("", "")
        if id_ not in self._cookies:
            self._reread()
        stored = self._cookies.get(id_)
        token = NO_TOKEN if stored is None else stored.tokens[0]
        if not token.matches(secret) or stored is None:
            return None
        until = token.until or 0
        if until <= self._keys.now():
            return None
        found: tuple[Key, str] | None = (stored.key, "")
        if stored.key.name != CONSOLE:
            # What was taken from the key since then is taken from the cookie, too.
            found = self._keys.named(stored.key.name)
        if found is None:
            return None
        key, token_id = found
        scopes = frozenset(it for it in Scope if key.may(it)) & self._most
        key = attrs.evolve(key, scopes=scopes)
        return SignedIn(key=key, token_id=token_id, until=until)

    async def _new_cookie(self, key: Key) -> str:
        cookie, token = new_token()
        until = self._keys.now() + COOKIE_SECONDS
        self._cookies[token.id] = StoredKey(key, (attrs.evolve(token, until=until),))
        await self._store()
        return cookie

    async def _store(self) -> None:
        now = self._keys.now()
        for id_, stored in [*self._cookies.items()]:
            if (stored.tokens[0].until or 0) <= now:
                del self._cookies[id_]
        if self._file is None:
            await trio.lowlevel.checkpoint()
            return
        await trio.to_thread.run_sync(
            self._write, self._file, [*self._cookies.values()]
        )
        self._signature = signature_of(self._file)

    @staticmethod
    def _write(file: Path, cookies: list[StoredKey]) -> None:
        by_name: dict[str, tuple[Key, list[TokenHash]]] = {}
        for it in cookies:
            by_name.setdefault(it.key.name, (it.key, []))[1].extend(it.tokens)
        with changed_keys(file) as keys:
            keys.clear()
            for name, (key, tokens) in by_name.items():
                keys[name] = StoredKey(key, tuple(tokens))

    def _reread(self) -> None:
        """Read the file if it has changed: another server of the same folder may have written."""
        if self._file is None or signature_of(self._file) == self._signature:
            return
        self._signature = signature_of(self._file)
        self._cookies = {
            token.id: StoredKey(it.key, (token,))
            for it in read_keys(self._file)
            for token in it.tokens
        }

    def _refuse(self, peer: str, message: str) -> NoReturn:
        headers = {}
        if seconds := self._wrong.note(peer, self._keys.now()):
            headers = {"retry-after": str(int(seconds)), "connection": "close"}
        raise HttpError(
            429 if headers else 401,
            message,
            type="authentication_error",
            code="cannot_sign_in",
            headers=headers,
        )


def _digest(code: str) -> bytes:
    return sha256(code.encode(errors="replace")).digest()


def cookie_name(headers: Headers) -> str:
    """Return the name of the cookie at the address that a browser has asked."""
    _, _, port = headers.get("host", "").rpartition(":")
    return f"{COOKIE}_{port}" if port.isdecimal() else COOKIE


def cookie_of(headers: Headers) -> str | None:
    """Return the cookie of a request, if it has one."""
    name = cookie_name(headers)
    for pair in headers.get("cookie", "").split(";"):
        key, _, value = pair.strip().partition("=")
        if key == name:
            return value
    return None


def require_own_page(method: str, headers: Headers) -> None:
    """Refuse a request that a page of another origin has made a browser send."""
    origin = headers.get("origin")
    host = headers.get("host", "")
    is_safe = method in SAFE_METHODS
    # By `none` a browser says that a person has typed the address.
    site = headers.get("sec-fetch-site", "none" if is_safe else "same-origin")
    is_own = site == "same-origin" or (site == "none" and is_safe)
    if origin is None:
        # Browsers send it with all that may change something.
        is_own = is_own and (is_safe or "sec-fetch-site" in headers)
    else:
        is_own = is_own and origin.partition("://")[2].lower() == host.lower()
    if not is_own:
        raise HttpError(
            403,
            "this request does not come from the console's own page",
            type="permission_error",
            code="cross_site",
        )
