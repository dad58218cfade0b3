"""Sign-in with an OpenID Connect provider: the groups of a person become scopes.

The flow is an authorization code with PKCE. The server keeps no state of a sign-in under way: the
page keeps a *ticket* in the storage of its tab, and state, nonce and verifier are keyed hashes of
the ticket. So each server of a cluster can finish a sign-in, and strangers cannot fill the memory.
"""

import base64
import hmac
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote, urlencode, urlsplit

import attrs
import httpx2
import msgspec
import trio

from orchestrator.agents import well_formed
from orchestrator.ports.errors import ServerSetupError
from orchestrator.products.server.console.id_token import InvalidTokenError, claims_of, has_key
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.transport.api_key import is_loopback
from orchestrator.products.server.transport.errors import SOON, HttpError

DOCUMENT: Final = "/.well-known/openid-configuration"
SECONDS: Final = 10
"""The most seconds for one answer of the provider."""
LARGEST: Final = 1_000_000
"""The most bytes of one answer of the provider."""
AT_ONCE: Final = 10
"""The number of requests to the provider at the same time."""
KEPT_SECONDS: Final = 3600
"""The seconds after which the document and the keys of the provider are read again."""
LOOK_AGAIN_SECONDS: Final = 30
"""The least seconds between two reads because of an unknown key: anyone can send one."""
TICKET_SECONDS: Final = 600
"""The most seconds between the two ends of a sign-in."""
BodyT = TypeVar("BodyT")


@attrs.frozen(kw_only=True)
class OidcSettings:
    """The provider, this server as its client, and the scopes of groups."""

    issuer: str
    """The address of the provider, as its tokens name it."""
    client_id: str
    client_secret: str = attrs.field(default="", repr=False)
    """Empty for a public client."""
    groups: Mapping[str, frozenset[Scope]]
    """The scopes of each group; a person gets the scopes of all of their groups."""
    claim: str = "groups"
    """The claim of the ID token that lists the groups of a person."""

    def __attrs_post_init__(self) -> None:
        require_secure(self.issuer, "--oidc-issuer")
        if not self.client_id:
            raise ServerSetupError("--oidc-issuer needs --oidc-client, the id of this client there")
        if not self.groups:
            raise ServerSetupError(
                "no person could do anything: map a group to scopes, such as"
                " --oidc-group engineers=read,run,steer"
            )

    @property
    def mark(self) -> str:
        """A digest of the settings: sign-ins end when the provider or the mapping changes."""
        groups = sorted((name, sorted(scopes)) for name, scopes in self.groups.items())
        values = [self.issuer, self.client_id, self.claim, groups]
        return sha256(msgspec.json.encode(values)).hexdigest()

    @property
    def host(self) -> str:
        return urlsplit(self.issuer).hostname or ""


@attrs.frozen(kw_only=True)
class Person:
    """A person as the provider describes them."""

    issuer: str
    subject: str
    """The name of the person at the provider, which is never given to another person."""
    shown: str
    """A name to show, which may change."""
    scopes: frozenset[Scope]


@attrs.frozen(kw_only=True)
class BegunSignIn:
    """A sign-in that the page continues at the provider."""

    location: str
    ticket: str


