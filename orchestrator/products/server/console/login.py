"""Signing in to the console and out of it."""

from typing import TYPE_CHECKING, Final

import msgspec
import trio
from starlette.responses import Response

from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.audit import peer_of
from orchestrator.products.server.console import sign_in
from orchestrator.products.server.console.oidc import OidcSignIn
from orchestrator.products.server.keys.key import DEFAULT, Scope
from orchestrator.products.server.operation import Answer, Operation
from orchestrator.products.server.transport.errors import HttpError, not_found
from orchestrator.version import VERSION

if TYPE_CHECKING:
    from orchestrator.products.server.state import ServerState

NO_CONTENT: Final = 204


class Login(msgspec.Struct, kw_only=True):
    """The code of a one-time link, or the token of a key."""

    code: str = ""
    token: str = ""


class PageSecret(msgspec.Struct, kw_only=True):
    """The half of a sign-in that the page keeps; the cookie is the other one."""

    secret: str


class OidcBegun(msgspec.Struct, kw_only=True):
    """The address of the provider's page, and the ticket that the page keeps meanwhile."""

    location: str
    ticket: str


class OidcAnswer(msgspec.Struct, kw_only=True):
    """The ticket of a sign-in, and the answer that the provider has put into the address."""

    ticket: str
    state: str
    code: str
    iss: str = ""


class Unlock(msgspec.Struct, kw_only=True):
    """The approval code of the server, or the token of the key that is signed in."""

    code: str


class Me(msgspec.Struct, kw_only=True):
    """The person who is signed in, and the agents of the server."""

    key: str
    shown: str
    """The name that the page shows: of the person, or of the key."""
    owner: str
    scopes: list[Scope]
    locked: list[Scope]
    """The scopes that the approval code adds."""
    agents: dict[str, str]
    """The reason why each served agent cannot run; empty if it can."""
    lead: str
    """The agent that leads: no other one delegates to it."""
    file: str
    """The name of the file that defines the agents, without its folder."""
    variables: dict[str, str]
    """The variable of each agent in that file, if it is Python."""
    version: str
    now: float
    """The time of the server's clock: the browser's may differ."""


@Operation(
    "POST",
    "/console/login",
    None,
    Answer("The cookie is set", PageSecret),
    body=Login,
    errors=(401, 403, 429),
    is_public=True,
)
async def log_in(call: ApiCall) -> Response:
    """Sign in with a one-time link, or with the token of a key."""
    headers = call.request.headers
    sign_in.require_own_page("POST", headers)
    body = await call.body(Login)
    peer = peer_of(call.request.scope)
    sign_ins = call.server.sign_ins
    if body.code:
        token = await sign_ins.use_link(body.code, peer)
    elif body.token:
        token = await sign_ins.use_token(body.token.strip(), peer)
    else:
        raise HttpError(400, "send a code or a token", code="nothing_shown")
    return _signed_in(call, token, sign_in.COOKIE_SECONDS)


@Operation(
    "POST",
    "/console/oidc",
    None,
    Answer("The sign-in has begun", OidcBegun),
    errors=(403, 404, 503),
    is_public=True,
)
async def begin_oidc(call: ApiCall) -> Response:
    """Begin to sign in at the OpenID Connect provider."""
    oidc = _oidc(call)
    begun = await oidc.begin(_own_origin(call))
    return json_response(OidcBegun(location=begun.location, ticket=begun.ticket))


@Operation(
    "POST",
    "/console/oidc/finish",
    None,
    Answer("The cookie is set", PageSecret),
    body=OidcAnswer,
    errors=(401, 403, 404, 503),
    is_public=True,
)
async def finish_oidc(call: ApiCall) -> Response:
    """Sign in with the answer of the OpenID Connect provider."""
    oidc, origin = _oidc(call), _own_origin(call)
    body = await call.body(OidcAnswer)
    person = await oidc.finish(
        origin, ticket=body.ticket, state=body.state, code=body.code, iss=body.iss
    )
    key = sign_in.key_of(person)
    call.note_sign_in(key, person.shown)
    if not key.scopes:
        raise HttpError(
            403,
            f"{person.shown} is in no group that may use this console: ask its operator to map one"
            " with --oidc-group",
            code="no_group",
        )
    token = await call.server.sign_ins.use_person(key, person.shown)
    return _signed_in(call, token, sign_in.PERSON_SECONDS)


