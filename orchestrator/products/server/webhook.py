"""Webhooks: every reply is sent to a URL of its owner, signed, until the receiver confirms it.

Signatures follow Standard Webhooks, which OpenAI's clients check. The id of an event is always the
same for the same reply, so a receiver can detect a repetition. Only the operator names the URL, so
it may be any address. Beyond this machine it must be https, unless the operator allows otherwise.
"""

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from secrets import token_bytes
from typing import Final
from urllib.parse import urlsplit

import attrs
import httpx2
import msgspec
import trio

from orchestrator.agents.current_span import current_traceparent
from orchestrator.delegation import Reply, SessionRecord
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.errors import ServerSetupError
from orchestrator.ports.sessions import Push, is_over
from orchestrator.products.schedule.ports import CheckedTarget, Delivery
from orchestrator.products.server.keys.changes import NAME
from orchestrator.products.server.keys.key import DEFAULT
from orchestrator.products.server.session_status import state_of
from orchestrator.products.server.transport.api_key import (
    StoredSecret,
    is_loopback,
    load_or_create_secret,
)

SECRET: Final = "ORCHESTRATOR_WEBHOOK_SECRET"  # noqa: S105 (the name of a variable)
FILE: Final = "webhook_secret"
FOLDER: Final = "webhook_secrets"
"""The folder of the secrets of owners other than `default`, by their names."""
PREFIX: Final = "whsec_"
MOST_SECRETS: Final = 2
"""The secret that receivers know, and the one that replaces it."""
SHORTEST_KEY: Final = 24
"""The shortest key that the standard allows, in bytes."""
SECONDS: Final = 10
"""The most seconds for a receiver to answer."""
ENDED: Final = frozenset({"completed", "failed", "cancelled"})
KINDS_THAT_END: Final = frozenset({SessionKind.RESPONSE, SessionKind.RUN})
"""The kinds of sessions that end with their request."""


class WebhookData(msgspec.Struct, kw_only=True):
    """The subject of an event."""

    id: str
    """The id of the response; otherwise the id of the run."""
    run: str
    turn: int
    text: str
    """The answer, or the error of a turn that did not succeed."""


class JobData(WebhookData, kw_only=True):
    """The subject of an event about a job's reply."""

    job: str
    due: str
    """The scheduled time of its run."""


class WebhookEvent(msgspec.Struct, kw_only=True):
    """The body of a webhook request."""

    id: str
    object: str = "event"
    created_at: int
    type: str
    data: WebhookData


class WebhookError(Exception):
    """A receiver did not confirm an event."""


@attrs.frozen(kw_only=True)
class Webhook:
    """The receiver of the replies of one owner's sessions."""

    owner: str
    url: str = attrs.field(repr=False)
    """It may contain a password."""
    secret: StoredSecret
    """Each owner has its own secret. Otherwise an owner could sign for the others."""


def webhooks_for(
    options: Sequence[str], environ: Mapping[str, str], folder: Path, *, is_insecure: bool = False
) -> list[Webhook]:
    """Return the webhooks of the options, each `URL` or `OWNER=URL`, one for each owner."""
    found: dict[str, Webhook] = {}
    for option in options:
        owner, _, url = option.partition("=")
        if NAME.fullmatch(owner) is None:
            owner, url = DEFAULT, option
        require_url(url, is_insecure=is_insecure)
        if owner in found:
            raise ServerSetupError(f"there are two webhooks of {owner}; give one")
        secret = secret_for(environ, folder, owner)
        found[owner] = Webhook(owner=owner, url=url, secret=secret)
    return list(found.values())


def secret_for(environ: Mapping[str, str], folder: Path, owner: str = DEFAULT) -> StoredSecret:
    """Return the signing secret of an owner, or two that both sign, separated by a blank."""
    is_default = owner == DEFAULT
    value = " ".join(environ.get(SECRET, "").split()) if is_default else ""
    if value:
        found = StoredSecret(value, None)
    else:
        found = load_or_create_secret(
            folder / FILE if is_default else folder / FOLDER / owner,
            lambda: PREFIX + base64.b64encode(token_bytes(32)).decode(),
            most=MOST_SECRETS,
        )
    secrets = found.value.split()
    if len(secrets) > MOST_SECRETS or not all(map(_is_secret, secrets)):
        raise ServerSetupError(
            f"{found.file or SECRET} is not a secret for webhooks: use {PREFIX} and then at least"
            f" {SHORTEST_KEY} random bytes in base64, or two of these"
        )
    return found


def _is_secret(value: str) -> bool:
    try:
        return value.startswith(PREFIX) and len(_key(value)) >= SHORTEST_KEY
    except binascii.Error:
        return False


@asynccontextmanager
async def open_webhooks(
    webhooks: Iterable[Webhook], *, is_insecure: bool = False
) -> AsyncGenerator[Mapping[str, Push]]:
    """Send the replies of each owner to its own webhook, as long as the block lasts."""
    async with AsyncExitStack() as opened:
        yield {
            it.owner: await opened.enter_async_context(
                open_webhook(it.url, it.secret.value, is_insecure=is_insecure)
            )
            for it in webhooks
        }


