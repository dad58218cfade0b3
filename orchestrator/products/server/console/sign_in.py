"""Who is signed in to the console: a one-time link becomes a cookie, and a cookie is a key.

A cookie is a token of its own, stored as a hash like those of keys, so that people stay signed in
when the server is started again. It ends with its time, when its person signs out at any server of
the folder, and with the very token that was shown; what is under way for it, with it. It counts
only in requests of the console's own pages.
"""

from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from typing import Final, NoReturn, TypeAlias

import attrs
import trio
from starlette.datastructures import Headers

from orchestrator.products.server.keys.file import (
    Signature,
    StoredKey,
    changed_keys,
    read_keys,
    signature_of,
)
from orchestrator.products.server.keys.key import CONSOLE, DEFAULT, ORDINARY, Key, Scope
from orchestrator.products.server.keys.store import KeyStore
from orchestrator.products.server.keys.tokens import NO_TOKEN, new_token, split_token
from orchestrator.products.server.keys.wrong_keys import WrongKeys
from orchestrator.products.server.transport.errors import HttpError

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
_PERSON_KEY: Final = Key(name=CONSOLE, owner=DEFAULT, scopes=PERSON)
_Cookies: TypeAlias = dict[str, StoredKey]


@attrs.frozen(kw_only=True)
class SignedIn:
    """Who makes a request with a cookie."""

    key: Key
    token_id: str
    """A token with which it ends; "" is none."""
    cookie_id: str
    """Which cookie it is: `SignIns.ends_at` says when it ends."""


class SignIns:
    """Makes one-time links and cookies, and finds the key of a cookie."""

    def __init__(self, keys: KeyStore, file: Path | None, *, is_view_only: bool = False) -> None:
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
        self._cookies: _Cookies = {}
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
        return await self._new_cookie(_PERSON_KEY)

    async def use_token(self, token: str, peer: str) -> str:
        """Return a cookie for the token of a key."""
        await trio.lowlevel.checkpoint()
        found = self._keys.find(token)
        if found is None:
            self._refuse(peer, "no key has this token")
        return await self._new_cookie(*found)

    async def sign_out(self, cookie: str) -> None:
        """End a cookie."""
        id_, _ = split_token(cookie) or ("", "")
        await self._change(lambda cookies: cookies.pop(id_, None))

    def find(self, cookie: str) -> SignedIn | None:
        """Return who a cookie is for; None if it is wrong or over."""
        self._reread()
        id_, secret = split_token(cookie) or ("", "")
        stored = self._cookies.get(id_)
        token = NO_TOKEN if stored is None else stored.tokens[0]
        if not token.matches(secret) or stored is None:
            return None
        if (token.until or 0) <= self._keys.now():
            return None
        found: tuple[Key, str] | None = (stored.key, "")
        if stored.key.name != CONSOLE:
            # What was taken from the key since then is taken from the cookie, too.
            found = self._keys.marked(token.shown, token.salt)
        if found is None:
            return None
        key, token_id = found
        scopes = frozenset(it for it in Scope if key.may(it)) & self._most
        key = attrs.evolve(key, scopes=scopes)
        return SignedIn(key=key, token_id=token_id, cookie_id=id_)

    def ends_at(self, cookie_id: str) -> float:
        """Return when a cookie ends; it has ended already if there is none."""
        self._reread()
        stored = self._cookies.get(cookie_id)
        return 0 if stored is None else stored.tokens[0].until or 0

    async def _new_cookie(self, key: Key, token_id: str = "") -> str:
        cookie, token = new_token()
        token = attrs.evolve(
            token,
            until=self._keys.now() + COOKIE_SECONDS,
            shown=self._keys.mark_of(token_id, token.salt),
        )
        stored = StoredKey(key, (token,))
        await self._change(lambda cookies: cookies.update({token.id: stored}))
        return cookie

    async def _change(self, change: Callable[[_Cookies], object]) -> None:
        """Change the cookies, in memory or in the file, which has those of other servers, too."""
        if self._file is None:
            await trio.lowlevel.checkpoint()
            change(self._cookies)
            self._cookies = _without_old(self._cookies, self._keys.now())
            self._keys.look_again()
            return
        await trio.to_thread.run_sync(_change_file, self._file, change, self._keys.now())
        self._reread()

    def _reread(self) -> None:
        """Read the file if it has changed: another server of the same folder may have written."""
        if self._file is None:
            return
        signature = signature_of(self._file)
        if signature != self._signature:
            # Before it is read: a change in between is seen the next time.
            self._signature = signature
            self._cookies = _cookies_of(read_keys(self._file))
            self._keys.look_again()

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


def _cookies_of(keys: Iterable[StoredKey]) -> _Cookies:
    """Return the cookies by their ids, each as a key with one token."""
    return {token.id: StoredKey(it.key, (token,)) for it in keys for token in it.tokens}


def _without_old(cookies: _Cookies, now: float) -> _Cookies:
    return {id_: it for id_, it in cookies.items() if (it.tokens[0].until or 0) > now}


def _change_file(file: Path, change: Callable[[_Cookies], object], now: float) -> None:
    with changed_keys(file) as keys:
        cookies = _cookies_of(keys.values())
        change(cookies)
        keys.clear()
        for it in _without_old(cookies, now).values():
            same = keys.setdefault(it.key.name, StoredKey(it.key, ()))
            keys[it.key.name] = attrs.evolve(same, tokens=(*same.tokens, *it.tokens))


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
