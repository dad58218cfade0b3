"""An MCP server that wants a login, and the authorization server that gives it, on one real port.

It is strict where real ones are: codes and refresh tokens are good for one use, a refresh token
that is used twice ends the whole login, redirects must be registered, and PKCE is checked.
"""

import base64
import hashlib
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import attrs
import trio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

SCOPE = "issues:read"


@attrs.define
class LoginServer:
    """Its state and the requests to it. Tests read and change it."""

    url: str = ""
    lifetime: int = 3600
    """How many seconds its access tokens say that they live."""
    wants_login: bool = True
    wanted_scope: str = ""
    """The extra scope that a call of the tool needs."""
    has_token_endpoint: bool = True
    refuses: bool = False
    """Whether the person says no."""
    clients: dict[str, dict[str, Any]] = attrs.field(factory=dict[str, dict[str, Any]])
    codes: dict[str, dict[str, str]] = attrs.field(factory=dict[str, dict[str, str]])
    tokens: dict[str, str] = attrs.field(factory=dict[str, str])
    """The scope of each access token that is valid."""
    refresh_tokens: dict[str, str] = attrs.field(factory=dict[str, str])
    used: set[str] = attrs.field(factory=set[str])
    log: list[str] = attrs.field(factory=list[str])
    """The requests, in order."""

    @property
    def mcp(self) -> str:
        return f"{self.url}/mcp"

    def expire(self) -> None:
        """End all access tokens, as time does."""
        self.tokens.clear()

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/mcp", self._mcp, methods=["POST"]),
                Route("/.well-known/oauth-protected-resource/mcp", self._resource),
                Route("/.well-known/oauth-authorization-server", self._metadata),
                Route("/register", self._register, methods=["POST"]),
                Route("/authorize", self._authorize),
                Route("/oauth/token", self._token, methods=["POST"]),
                Route("/revoke", self._revoke, methods=["POST"]),
            ]
        )

    async def _resource(self, _request: Request) -> Response:
        return JSONResponse({"resource": self.mcp, "authorization_servers": [self.url]})

    async def _metadata(self, _request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                # Not where one would guess it.
                "token_endpoint": f"{self.url}/oauth/token",
                "registration_endpoint": f"{self.url}/register",
                "revocation_endpoint": f"{self.url}/revoke",
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
                "scopes_supported": [SCOPE],
            }
        )

    async def _register(self, request: Request) -> Response:
        self.log.append("register")
        client = {
            **await request.json(),
            "client_id": f"client-{len(self.clients)}",
            "token_endpoint_auth_method": "none",
        }
        self.clients[client["client_id"]] = client
        return JSONResponse(client, status_code=201)

    async def _authorize(self, request: Request) -> Response:
        query = dict(request.query_params)
        self.log.append(f"authorize {query.get('scope', '')}".strip())
        client = self.clients.get(query["client_id"], {})
        if query["redirect_uri"] not in client.get("redirect_uris", ()):
            return Response("this redirect is not registered", status_code=400)
        answer = {"state": query["state"], "iss": self.url}
        if self.refuses:
            answer |= {"error": "access_denied", "error_description": "not today"}
        else:
            code = f"code-{len(self.log)}"
            self.codes[code] = query
            answer["code"] = code
        return RedirectResponse(f"{query['redirect_uri']}?{urlencode(answer)}", 302)

    async def _token(self, request: Request) -> Response:
        form = {name: str(value) for name, value in (await request.form()).items()}
        self.log.append(form["grant_type"])
        if not self.has_token_endpoint:
            return Response("be back soon", status_code=503)
        if form["grant_type"] == "authorization_code":
            asked = self.codes.pop(form["code"], None)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            if asked is None or asked["code_challenge"] != challenge:
                return JSONResponse({"error": "invalid_grant"}, status_code=400)
            return self._new_tokens(asked.get("scope", ""))
        old = form["refresh_token"]
        scope = self.refresh_tokens.pop(old, None)
        if scope is None:
            if old in self.used:
                # As RFC 9700 says: a stranger has a copy, so all end.
                self.refresh_tokens.clear()
                self.tokens.clear()
                self.log.append("reuse")
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        self.used.add(old)
        return self._new_tokens(scope)

    def _new_tokens(self, scope: str) -> Response:
        number = len(self.log)
        access, refresh = f"at-{number}-Xk29vQ", f"rt-{number}-pL03sW"
        self.tokens[access] = scope
        self.refresh_tokens[refresh] = scope
        return JSONResponse(
            {
                "access_token": access,
                "token_type": "Bearer",
                "expires_in": self.lifetime,
                "refresh_token": refresh,
                "scope": scope,
            }
        )

    async def _revoke(self, request: Request) -> Response:
        form = await request.form()
        self.log.append("revoke")
        self.refresh_tokens.pop(str(form["token"]), None)
        self.tokens.clear()
        return Response()

    async def _mcp(self, request: Request) -> Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        where = f"{self.url}/.well-known/oauth-protected-resource/mcp"
        if self.wants_login and token not in self.tokens:
            challenge = f'Bearer resource_metadata="{where}", scope="{SCOPE}"'
            return JSONResponse({}, 401, {"WWW-Authenticate": challenge})
        message = await request.json()
        if message["method"] == "tools/call":
            scopes = self.tokens.get(token, "").split()
            if self.wanted_scope and self.wanted_scope not in scopes:
                challenge = f'Bearer error="insufficient_scope", scope="{self.wanted_scope}"'
                return JSONResponse({}, 403, {"WWW-Authenticate": challenge})
        return JSONResponse(
            {
                "jsonrpc": "2.0",
                "id": message.get("id"),
                "result": self._result(message["method"], token),
            }
        )

    def _result(self, method: str, token: str) -> dict[str, Any]:
        hints = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        match method:
            case "server/discover":
                return {
                    **hints,
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "tracker", "version": "1"},
                }
            case "tools/list":
                schema = {"type": "object"}
                return {**hints, "tools": [{"name": "whoami", "inputSchema": schema}]}
            case _:
                # A bad one: it says the token back.
                text = {"type": "text", "text": f"you are {token}"}
                return {"resultType": "complete", "content": [text]}


@asynccontextmanager
async def login_server() -> AsyncGenerator[LoginServer]:
    """Run one in a thread, as long as the block lasts."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = LoginServer(f"http://127.0.0.1:{listener.getsockname()[1]}")
    config = uvicorn.Config(server.app(), log_level="critical", lifespan="off", loop="asyncio")
    running = uvicorn.Server(config)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, running.run, [listener])
        try:
            yield server
        finally:
            running.should_exit = True
    listener.close()