class _Document(msgspec.Struct, kw_only=True):
    """The part of a provider's configuration that a client needs."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    id_token_signing_alg_values_supported: tuple[str, ...] = ("RS256",)
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    scopes_supported: tuple[str, ...] = ()


class _KeySet(msgspec.Struct):
    keys: list[dict[str, Any]]


class _Tokens(msgspec.Struct):
    id_token: str


@attrs.frozen
class _Known:
    """The configuration and the keys of the provider, and the time when they were read."""

    document: _Document
    keys: Sequence[Mapping[str, Any]]
    at: float


class OidcSignIn:
    """Signs people in at one provider."""

    def __init__(
        self, settings: OidcSettings, *, secret: bytes, clock: Callable[[], float]
    ) -> None:
        """Sign in; servers with the same `secret` can finish each other's sign-ins."""
        self.settings = settings
        self._secret = secret
        self._clock = clock
        self._known: _Known | None = None
        self._limiter = trio.CapacityLimiter(AT_ONCE)
        self._used: dict[str, float] = {}
        """The tickets of finished sign-ins, until they end."""

    async def begin(self, origin: str) -> BegunSignIn:
        """Return the address where a person signs in, for the page of an origin."""
        known = await self._read_provider(lambda _: True)
        ticket = self._new_ticket()
        challenge = sha256(self._keyed("verifier", ticket).encode()).digest()
        offered = known.document.scopes_supported
        extra = [it for it in ("profile", "email", "groups") if it in offered]
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": _redirect_uri(origin),
            "scope": " ".join(["openid", *extra]),
            "state": self._keyed("state", ticket),
            "nonce": self._keyed("nonce", ticket),
            "code_challenge": _base64(challenge),
            "code_challenge_method": "S256",
        }
        there = known.document.authorization_endpoint
        join = "&" if urlsplit(there).query else "?"
        return BegunSignIn(location=f"{there}{join}{urlencode(query)}", ticket=ticket)

    async def finish(self, origin: str, *, ticket: str, state: str, code: str, iss: str) -> Person:
        """Return the person whom the provider has sent back with a code.

        Raises:
            HttpError: the sign-in is not of this browser, or the provider does not confirm it.
        """
        await trio.lowlevel.checkpoint()
        self._require_ticket(ticket)
        if not hmac.compare_digest(self._keyed("state", ticket).encode(), state.encode()):
            raise refused("this browser did not begin this sign-in: begin again")
        # RFC 9207: an answer of another provider must not be taken for one of this provider.
        if iss and iss != self.settings.issuer:
            raise refused("another provider has answered: begin again")
        token = await self._exchange(origin, ticket, code)
        claims = await self._claims(token, self._keyed("nonce", ticket))
        # Twice at the same time: the second one is too late.
        self._require_ticket(ticket)
        self._used[ticket] = _end_of(ticket)
        return self._person(claims)

    def _person(self, claims: Mapping[str, Any]) -> Person:
        named: object = claims.get(self.settings.claim)
        names = cast("list[object]", named) if isinstance(named, list) else [named]
        groups = [scopes for name, scopes in self.settings.groups.items() if name in names]
        subject: str = claims["sub"]
        shown = next(
            (it for name in ("preferred_username", "email", "name") if (it := claims.get(name))),
            subject,
        )
        return Person(
            issuer=self.settings.issuer,
            subject=subject,
            shown=well_formed(str(shown)[:100]),
            scopes=frozenset[Scope]().union(*groups),
        )

    async def _exchange(self, origin: str, ticket: str, code: str) -> str:
        """Return the ID token for the code of a sign-in."""
        known = await self._read_provider(lambda _: True)
        settings = self.settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": _redirect_uri(origin),
            "code_verifier": self._keyed("verifier", ticket),
            "client_id": settings.client_id,
        }
        headers = {"accept": "application/json"}
        if settings.client_secret:
            methods = known.document.token_endpoint_auth_methods_supported
            if "client_secret_basic" in methods:
                login = f"{quote(settings.client_id, '')}:{quote(settings.client_secret, '')}"
                headers["authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
            else:
                form["client_secret"] = settings.client_secret
        tokens = await self._ask(
            "POST", known.document.token_endpoint, _Tokens, data=form, headers=headers
        )
        return tokens.id_token

    async def _claims(self, token: str, nonce: str) -> Mapping[str, Any]:
        """Return the checked claims of an ID token."""
        try:
            known = await self._read_provider(lambda it: has_key(token, it.keys))
            return claims_of(
                token,
                known.keys,
                algorithms=known.document.id_token_signing_alg_values_supported,
                issuer=self.settings.issuer,
                client_id=self.settings.client_id,
                nonce=nonce,
            )
        except InvalidTokenError as exc:
            raise refused(f"the ID token of {self.settings.host} is not valid: {exc}") from exc

    async def _read_provider(self, is_enough: Callable[[_Known], bool]) -> _Known:
        """Return the configuration and the keys, read again if they are old or not enough."""
        await trio.lowlevel.checkpoint()
        known, now = self._known, self._clock()
        if known is not None and now - known.at < (
            KEPT_SECONDS if is_enough(known) else LOOK_AGAIN_SECONDS
        ):
            return known
        issuer = self.settings.issuer
        document = await self._ask("GET", issuer.rstrip("/") + DOCUMENT, _Document)
        if document.issuer != issuer:
            raise unavailable(
                f"the provider at {issuer} calls itself {document.issuer}: give that address to"
                " --oidc-issuer"
            )
        endpoints = (document.authorization_endpoint, document.token_endpoint)
        for url in (*endpoints, document.jwks_uri):
            _require_secure_endpoint(url, issuer)
        keys = await self._ask("GET", document.jwks_uri, _KeySet)
        self._known = found = _Known(document, keys.keys, now)
        return found

    async def _ask(
        self,
        method: str,
        url: str,
        kind: type[BodyT],
        *,
        data: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> BodyT:
        """Return the JSON body of an answer of the provider."""
        host, status, body = self.settings.host, 0, bytearray()
        try:
            with trio.move_on_after(SECONDS):
                async with (
                    self._limiter,
                    httpx2.AsyncClient(timeout=SECONDS) as client,
                    client.stream(method, url, data=data, headers=headers) as answer,
                ):
                    async for part in answer.aiter_bytes():
                        body += part
                        if len(body) > LARGEST:
                            raise unavailable(f"{host} sent more than {LARGEST:,} bytes")
                    status = answer.status_code
        except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
            raise unavailable(f"{host} cannot be reached: {type(exc).__name__}") from exc
        if not status:
            raise unavailable(f"{host} has not answered for {SECONDS} seconds")
        if 400 <= status < 500 and method == "POST":
            # The body may quote the code or the secret.
            raise refused(f"{host} does not accept this sign-in ({status}): begin again")
        if status != 200:
            raise unavailable(f"{host} answered with {status}")
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.MsgspecError, RecursionError) as exc:
            raise unavailable(f"the answer of {host} is not valid: {exc}") from exc

    def _new_ticket(self) -> str:
        now = self._clock()
        self._used = {it: until for it, until in self._used.items() if until > now}
        body = f"{token_urlsafe(24)}.{int(now + TICKET_SECONDS)}"
        return f"{body}.{self._keyed('ticket', body)}"

    def _require_ticket(self, ticket: str) -> None:
        body, _, mac = ticket.rpartition(".")
        is_ours = hmac.compare_digest(self._keyed("ticket", body).encode(), mac.encode())
        if not is_ours or _end_of(ticket) <= self._clock() or ticket in self._used:
            raise refused("this sign-in was already used, or is too old: begin again")

    def _keyed(self, name: str, text: str) -> str:
        return _base64(hmac.digest(self._secret, f"oidc {name} {text}".encode(), "sha256"))


def _end_of(ticket: str) -> float:
    return float(ticket.split(".")[1])


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _redirect_uri(origin: str) -> str:
    """Return the page of the console, which the provider sends people back to."""
    return f"{origin}/"


def require_secure(url: str, name: str) -> None:
    """Refuse an address that others on the network could answer for."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError as exc:
        raise ServerSetupError(f"{name} is not an address: {exc}") from exc
    is_plain = bool(host) and not (parts.query or parts.fragment or parts.username)
    is_secure = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    if not (is_plain and is_secure):
        raise ServerSetupError(f"{name} is {url!r}; it must be https://HOST/PATH")


def _require_secure_endpoint(url: str, issuer: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" and not url.startswith("http://" + urlsplit(issuer).netloc + "/"):
        raise unavailable(f"the provider at {issuer} names an address without TLS")


def parse_groups(options: Sequence[str]) -> dict[str, frozenset[Scope]]:
    """Return the scopes of groups from texts such as `engineers=read,run,steer`."""
    groups: dict[str, frozenset[Scope]] = {}
    for option in options:
        name, _, scopes = option.rpartition("=")
        try:
            found = frozenset(Scope(it.strip()) for it in scopes.split(","))
        except ValueError as exc:
            raise ServerSetupError(
                f"--oidc-group is {option!r}; write GROUP=SCOPE,SCOPE with the scopes"
                f" {', '.join(Scope)}"
            ) from exc
        if not name:
            raise ServerSetupError(f"--oidc-group is {option!r}; write GROUP=SCOPE,SCOPE")
        groups[name] = groups.get(name, frozenset()) | found
    return groups


def refused(message: str) -> HttpError:
    """Return the error of a sign-in that is not confirmed."""
    return HttpError(401, message, type="authentication_error", code="cannot_sign_in")


def unavailable(message: str) -> HttpError:
    """Return the error of a provider that does not answer as it should."""
    return HttpError(503, message, code="sign_in_unavailable", headers=SOON)
