"""Webhooks: whoever registered an URL is told of every reply, signed, until it says that it has it.

The signature is that of Standard Webhooks, which OpenAI's clients check. The id of an event is the
same for the same reply for ever, so a receiver that gets it twice can tell.
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
"""How many bytes a key has at least, by the standard."""
SECONDS: Final = 10
"""How long a receiver may take to answer."""
ENDED: Final = frozenset({"completed", "failed", "cancelled"})
KINDS_THAT_END: Final = frozenset({"response", "run"})
"""The kinds of sessions that end with what they were asked."""


class WebhookData(msgspec.Struct, kw_only=True):
    """What an event is about."""

    id: str
    """By what OpenAI's clients know it: a response, or otherwise the run."""
    run: str
    turn: int
    text: str
    """What the agent said; of a turn that did not succeed, what went wrong."""


class WebhookEvent(msgspec.Struct, kw_only=True):
    """What is sent."""

    id: str
    object: str = "event"
    created_at: int
    type: str
    data: WebhookData


class WebhookError(Exception):
    """A receiver did not say that it has an event."""


def secret_for(environ: Mapping[str, str], folder: Path) -> StoredSecret:
    """Return what events are signed with: from the environment, or kept in a folder."""
    if given := environ.get(SECRET, "").strip():
        found = StoredSecret(given, None)
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
    """Tell an URL of replies, as long as the block lasts.

    Args:
        url: who is told. What is secret in it is told to nobody else.
        secret: what events are signed with.
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
                    # What it says is not read: there may be no end of it.
                    async with client.stream(
                        "POST", url, content=body, headers=headers
                    ) as answer:
                        status = answer.status_code
            except httpx2.HTTPError as exc:
                # Its words may quote the address, and that may hold a password.
                raise WebhookError(
                    f"the webhook at {host} cannot be reached: {type(exc).__name__}"
                ) from None
            if not status:
                raise WebhookError(f"the webhook at {host} took more than {SECONDS} s")
            if not 200 <= status < 300:
                raise WebhookError(f"the webhook at {host} answered with {status}")

        yield push


def event_of(session: SessionRecord, reply: Reply, id_: str, now: int) -> WebhookEvent:
    """Return what is said of a reply."""
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
    """Return what proves that an event is ours, and has not been changed."""
    signed = f"{id_}.{now}.".encode() + body
    digest = hmac.new(_key(secret), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def require_url(url: str) -> str:
    """Return the host of an URL that can be called."""
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
