"""Sign-ins to the console: a one-time link becomes a cookie and a page secret, which are a key.

A browser sends its cookies to every port of a host, also to servers of other users. So a sign-in is
a token in two halves: the cookie, which no script can read, and the page secret, which the page
keeps in the storage of its origin, port included, and sends in a header. One half opens nothing.

The token is stored as a hash like the tokens of keys, so that people stay signed in when the server
restarts. It ends when its time is over, when its person signs out at any server of the folder, and
with the token that was exchanged for it. Work under way for it then ends, too.

A sign-in of a person by OpenID Connect has the scopes of their groups for twelve hours. It ends
earlier if the provider or the mapping of groups changes, and a new sign-in gives its scopes to the
person's other browsers, too.

A sign-in by link is *locked*: it can neither approve nor administer until its person enters the
approval code, which the server prints beside the link.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from hmac import compare_digest
from itertools import islice
from pathlib import Path
from secrets import choice, token_urlsafe
from typing import Final, NoReturn, TypeAlias

import attrs
import trio
from starlette.datastructures import Headers

from orchestrator.products.server.console.oidc import Person
from orchestrator.products.server.keys import file as key_file
from orchestrator.products.server.keys.key import CONSOLE, DEFAULT, ORDINARY, Key, Scope
from orchestrator.products.server.keys.store import KeyStore
from orchestrator.products.server.keys.tokens import NO_TOKEN, TokenHash, new_token, split_token
from orchestrator.products.server.keys.wrong_keys import WrongKeys
from orchestrator.products.server.transport.errors import HttpError

FILE: Final = "keys/console.json"
"""The file of the cookies, beside the file of the keys."""
LINK_SECONDS: Final = 3600
COOKIE_SECONDS: Final = 7 * 24 * 3600
UNLOCKED_SECONDS: Final = 12 * 3600
PERSON_SECONDS: Final = 12 * 3600
"""The seconds after which a person shows their groups again."""
OIDC: Final = "oidc/"
"""The start of the names of persons; no key in a file can have it."""
COOKIE: Final = "orchestrator"
"""The start of the cookie's name; the port follows, because all ports share cookies."""
HEADER: Final = "x-console-secret"
"""The header of the page secret. `viewer/sources/run/page_secret.js` repeats it."""
MOST_COOKIES: Final = 8
"""The most cookies of one name that are tried."""
HALF: Final = 32
"""The characters of the page secret; 128 random bits, as many as the cookie has."""
LOCKED: Final = frozenset({Scope.APPROVE, Scope.ADMIN})
"""The scopes of a sign-in that need the approval code."""
CODE_LETTERS: Final = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
CODE_LENGTH: Final = 10
SUBJECT: Final = re.compile(r"[A-Za-z0-9._@+|=-]{1,64}")
"""A subject that is used in names as it is; another one is hashed."""
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
    shown: str
    """The name of the person, or of the key."""


