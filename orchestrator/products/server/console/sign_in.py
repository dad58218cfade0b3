"""Sign-ins to the console: a one-time link becomes a cookie and a page secret, which are a key.

A browser sends its cookies to every port of a host, also to servers of other users. So a sign-in is
a token in two halves: the cookie, which no script can read, and the page secret, which the page
keeps in the storage of its origin, port included, and sends in a header. One half opens nothing.

The token is stored as a hash like the tokens of keys, so that people stay signed in when the server
restarts. It ends when its time is over, when its person signs out at any server of the folder, and
with the token that was exchanged for it. Work under way for it then ends, too.

A sign-in by link is *locked*: it can neither approve nor administer until its person enters the
approval code, which the server prints beside the link.
"""

from collections.abc import Callable, Iterable
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from secrets import choice, token_urlsafe
from typing import Final, NoReturn, TypeAlias

import attrs
import trio
from starlette.datastructures import Headers

from orchestrator.products.server.keys import file as key_file
from orchestrator.products.server.keys.key import CONSOLE, DEFAULT, ORDINARY, Key, Scope
from orchestrator.products.server.keys.store import KeyStore
from orchestrator.products.server.keys.tokens import NO_TOKEN, new_token, split_token
from orchestrator.products.server.keys.wrong_keys import WrongKeys
from orchestrator.products.server.transport.errors import HttpError

FILE: Final = "keys/console.json"
"""The file of the cookies, beside the file of the keys."""
LINK_SECONDS: Final = 3600
COOKIE_SECONDS: Final = 7 * 24 * 3600
UNLOCKED_SECONDS: Final = 12 * 3600
COOKIE: Final = "orchestrator"
"""The start of the cookie's name; the port follows, because all ports share cookies."""
HEADER: Final = "x-console-secret"
"""The header of the page secret. `viewer/sources/run/page_secret.js` repeats it."""
HALF: Final = 32
"""The characters of the page secret; 128 random bits, as many as the cookie has."""
LOCKED: Final = frozenset({Scope.APPROVE, Scope.ADMIN})
"""The scopes of a sign-in that need the approval code."""
CODE_LETTERS: Final = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
CODE_LENGTH: Final = 10
SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
PERSON: Final = frozenset({*ORDINARY, Scope.APPROVE, Scope.ADMIN})
"""The scopes of the person who started the server."""
VIEWER: Final = frozenset({Scope.READ})
_PERSON_KEY: Final = Key(name=CONSOLE, owner=DEFAULT, scopes=PERSON)
_Cookies: TypeAlias = dict[str, key_file.StoredKey]


@attrs.frozen(kw_only=True)
class SignedIn:
    """The key of a request with a cookie."""

    key: Key
    token_id: str
    """The token that the cookie ends with; "" for no token."""
    cookie_id: str
    """The id of the cookie: `SignIns.ends_at` returns its end."""
    locked: frozenset[Scope]
    """The scopes that `SignIns.unlock` adds."""