@asynccontextmanager
async def open_webhook(
    url: str, secret: str, *, is_insecure: bool = False, clock: Callable[[], float] = time.time
) -> AsyncGenerator[Push]:
    """Send replies to a URL, which no error quotes, as long as the block lasts."""
    host = require_url(url, is_insecure=is_insecure)
    async with httpx2.AsyncClient(timeout=SECONDS) as client:
        sender = _Sender(client, secret)

        async def push(session: SessionRecord, reply: Reply) -> None:
            id_ = f"msg_{session.id}_{reply.turn}"
            event = event_of(session, reply, id_, int(clock()))
            await sender.send(url, host, event)

        yield push


@asynccontextmanager
async def open_webhook_target(
    secret: str, *, is_insecure: bool = False, clock: Callable[[], float] = time.time
) -> AsyncGenerator[CheckedTarget]:
    """Send the replies of jobs to the URLs that the jobs name, as long as the block lasts."""
    require = partial(require_target, is_insecure=is_insecure)
    async with httpx2.AsyncClient(timeout=SECONDS) as client:
        sender = _Sender(client, secret)

        async def send(delivery: Delivery) -> str:
            session, reply = delivery.session, delivery.reply
            event = WebhookEvent(
                id=f"msg_{session.id}_{reply.turn}",
                created_at=int(clock()),
                type="job.reply",
                data=JobData(
                    id=session.id,
                    run=session.id,
                    turn=reply.turn,
                    text=delivery.text,
                    job=delivery.job,
                    due=delivery.due,
                ),
            )
            await sender.send(delivery.address, require(delivery.address), event)
            return event.id

        yield CheckedTarget(send, require)


def require_target(url: str, *, is_insecure: bool = False) -> str:
    """Return the host of a job's URL, or raise a `ValueError` if the URL cannot be used."""
    try:
        host = require_url(url, "the URL", is_insecure=is_insecure)
    except ServerSetupError as exc:
        raise ValueError(str(exc)) from exc
    if urlsplit(url).username is not None:
        raise ValueError(
            "the URL has a password, which the journal would keep: let the receiver check the"
            " signature instead"
        )
    return host


class _Sender:
    """Signs and sends events."""

    def __init__(self, client: httpx2.AsyncClient, secret: str) -> None:
        self._client = client
        self._secret = secret

    async def send(self, url: str, host: str, event: WebhookEvent) -> None:
        """Send an event, or raise. The URL may contain a password, so no error quotes it."""
        body, now = msgspec.json.encode(event), event.created_at
        headers = {
            "content-type": "application/json",
            "webhook-id": event.id,
            "webhook-timestamp": str(now),
            "webhook-signature": webhook_signature(self._secret, event.id, now, body),
        }
        if traceparent := current_traceparent():
            headers["traceparent"] = traceparent
        status = 0
        try:
            with trio.move_on_after(SECONDS):
                # The response body is not read: it may be endless.
                async with self._client.stream(
                    "POST", url, content=body, headers=headers
                ) as answer:
                    status = answer.status_code
        except httpx2.HTTPError as exc:
            # The error's text may quote the URL, which may contain a password.
            raise WebhookError(
                f"the webhook at {host} cannot be reached: {type(exc).__name__}"
            ) from None
        if not status:
            raise WebhookError(f"the webhook at {host} took more than {SECONDS} s")
        if not 200 <= status < 300:
            raise WebhookError(f"the webhook at {host} answered with {status}")


def event_of(session: SessionRecord, reply: Reply, id_: str, now: int) -> WebhookEvent:
    """Return the event of a reply."""
    kind, state = session.kind, state_of(session)
    is_last = is_over(session) and reply.turn == session.turns
    ends = kind in KINDS_THAT_END and is_last and state in ENDED
    _, _, hexadecimal = session.id.partition("_")
    return WebhookEvent(
        id=id_,
        created_at=now,
        type=f"response.{state}" if ends else "session.reply",
        data=WebhookData(
            id=f"resp_{hexadecimal}" if kind is SessionKind.RESPONSE else session.id,
            run=session.id,
            turn=reply.turn,
            text=reply.text,
        ),
    )


def webhook_signature(secret: str, id_: str, now: int, body: bytes) -> str:
    """Return the signature header of an event; with two secrets, it has two signatures."""
    signed = f"{id_}.{now}.".encode() + body
    digests = (hmac.new(_key(it), signed, hashlib.sha256).digest() for it in secret.split())
    return " ".join(f"v1,{base64.b64encode(it).decode()}" for it in digests)


def require_url(url: str, name: str = "--webhook", *, is_insecure: bool = False) -> str:
    """Return the host of a URL, or raise if it cannot be called, or would be in the clear."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in {"http", "https"} or not host:
        raise ServerSetupError(f"{name} is not a URL that can be called: use https://HOST/PATH")
    if not (parts.scheme == "https" or is_insecure or is_loopback(host)):
        raise ServerSetupError(
            f"replies would be sent to {host} in the clear: use https://HOST/PATH for {name}; or"
            " give --insecure-webhook, if the network between is yours"
        )
    return host


def _key(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