class SignIns:
    """Makes one-time links and sign-ins, and finds the key of a sign-in."""

    def __init__(
        self,
        keys: KeyStore,
        file: Path | None,
        *,
        is_view_only: bool = False,
        person_mark: str = "",
    ) -> None:
        """Let people sign in.

        Args:
            keys: the keys whose tokens sign in, and the clock.
            file: stores the hashes of cookies; None forgets them.
            is_view_only: no sign-in can change anything.
            person_mark: the mark of sign-ins by OpenID Connect; "" accepts none.
        """
        self._keys = keys
        self._person_mark = person_mark
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
        shown, token = new_token()
        return await self._add(shown, token, _PERSON_KEY, COOKIE_SECONDS)

    async def use_token(self, token: str, peer: str) -> str:
        """Return the token of a sign-in for the token of a key."""
        await trio.lowlevel.checkpoint()
        found = self._keys.find(token)
        if found is None:
            self._refuse(peer, "no key has this token")
        key, token_id = found
        shown, hashed = new_token()
        hashed = attrs.evolve(
            hashed,
            shown=self._keys.mark_of(token_id, hashed.salt),
            unlocked_until=self._keys.now() + UNLOCKED_SECONDS,
        )
        return await self._add(shown, hashed, key, COOKIE_SECONDS)

    async def use_person(self, key: Key, shown_name: str) -> str:
        """Return the token of a sign-in for a person; their other sign-ins get the same scopes."""
        shown, token = new_token()
        token = attrs.evolve(
            token,
            shown=self._person_mark,
            person=shown_name,
            unlocked_until=self._keys.now() + PERSON_SECONDS,
        )
        return await self._add(shown, token, key, PERSON_SECONDS)

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
        if stored.key.name.startswith(OIDC):
            if not self._person_mark or token.shown != self._person_mark:
                return None
        elif stored.key.name != CONSOLE:
            # The cookie loses the scopes that the key has lost since then.
            found = self._keys.marked(token.shown, token.salt)
        if found is None:
            return None
        key, token_id = found
        scopes = frozenset(it for it in Scope if key.may(it)) & self._most
        is_locked = token.unlocked_until <= self._keys.now()
        locked = scopes & LOCKED if is_locked else frozenset[Scope]()
        key = attrs.evolve(key, scopes=scopes - locked)
        shown_name = token.person or key.name
        return SignedIn(key=key, token_id=token_id, cookie_id=id_, locked=locked, shown=shown_name)

    def token_in(self, headers: Mapping[str, str]) -> str | None:
        """Return the token of the sign-in that a request shows by its cookie and page secret.

        A page on another port may have set cookies of the same name.
        """
        secret = headers.get(HEADER)
        if secret is None or len(secret) != HALF:
            return None
        tokens = islice(_tokens_in(headers, secret), MOST_COOKIES)
        return next((it for it in tokens if self.find(it) is not None), None)

    def ends_at(self, cookie_id: str) -> float:
        """Return the time when a cookie ends; 0 if there is no such cookie."""
        self._reread()
        stored = self._cookies.get(cookie_id)
        return 0 if stored is None else stored.tokens[0].until or 0

    async def _add(self, shown: str, token: TokenHash, key: Key, seconds: float) -> str:
        """Store a sign-in, and return its token."""
        token = attrs.evolve(token, until=self._keys.now() + seconds)

        def change(cookies: _Cookies) -> None:
            for id_, it in cookies.items():
                if it.key.name == key.name:
                    cookies[id_] = attrs.evolve(it, key=key)
            cookies[token.id] = key_file.StoredKey(key, (token,))

        await self._change(change)
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


def key_of(person: Person) -> Key:
    """Return the key of a person, who owns their own sessions.

    A subject is unique at its issuer alone, so the name has a digest of the issuer, too.
    """
    subject = person.subject
    if SUBJECT.fullmatch(subject) is None:
        # The sign is in no subject that is used as it is.
        subject = f"~{sha256(subject.encode()).hexdigest()[:40]}"
    name = f"{OIDC}{sha256(person.issuer.encode()).hexdigest()[:8]}/{subject}"
    return Key(name=name, owner=name, scopes=person.scopes)


def _digest(code: str) -> bytes:
    return sha256(code.encode(errors="replace")).digest()


def cookie_name(headers: Mapping[str, str]) -> str:
    """Return the name of the cookie at the address of a request."""
    _, _, port = headers.get("host", "").rpartition(":")
    return f"{COOKIE}_{port}" if port.isdecimal() else COOKIE


def _tokens_in(headers: Mapping[str, str], secret: str) -> Iterator[str]:
    """Yield each cookie of a request with its page secret."""
    name = cookie_name(headers)
    for pair in headers.get("cookie", "").split(";"):
        key, _, value = pair.strip().partition("=")
        if key == name:
            yield value + secret


def is_page(headers: Mapping[str, str]) -> bool:
    """Return whether a request has a sign-in, and no key of its own."""
    return HEADER in headers and "authorization" not in headers and "x-api-key" not in headers


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
