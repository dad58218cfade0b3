"""ASGI middleware that lets web pages of named origins call the server (CORS).

A page of another origin gets no permission, so its browser hides the response from it. A preflight
has no key and is answered here: the answer lists the allowed headers, and tells nothing else.
"""

import re
from typing import Final

import attrs
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ANY: Final = "*"
METHODS: Final = "GET, POST, DELETE"
EXPOSED: Final = "x-run-id, x-request-id, x-ignored-parameters, retry-after, mcp-session-id"
KEPT_SECONDS: Final = "600"
_HEADERS: Final = re.compile(r"[A-Za-z0-9_, -]{1,1000}")


@attrs.frozen(kw_only=True)
class CrossOrigin:
    """Tells browsers which pages may read the responses of an application."""

    app: ASGIApp
    origins: frozenset[str]
    """Such as `https://chat.example.org`; `*` allows any origin."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        origin = headers.get("origin", "")
        if not origin or not ({origin, ANY} & self.origins):
            await self.app(scope, receive, send)
            return
        allowed = {
            "access-control-allow-origin": ANY if ANY in self.origins else origin,
            "access-control-expose-headers": EXPOSED,
            "vary": "origin",
        }
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            wanted = headers.get("access-control-request-headers", "")
            answer = Response(
                status_code=204,
                headers={
                    **allowed,
                    "access-control-allow-methods": METHODS,
                    "access-control-allow-headers": wanted
                    if _HEADERS.fullmatch(wanted)
                    else "authorization, content-type",
                    "access-control-max-age": KEPT_SECONDS,
                },
            )
            await answer(scope, receive, send)
            return

        async def send_allowed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(allowed)
            await send(message)

        await self.app(scope, receive, send_allowed)