def _oidc(call: ApiCall) -> OidcSignIn:
    if call.server.oidc is None:
        raise not_found("this server has no OpenID Connect provider")
    return call.server.oidc


def _own_origin(call: ApiCall) -> str:
    """Return the origin of the console's page, which has sent the request."""
    headers = call.request.headers
    sign_in.require_own_page("POST", headers)
    if (origin := headers.get("origin")) is None:
        raise HttpError(403, "a browser sends the header Origin", code="cross_site")
    return origin


def _signed_in(call: ApiCall, token: str, seconds: int) -> Response:
    """Return the response with both halves of a new sign-in."""
    cookie, secret = sign_in.halves_of(token)
    response = json_response(PageSecret(secret=secret))
    _set_cookie(call, response, cookie, seconds)
    return response


@Operation(
    "POST",
    "/console/unlock",
    Scope.READ,
    Answer("The sign-in can approve and administer", status=NO_CONTENT),
    body=Unlock,
    errors=(403, 429),
)
async def unlock(call: ApiCall) -> Response:
    """Let a sign-in approve and administer for twelve hours, as far as its key can."""
    body = await call.body(Unlock)
    token = call.server.sign_ins.token_in(call.request.headers) or ""
    await call.server.sign_ins.unlock(token, body.code, peer_of(call.request.scope))
    return Response(status_code=NO_CONTENT)


@Operation(
    "POST",
    "/console/logout",
    Scope.READ,
    Answer("The cookie is gone", status=NO_CONTENT),
    ends_sign_in=True,
)
async def log_out(call: ApiCall) -> Response:
    """Sign out."""
    await trio.lowlevel.checkpoint()
    token = call.server.sign_ins.token_in(call.request.headers)
    if token is not None:
        await call.server.sign_ins.sign_out(token)
    response = Response(status_code=NO_CONTENT)
    _set_cookie(call, response, "", 0)
    return response


def _set_cookie(call: ApiCall, response: Response, cookie: str, seconds: int) -> None:
    response.set_cookie(
        sign_in.cookie_name(call.request.headers),
        cookie,
        max_age=seconds,
        path="/",
        secure=call.request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


@Operation("GET", "/console/me", Scope.READ, Answer("The key", Me))
async def get_me(call: ApiCall) -> Response:
    """Return the person who is signed in."""
    await trio.lowlevel.checkpoint()
    server, key = call.server, call.key
    token = call.server.sign_ins.token_in(call.request.headers)
    signed_in = None if token is None else server.sign_ins.find(token)
    scopes = {it for it in Scope if key.may(it)}
    locked = set[Scope]() if signed_in is None else {*signed_in.locked}
    if key.name == DEFAULT and await server.may_default_approve():
        for admin in (scopes, locked):
            if Scope.ADMIN in admin:
                admin.add(Scope.APPROVE)
    return json_response(
        Me(
            key=key.name,
            shown=key.name if signed_in is None else signed_in.shown,
            owner=key.owner,
            scopes=sorted(scopes),
            locked=sorted(locked),
            agents={name: server.unusable_agents.get(name, "") for name in server.agents},
            lead=_lead(server),
            file=server.settings.file,
            variables=dict(server.settings.variables),
            version=VERSION,
            now=server.keys.now(),
        )
    )


def _lead(server: "ServerState") -> str:
    """Return the agent that most people talk to: it delegates, and no other delegates to it."""
    agents = server.agents
    delegates = {it.name for agent in agents.values() for it in agent.delegates}
    usable = [name for name in agents if name not in server.unusable_agents]
    leads = [name for name in usable if name not in delegates]
    return next((it for it in leads if agents[it].delegates), next(iter((*leads, *usable)), ""))
