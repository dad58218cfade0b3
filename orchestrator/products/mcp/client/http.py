"""A server that is reached by HTTP: the SDK's transport, on a client whose calls fail alone.

In that transport an error of one request ends the connection, and every other call with it. So the
client answers such an error as a server would: with a JSON-RPC error, which says whether the server
may have got the request.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import httpx2
import trio
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared.inbound import MCP_METHOD_HEADER

from orchestrator.agents.current_span import current_traceparent
from orchestrator.agents.models.http.url import is_on_loopback
from orchestrator.ports.errors import LoginError
from orchestrator.products.mcp.client.server_call import note_refused, note_sent

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

CONNECT_SECONDS: Final = 10.0
WRITE_SECONDS: Final = 30.0
MOST_BYTES: Final = 16 * 2**20
"""Of one message."""
# Beside those of JSON-RPC and MCP, and never on the wire.
UNREACHABLE: Final = -32950
SESSION_GONE: Final = -32951
BROKEN_OFF: Final = -32952
REFUSED: Final = -32953
_NOT_SENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.UnsupportedProtocol,
    httpx2.ProxyError,
)


@asynccontextmanager
async def open_http(
    url: str, headers: Mapping[str, str], auth: httpx2.Auth | None = None
) -> AsyncGenerator["TransportStreams"]:
    """Give the streams of messages to and from a server."""
    client = _Client(
        headers=dict(headers),
        auth=auth,
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS, write=WRITE_SECONDS, pool=None),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=16),
        # A server on this machine is called directly, whatever proxy the machine is set up with.
        trust_env=not is_on_loopback(url),
    )
    async with (
        client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MOST_BYTES) as streams,
    ):
        yield streams


class _Client(httpx2.AsyncClient):
    """Sends the requests of one connection."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        await trio.lowlevel.checkpoint()
        if request.method != "POST":
            return await super().send(request, **options)
        note_sent()
        if traceparent := current_traceparent():
            request.headers["traceparent"] = traceparent
        try:
            response = await super().send(request, **options)
            return await self._whole(request, response)
        except _NOT_SENT as exc:
            note_refused()
            return _error(request, UNREACHABLE, _sentence(exc))
        except LoginError as exc:
            note_refused()
            if _is_probe(request):
                raise
            return _error(request, REFUSED, str(exc))
        except httpx2.TransportError as exc:
            return _error(request, BROKEN_OFF, f"the connection broke: {_sentence(exc)}")

    async def _whole(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """Return a response with its whole body, unless it is a stream of events."""
        await trio.lowlevel.checkpoint()
        if response.status_code == 404 and MCP_SESSION_ID in request.headers:
            await response.aclose()
            note_refused()
            return _error(request, SESSION_GONE, "it does not know our session any more")
        content_type = response.headers.get("content-type", "").lower()
        if response.status_code in {401, 403} and _is_probe(request):
            await response.aclose()
            raise LoginError(
                f"it refuses us: it answers {response.status_code} {response.reason_phrase}"
            )
        if response.is_error and not content_type.startswith("application/json"):
            await response.aclose()
            # What the SDK makes of these decides about the version of the protocol.
            if response.status_code in {400, 404, 405, 406, 415}:
                return response
            note_refused()
            said = f"it answers {response.status_code} {response.reason_phrase}".strip()
            return _error(request, REFUSED, said, response)
        if not content_type.startswith("application/json"):
            return response
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MOST_BYTES:
                await response.aclose()
                return _error(request, BROKEN_OFF, f"its answer has more than {MOST_BYTES:,} bytes")
        return httpx2.Response(
            response.status_code,
            headers=_without_coding(response.headers),
            content=bytes(body),
            request=request,
        )


def _is_probe(request: httpx2.Request) -> bool:
    """Return whether a request asks for the protocol version of a server.

    An error would be read as an answer of the older protocol, so a refusal is raised.
    """
    return request.headers.get(MCP_METHOD_HEADER) == "server/discover"


def _without_coding(headers: httpx2.Headers) -> list[tuple[str, str]]:
    decoded = {"content-encoding", "content-length", "transfer-encoding"}
    return [(name, it) for name, it in headers.multi_items() if name not in decoded]


def _error(
    request: httpx2.Request, code: int, why: str, response: httpx2.Response | None = None
) -> httpx2.Response:
    """Return an answer that says why there is none."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": why}}
    status = 502 if response is None else response.status_code
    return httpx2.Response(status, json=error, request=request)


def _sentence(exc: Exception) -> str:
    """Return an error without its URL: that may have a key in it."""
    match exc:
        case httpx2.ConnectTimeout():
            return f"it did not answer within {CONNECT_SECONDS:g} s"
        case httpx2.ConnectError():
            cause = exc.__cause__ or exc
            return f"it cannot be reached ({cause})"
        case _:
            return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
