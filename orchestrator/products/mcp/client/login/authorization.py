"""Requests to authorization servers: a first token for a person, its renewal, its end.

The SDK speaks OAuth, but does not keep the renewal address and the expiry of a token. A `Login`
keeps them, so a process that starts later renews without a person.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import httpx2
import msgspec
import trio
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.utils import union_scopes
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, ValidationError

from orchestrator.agents.models.http.url import is_on_loopback
from orchestrator.ports.errors import LoginError
from orchestrator.products.mcp.client.login.file import Login, address_of

ANSWER_SECONDS: Final = 30.0
"""How long an authorization server may take for one answer."""
CLIENT_NAME: Final = "delegation-orchestrator"

ModelT = TypeVar("ModelT", bound=BaseModel)


class LoginRefusedError(LoginError):
    """The authorization server says that a login is over."""


class Authorization(OAuthClientProvider):
    """The SDK's flow for one server. It starts from the data of a login and returns a login."""

    def __init__(
        self,
        url: str,
        login: Login | None,
        *,
        redirect_url: str = "",
        show_link: Callable[[str], Awaitable[None]] | None = None,
        wait_for_code: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
        scope: str = "",
        client_metadata_url: str | None = None,
    ) -> None:
        """Ask nothing yet; `scope` adds to the scopes that the server names.

        The authorization server reads who we are at `client_metadata_url`, instead of having us
        registered.
        """
        known = login or Login(url=address_of(url))
        self._known = known
        self._scope = scope
        client = _model(OAuthClientInformationFull, known.client)
        redirect = [AnyUrl(redirect_url)] if redirect_url else None
        metadata = OAuthClientMetadata(
            client_name=CLIENT_NAME,
            redirect_uris=redirect or (client and client.redirect_uris) or None,
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            scope=scope or None,
        )
        super().__init__(
            url,
            metadata,
            _Memory(client),
            redirect_handler=show_link,
            callback_handler=wait_for_code,
            client_metadata_url=client_metadata_url,
        )
        context = self.context
        context.client_info = client
        context.oauth_metadata = _model(OAuthMetadata, known.metadata)
        context.protected_resource_metadata = _model(ProtectedResourceMetadata, known.resource)

    def login(self, now: float) -> Login:
        """Return the login with all data so far."""
        context = self.context
        tokens = context.current_tokens
        lifetime = None if tokens is None else tokens.expires_in
        return Login(
            url=self._known.url,
            client=_json(context.client_info),
            tokens=_json(tokens),
            expires=None if lifetime is None else now + lifetime,
            metadata=_json(context.oauth_metadata),
            resource=_json(context.protected_resource_metadata),
        )

    async def renew(self, client: httpx2.AsyncClient) -> None:
        """Get another token without a person.

        Raises:
            LoginRefusedError: the authorization server gives none any more.
            LoginError: it cannot be asked now.
        """
        context = self.context
        context.current_tokens = _model(OAuthToken, self._known.tokens)
        response = await client.send(await self._refresh_token())
        if response.status_code in {400, 401, 403}:
            raise LoginRefusedError(_refusal(response))
        if not await self._handle_refresh_response(response):
            raise LoginError(
                "its authorization server cannot renew the login now: it answers"
                f" {response.status_code}"
            )

    async def _perform_authorization_code_grant(self) -> tuple[str, str]:
        # The SDK asks for what the server names; the person may have named more.
        metadata = self.context.client_metadata
        metadata.scope = union_scopes(metadata.scope, self._scope or None)
        return await super()._perform_authorization_code_grant()


class _Memory:
    """Keeps the data of the SDK until it is stored as a `Login`."""

    def __init__(self, client: OAuthClientInformationFull | None) -> None:
        self._client = client
        self._tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        await trio.lowlevel.checkpoint()
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        await trio.lowlevel.checkpoint()
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        await trio.lowlevel.checkpoint()
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await trio.lowlevel.checkpoint()
        self._client = client_info


async def renewed_login(login: Login, *, clock: Callable[[], float] = time.time) -> Login:
    """Return a login with another token.

    Raises:
        LoginRefusedError: the authorization server gives none any more.
        LoginError: it cannot be asked now.
    """
    flow = Authorization(login.url, login)
    try:
        with trio.fail_after(ANSWER_SECONDS):
            async with authorization_client(login.url) as client:
                await flow.renew(client)
    except (httpx2.HTTPError, trio.TooSlowError) as exc:
        raise LoginError(
            f"its authorization server cannot be reached to renew the login ({type(exc).__name__})"
        ) from exc
    return flow.login(clock())


async def revoke(login: Login) -> bool:
    """Tell the authorization server that a login is over, and return whether it was told."""
    await trio.lowlevel.checkpoint()
    where = (login.metadata or {}).get("revocation_endpoint")
    token = (login.tokens or {}).get("refresh_token") or login.token
    client_id = (login.client or {}).get("client_id")
    if not where or not token or not client_id:
        return False
    flow = Authorization(login.url, login)
    data, headers = flow.context.prepare_token_auth(
        {"token": str(token), "client_id": str(client_id)}, {}
    )
    try:
        with trio.fail_after(ANSWER_SECONDS):
            async with authorization_client(str(where)) as client:
                answer = await client.post(str(where), data=data, headers=headers)
    except (httpx2.HTTPError, trio.TooSlowError):
        return False
    return answer.is_success


def authorization_client(url: str) -> httpx2.AsyncClient:
    """Return what sends requests of a login, directly if the server is on this machine."""
    return httpx2.AsyncClient(timeout=ANSWER_SECONDS, trust_env=not is_on_loopback(url))


def _refusal(response: httpx2.Response) -> str:
    try:
        error = msgspec.json.decode(response.content, type=dict[str, Any])["error"]
    except (msgspec.MsgspecError, KeyError):
        error = response.status_code
    return f"its authorization server does not renew the login: {error}"


def _model(kind: type[ModelT], value: dict[str, Any] | None) -> ModelT | None:
    if value is None:
        return None
    try:
        return kind.model_validate(value)
    except ValidationError as exc:
        # Not what the error says: it may quote a token.
        raise LoginError(
            f"the stored login has a {kind.__name__} that cannot be read; log in again"
        ) from exc


def _json(value: BaseModel | None) -> dict[str, Any] | None:
    return None if value is None else value.model_dump(mode="json", exclude_none=True)
