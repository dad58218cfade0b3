"""Webhooks: every reply is sent to a URL, signed, until the receiver confirms it.

The signature is that of Standard Webhooks, which OpenAI's clients check. The id of an event is
always the same for the same reply, so a receiver can tell a repetition.
"""

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_bytes
from typing import Final
from urllib.parse import urlsplit

import httpx2
import msgspec
import trio

from delegation import Reply, SessionRecord
from orchestrator.doors.http import KIND, Push, is_over
from orchestrator.errors import ServerSetupError
from orchestrator.server.session_status import state_of
from orchestrator.server.transport.api_key import StoredSecret, load_or_create_secret

SECRET: Final = "ORCHESTRATOR_WEBHOOK_SECRET"  # noqa: S105 (the name of a variable)
FILE: Final = "webhook_secret"
PREFIX: Final = "whsec_"
SHORTEST_KEY: Final = 24
"""The shortest key that the standard allows, in bytes."""
SECONDS: Final = 10
"""How long a receiver may take to answer."""
ENDED: Final = frozenset({"completed", "failed", "cancelled"})
KINDS_THAT_END: Final = frozenset({"response", "run"})
"""The kinds of sessions that end with their request."""


class WebhookData(msgspec.Struct, kw_only=True):
    """What an event is about."""

    id: str
    """The id of the response, or otherwise of the run."""
    run: str
    turn: int
    text: str
    """The answer; of a turn that did not succeed, the error."""


class WebhookEvent(msgspec.Struct, kw_only=True):
    """The body of a webhook request."""

    id: str
    object: str = "event"
    created_at: int
    type: str
    data: WebhookData


class WebhookError(Exception):
    """A receiver did not confirm an event."""


def secret_for(environ: Mapping[str, str], folder: Path) -> StoredSecret:
    """Return the signing secret: from the environment, or stored in a folder."""
    if value := environ.get(SECRET, "").strip():
        found = StoredSecret(value, None)
    else:
        found = load_or_create_secret(
            folder / FILE, lambda: PREFIX + base64.b64encode(token_bytes(32)).decode()
        )
    try:
        is_long = len(_key(found.value)) >= SHORTEST_KEY
    except binascii.Error:
        is_long = False
    if not (is_long and found.value.startswith(PREFIX)):
        raise ServerSetupError(
            f"{found.file or SECRET} is no secret for webhooks: it is {PREFIX} and then at least"
            f" {SHORTEST_KEY} random bytes as base64"
        )
    return found


@asynccontextmanager
async def open_webhook(
    url: str, secret: str, *, clock: Callable[[], float] = time.time
) -> AsyncGenerator[Push]:
    """Send replies to a URL, as long as the block lasts.

    Args:
        url: the receiver. It may contain a password, so no error quotes it.
        secret: the signing secret.
        clock: tells the time of day.
    """
    host = require_url(url)
    async with httpx2.AsyncClient(timeout=SECONDS) as client:

        async def push(session: SessionRecord, reply: Reply) -> None:
            id_ = f"msg_{session.id}_{reply.turn}"
            now = int(clock())
            body = msgspec.json.encode(event_of(session, reply, id_, now))
            headers = {
                "content-type": "application/json",
                "webhook-id": id_,
                "webhook-timestamp": str(now),
                "webhook-signature": signature(secret, id_, now, body),
            }
            status = 0
            try:
                with trio.move_on_after(SECONDS):
                    # The response body is not read: it may be endless.
                    async with client.stream(
                        "POST", url, content=body, headers=headers
                    ) as answer:
                        status = answer.status_code
            except httpx2.HTTPError as exc:
                # Its text may quote the URL, and that may contain a password.
                raise WebhookError(
                    f"the webhook at {host} cannot be reached: {type(exc).__name__}"
                ) from None
            if not status:
                raise WebhookError(f"the webhook at {host} took more than {SECONDS} s")
            if not 200 <= status < 300:
                raise WebhookError(f"the webhook at {host} answered with {status}")

        yield push


def event_of(session: SessionRecord, reply: Reply, id_: str, now: int) -> WebhookEvent:
    """Return the event of a reply."""
    kind, state = session.labels.get(KIND, ""), state_of(session)
    is_last = is_over(session) and reply.turn == session.turns
    ends = kind in KINDS_THAT_END and is_last and state in ENDED
    _, _, hexadecimal = session.id.partition("_")
    return WebhookEvent(
        id=id_,
        created_at=now,
        type=f"response.{state}" if ends else "session.reply",
        data=WebhookData(
            id=f"resp_{hexadecimal}" if kind == "response" else session.id,
            run=session.id,
            turn=reply.turn,
            text=reply.text,
        ),
    )


def signature(secret: str, id_: str, now: int, body: bytes) -> str:
    """Return the signature header of an event."""
    signed = f"{id_}.{now}.".encode() + body
    digest = hmac.new(_key(secret), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def require_url(url: str) -> str:
    """Return the host of a URL, or raise if it cannot be called."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in {"http", "https"} or not host:
        raise ServerSetupError(
            "--webhook is no URL that can be called: it is https://HOST/PATH"
        )
    return host


def _key(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
