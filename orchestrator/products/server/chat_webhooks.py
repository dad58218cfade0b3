"""The HTTP listener for chat platforms that call us: it answers their paths only."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import trio
from starlette.types import ASGIApp, Receive, Scope, Send

from orchestrator.agents import raising_one_error
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.products.chat.ports import Webhook, WebhookAnswer, WebhookCall
from orchestrator.products.server.server import address_of
from orchestrator.products.server.transport.connections import Connections
from orchestrator.products.server.transport.listener import Listening, bind, require_usable
from orchestrator.products.server.transport.log import redacted_logger

LARGEST_BODY: Final = 1_000_000


def webhook_app(webhooks: Mapping[str, Webhook]) -> ASGIApp:
    """Return an application that answers the calls of platforms, by their paths."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "this listener speaks only HTTP"
        webhook = webhooks.get(scope["path"])
        answer = WebhookAnswer(404)
        if webhook is not None and scope["method"] != "POST":
            answer = WebhookAnswer(405)
        elif webhook is not None:
            body = await _body(receive)
            answer = WebhookAnswer(413)
            if body is not None:
                headers = {
                    name.decode("latin-1").lower(): value.decode("latin-1")
                    for name, value in scope["headers"]
                }
                answer = await webhook(WebhookCall(headers, body))
        head = [
            (b"content-type", answer.media_type.encode()),
            (b"content-length", str(len(answer.body)).encode()),
        ]
        await send({"type": "http.response.start", "status": answer.status, "headers": head})
        await send({"type": "http.response.body", "body": answer.body})

    return app


async def _body(receive: Receive) -> bytes | None:
    """Return the body of a request; None if it is too large, or its sender is gone."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > LARGEST_BODY:
            return None
        if not message.get("more_body", False):
            return bytes(body)


@asynccontextmanager
async def open_chat_webhooks(
    webhooks: Mapping[str, Webhook], listening: Listening, redactor: Redactor
) -> AsyncGenerator[str]:
    """Answer calls of platforms, by path, as long as the block lasts; yield our address."""
    require_usable(listening)
    listener = bind(listening)
    shutdown = trio.Event()
    connections = Connections(webhook_app(webhooks), redacted_logger(redactor))
    with listener, raising_one_error():
        async with trio.open_nursery() as serving:
            await serving.start(connections.serve, listener, shutdown)
            try:
                yield address_of(listener, listening)
            finally:
                shutdown.set()