class SignIns:
    """Makes one-time links and sign-ins, and finds the key of a sign-in."""

    def __init__(self, keys: KeyStore, file: Path | None, *, is_view_only: bool = False) -> None:
        """Let people sign in; `file` stores the hashes of cookies, or None forgets them."""
        self._keys = keys
        self._file = file
        self._most = VIEWER if is_view_only else frozenset(Scope)
        self._links: dict[bytes, float] = {}
        """The digests of unused one-time codes, with the times when they end."""
        self._cookies: _Cookies = {}
        """The cookies by their ids: each is a key with one token."""
        self._signature: key_file.Signature | None = None
        self._wrong = WrongKeys()
        code = "".join(choice(CODE_LETTERS) for _ in range(CODE_LENGTH))
        self.approval_code: Final = f"{code[: CODE_LENGTH // 2]}-{code[CODE_LENGTH // 2 :]}"
        """Unlocks sign-ins at this server, until it ends."""

    def new_link(self) -> str:
        """Return a code that signs one browser in, once."""
        code = token_urlsafe(32)
        self._links[_digest(code)] = self._keys.now() + LINK_SECONDS
        return code

    async def use_link(self, code: str, peer: str) -> str:
        """Return the token of a locked sign-in for a one-time code."""
        await trio.lowlevel.checkpoint()
        if self._links.pop(_digest(code), 0) <= self._keys.now():
            self._refuse(
                peer,
                "this link was already used, or is too old: restart the server to get another"
                " one, or sign in with a token",
            )
        return await self._new_sign_in(_PERSON_KEY, "", unlocked_until=0)

    async def use_token(self, token: str, peer: str) -> str:
        """Return the token of a sign-in for the token of a key."""
        await trio.lowlevel.checkpoint()
        found = self._keys.find(token)
        if found is None:
            self._refuse(peer, "no key has this token")
        return await self._new_sign_in(*found, unlocked_until=self._keys.now() + UNLOCKED_SECONDS)

    async def unlock(self, token: str, shown: str, peer: str) -> None:
        """Add the locked scopes to a sign-in; `shown` is the approval code or its key's token."""
        await trio.lowlevel.checkpoint()
        signed_in = self.find(token)
        code = shown.strip().upper().encode(errors="replace")
        found = self._keys.find(shown.strip())
        is_own_token = signed_in and found and found[0].name == signed_in.key.name
        if signed_in is None or not (
            compare_digest(code, self.approval_code.encode()) or is_own_token
        ):
            self._refuse(peer, "this is not the approval code that the server printed", status=403)
        id_, until = signed_in.cookie_id, self._keys.now() + UNLOCKED_SECONDS

        def change(cookies: _Cookies) -> None:
            if stored := cookies.get(id_):
                unlocked = attrs.evolve(stored.tokens[0], unlocked_until=until)
                cookies[id_] = attrs.evolve(stored, tokens=(unlocked,))

        await self._change(change)

    async def sign_out(self, token: str) -> None:
        """End a sign-in."""
        id_, _ = split_token(token) or ("", "")
        await self._change(lambda cookies: cookies.pop(id_, None))

    def find(self, shown: str) -> SignedIn | None:
        """Return the key of a sign-in; None if its token is wrong or over."""
        self._reread()
        id_, secret = split_token(shown) or ("", "")
        stored = self._cookies.get(id_)
        token = NO_TOKEN if stored is None else stored.tokens[0]
        if not token.matches(secret) or stored is None:
            return None
        if (token.until or 0) <= self._keys.now():
            return None
        found: tuple[Key, str] | None = (stored.key, "")
        if stored.key.name != CONSOLE:
            # The cookie loses the scopes that the key has lost since then.
            found = self._keys.marked(token.shown, token.salt)
        if found is None:
            return None
        key, token_id = found
        scopes = frozenset(it for it in Scope if key.may(it)) & self._most
        is_locked = token.unlocked_until <= self._keys.now()
        locked = scopes & LOCKED if is_locked else frozenset[Scope]()
        key = attrs.evolve(key, scopes=scopes - locked)
        return SignedIn(key=key, token_id=token_id, cookie_id=id_, locked=locked)

    def ends_at(self, cookie_id: str) -> float:
        """Return the time when a cookie ends; 0 if there is no such cookie."""
        self._reread()
        stored = self._cookies.get(cookie_id)
        return 0 if stored is None else stored.tokens[0].until or 0

    async def _new_sign_in(self, key: Key, token_id: str, *, unlocked_until: float) -> str:
        shown, token = new_token()
        token = attrs.evolve(
            token,
            until=self._keys.now() + COOKIE_SECONDS,
            shown=self._keys.mark_of(token_id, token.salt),
            unlocked_until=unlocked_until,
        )
        stored = key_file.StoredKey(key, (token,))
        await self._change(lambda cookies: cookies.update({token.id: stored}))
        return shown

    async def _change(self, change: Callable[[_Cookies], object]) -> None:
        """Change the cookies in memory, or in the file, which other servers share."""
        if self._file is None:
            await trio.lowlevel.checkpoint()
            change(self._cookies)
            self._cookies = _without_old(self._cookies, self._keys.now())
            self._keys.look_again()
            return
        await trio.to_thread.run_sync(_change_file, self._file, change, self._keys.now())
        self._reread()

    def _reread(self) -> None:
        """Read the file if it has changed: another server of the folder may have written it."""
        if self._file is None:
            return
        signature = key_file.signature_of(self._file)
        if signature != self._signature:
            # Before the file is read: a change meanwhile is seen the next time.
            self._signature = signature
            self._cookies = _cookies_of(key_file.read_keys(self._file))
            self._keys.look_again()

    def _refuse(self, peer: str, message: str, *, status: int = 401) -> NoReturn:
        headers = {}
        if seconds := self._wrong.note(peer, self._keys.now()):
            headers = {"retry-after": str(int(seconds)), "connection": "close"}
        raise HttpError(
            429 if headers else status,
            message,
            type="authentication_error",
            code="cannot_sign_in",
            headers=headers,
        )


def _cookies_of(keys: Iterable[key_file.StoredKey]) -> _Cookies:
    """Return the cookies by their ids, each as a key with one token."""
    return {token.id: key_file.StoredKey(it.key, (token,)) for it in keys for token in it.tokens}


def _without_old(cookies: _Cookies, now: float) -> _Cookies:
    return {id_: it for id_, it in cookies.items() if (it.tokens[0].until or 0) > now}


def _change_file(file: Path, change: Callable[[_Cookies], object], now: float) -> None:
    with key_file.changed_keys(file) as keys:
        cookies = _cookies_of(keys.values())
        change(cookies)
        keys.clear()
        for it in _without_old(cookies, now).values():
            same = keys.setdefault(it.key.name, key_file.StoredKey(it.key, ()))
            keys[it.key.name] = attrs.evolve(same, tokens=(*same.tokens, *it.tokens))


def _digest(code: str) -> bytes:
    return sha256(code.encode(errors="replace")).digest()


def cookie_name(headers: Headers) -> str:
    """Return the name of the cookie at the address of a request."""
    _, _, port = headers.get("host", "").rpartition(":")
    return f"{COOKIE}_{port}" if port.isdecimal() else COOKIE


def token_of(headers: Headers) -> str | None:
    """Return the token of a sign-in from its cookie and page secret, if both are there."""
    secret = headers.get(HEADER)
    if secret is None:
        return None
    name = cookie_name(headers)
    for pair in headers.get("cookie", "").split(";"):
        key, _, value = pair.strip().partition("=")
        if key == name:
            return value + secret
    return None


def halves_of(token: str) -> tuple[str, str]:
    """Return the cookie and the page secret of a sign-in."""
    return token[:-HALF], token[-HALF:]


def require_own_page(method: str, headers: Headers) -> None:
    """Refuse a request that a page of another origin has made a browser send."""
    origin = headers.get("origin")
    host = headers.get("host", "")
    is_safe = method in SAFE_METHODS
    # A browser sends `none` if a person has typed the address.
    site = headers.get("sec-fetch-site", "none" if is_safe else "same-origin")
    is_own = site == "same-origin" or (site == "none" and is_safe)
    if origin is None:
        # Browsers send it with every request that may change something.
        is_own = is_own and (is_safe or "sec-fetch-site" in headers)
    else:
        is_own = is_own and origin.partition("://")[2].lower() == host.lower()
    if not is_own:
        raise HttpError(
            403, "this request does not come from the console's own page", code="cross_site"
        )
