"""Discord's HTTP API, version 10: the few calls that a chat needs.

No error contains a URL, since the URL of an interaction contains its token. The bot's token goes
only to Discord's API, never to the hosts of files. No call waits for a rate limit: it raises
`RetryAfterError` instead, and is not made.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from importlib.metadata import version
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import attrs
import httpx2
import msgspec
import trio

from orchestrator.products.chat import errors
from orchestrator.products.chat.discord import objects
from orchestrator.products.chat.discord.rate_limits import RateLimits, Route

API: Final = "https://discord.com/api/v10"
FILE_HOSTS: Final = frozenset({"cdn.discordapp.com", "media.discordapp.net"})
"""The hosts of the files of messages."""
SECONDS: Final = 15
"""The seconds that a call may take."""
FILE_SECONDS: Final = 120
PROJECT: Final = "delegation-orchestrator"
NONE_MENTIONED: Final[Mapping[str, Any]] = {"parse": [], "replied_user": False}
"""Text of a model never pings a person."""
WITHOUT_PREVIEWS: Final = 1 << 2
"""Discord must not fetch the pages behind links: a model may have written the link."""
FOR_ONE_PERSON: Final = 1 << 6
PAGE: Final = 100
"""The most messages that one call returns."""
MESSAGE: Final = 4
DEFERRED_UPDATE: Final = 6
"""The answer that a press was received, and that its message may change later."""
ValueT = TypeVar("ValueT")


class DiscordRefusedError(errors.RefusedError):
    """Discord refuses the call, and would refuse it again."""

    def __init__(self, doing: str, status: int, code: int, message: str) -> None:
        said = f"{message} (code {code})" if code else message
        super().__init__(f"Discord refuses to {doing}: {status} {said}".rstrip())
        self.status = status
        self.code = code


class UnreachableError(errors.ChatError):
    """Discord did not answer, or its answer is unclear: the call may have taken effect."""


@attrs.frozen
class OutgoingFile:
    """A file of an outgoing message."""

    name: str
    content: bytes


class DiscordApi:
    """Calls Discord as one bot."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        token: str,
        *,
        url: str = API,
        file_hosts: frozenset[str] = FILE_HOSTS,
        now: Callable[[], float] = trio.current_time,
    ) -> None:
        """Set up without a call.

        The client must not follow redirects. Files are fetched from `file_hosts` only.
        """
        self._client = client
        self._headers = {
            "authorization": f"Bot {token}",
            # Discord refuses clients with any other form of name.
            "user-agent": f"DiscordBot (https://pypi.org/project/{PROJECT}, {version(PROJECT)})",
        }
        self._url = url
        self._file_hosts = file_hosts
        self._limits = RateLimits(now)

    @property
    def is_encrypted(self) -> bool:
        return self._url.startswith("https://")

    async def get_gateway(self) -> objects.GatewayInfo:
        route = Route("GET", "/gateway/bot")
        return await self._call("find the gateway", route, objects.GatewayInfo)

    async def get_channel(self, channel: str) -> objects.Channel:
        route = Route("GET", "/channels/{}", channel)
        return await self._call("read the channel", route, objects.Channel)

    async def get_messages(self, channel: str, *, after: str) -> list[objects.Message]:
        """Return the messages after a given one, oldest first: at most `PAGE` of them.

        A malformed message is left out, so that the others can be read.
        """
        page = await self._call(
            "read messages",
            Route("GET", "/channels/{}/messages", channel),
            list[msgspec.Raw],
            params={"after": after, "limit": str(PAGE)},
        )
        found = (_decoded(it, objects.Message) for it in page)
        return sorted(filter(None, found), key=lambda it: int(it.id))

    async def create_message(
        self,
        channel: str,
        *,
        content: str,
        nonce: str,
        reply_to: str = "",
        components: Sequence[Mapping[str, Any]] = (),
        file: OutgoingFile | None = None,
    ) -> str:
        """Send a message, and return its id.

        For some minutes, Discord makes no second message with the same nonce. The message in
        `reply_to` may have been deleted.
        """
        body: dict[str, Any] = {
            "content": content,
            "nonce": nonce,
            "enforce_nonce": True,
            "allowed_mentions": NONE_MENTIONED,
            "flags": WITHOUT_PREVIEWS,
        }
        if reply_to:
            body["message_reference"] = {"message_id": reply_to, "fail_if_not_exists": False}
        if components:
            body["components"] = components
        route = Route("POST", "/channels/{}/messages", channel)
        if file is None:
            created = await self._call("send a message", route, objects.Created, json=body)
        else:
            body["attachments"] = [{"id": 0, "filename": file.name}]
            parts = {
                "payload_json": (None, msgspec.json.encode(body), "application/json"),
                "files[0]": (file.name, file.content, "application/octet-stream"),
            }
            created = await self._call(
                "send a file", route, objects.Created, files=parts, seconds=FILE_SECONDS
            )
        return created.id

    async def close_message(self, channel: str, message: str, content: str) -> None:
        """Change the text of a message of the bot, and remove its buttons."""
        body: dict[str, Any] = {
            "content": content,
            "components": [],
            "allowed_mentions": NONE_MENTIONED,
        }
        route = Route("PATCH", "/channels/{}/messages/{}", channel)
        await self._call("change a message", route, objects.Created, message, json=body)

    async def show_typing(self, channel: str) -> None:
        route = Route("POST", "/channels/{}/typing", channel)
        await self._request("show that it types", route)

    async def acknowledge_press(self, interaction: str, token: str) -> None:
        """Tell the person who pressed a button that the press was received."""
        await self._answer_press(interaction, token, {"type": DEFERRED_UPDATE})

    async def answer_press(self, interaction: str, token: str, content: str) -> None:
        """Answer a press that was not acknowledged; only the person who pressed reads it."""
        answer = {"type": MESSAGE, "data": _for_one_person(content)}
        await self._answer_press(interaction, token, answer)

    async def follow_press(self, application: str, token: str, content: str) -> None:
        """Answer a press that was acknowledged; only the person who pressed reads it."""
        route = Route("POST", "/webhooks/{}/{}", application)
        body = _for_one_person(content)
        await self._call("answer a press", route, objects.Created, token, json=body)

    async def download(self, url: str, *, most: int) -> bytes:
        """Return a file of a message; raise `GoneError` if it is gone, too large, or elsewhere."""
        parts = urlsplit(url)
        if parts.hostname not in self._file_hosts:
            raise errors.GoneError("the file is not at one of Discord's hosts for files")
        content = bytearray()
        with _translated_errors("fetch a file"), trio.fail_after(FILE_SECONDS):
            # Sent without the bot's token: these hosts need none.
            async with self._client.stream("GET", url) as answer:
                if answer.status_code >= 500:
                    raise UnreachableError(_failed("fetch a file", answer.status_code))
                if answer.status_code != 200:
                    raise errors.GoneError(_failed("fetch a file", answer.status_code))
                length = answer.headers.get("content-length", "")
                if length.isdecimal() and int(length) > most:
                    raise errors.GoneError(f"the file has more than {most} bytes")
                async with aclosing(answer.aiter_bytes()) as pieces:
                    async for piece in pieces:
                        content += piece
                        if len(content) > most:
                            raise errors.GoneError(f"the file has more than {most} bytes")
        return bytes(content)

    async def _answer_press(self, interaction: str, token: str, body: Mapping[str, Any]) -> None:
        route = Route("POST", "/interactions/{}/{}/callback", interaction)
        await self._request("answer a press", route, token, json=body)

    async def _call(
        self, doing: str, route: Route, type_: type[ValueT], *names: str, **request: Any
    ) -> ValueT:
        """Make a call, and return its answer as a type."""
        answer = await self._request(doing, route, *names, **request)
        try:
            return msgspec.json.decode(answer.content, type=type_)
        except msgspec.MsgspecError as exc:
            raise UnreachableError(f"could not {doing}: the answer has an unknown form") from exc

    async def _request(
        self, doing: str, route: Route, *names: str, seconds: float = SECONDS, **request: Any
    ) -> httpx2.Response:
        if wait := self._limits.take(route):
            await trio.lowlevel.checkpoint()
            raise errors.RetryAfterError(wait)
        subject = (route.subject,) if route.subject else ()
        url = self._url + route.path.format(*subject, *names)
        with _translated_errors(doing), trio.fail_after(seconds):
            answer = await self._client.request(route.method, url, headers=self._headers, **request)
        self._limits.note_headers(route, answer.headers)
        self._require_success(doing, route, answer)
        return answer

    def _require_success(self, doing: str, route: Route, answer: httpx2.Response) -> None:
        status = answer.status_code
        if 200 <= status < 300:
            return
        if status == 429:
            limited = _limited(answer)
            self._limits.note_limited(route, limited.retry_after, is_global=limited.is_global)
            raise errors.RetryAfterError(limited.retry_after)
        if status >= 500:
            raise UnreachableError(_failed(doing, status))
        refusal = _decoded(answer.content, objects.Refusal) or objects.Refusal()
        if status == 401:
            raise errors.RevokedError("Discord refuses the token of the bot (401)")
        raise DiscordRefusedError(doing, status, refusal.code, refusal.message)


def _for_one_person(content: str) -> Mapping[str, Any]:
    return {"content": content, "flags": FOR_ONE_PERSON, "allowed_mentions": NONE_MENTIONED}


def _limited(answer: httpx2.Response) -> objects.Limited:
    """Return how long to wait; an answer from a proxy before Discord may not be JSON."""
    if found := _decoded(answer.content, objects.Limited):
        return found
    try:
        seconds = float(answer.headers.get("retry-after", ""))
    except ValueError:
        seconds = 5.0
    return objects.Limited(seconds, is_global=True)


def _decoded(content: bytes | msgspec.Raw, type_: type[ValueT]) -> ValueT | None:
    try:
        return msgspec.json.decode(content, type=type_)
    except msgspec.MsgspecError:
        return None


def _failed(doing: str, status: int) -> str:
    return f"could not {doing}: Discord answered with {status}"


@contextmanager
def _translated_errors(doing: str) -> Generator[None]:
    """Translate transport errors, and leave out the URL that they may contain."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as exc:
        problem = f"could not {doing}: Discord cannot be reached: {type(exc).__name__}"
        raise errors.NotSentError(problem) from None
    except trio.TooSlowError:
        raise UnreachableError(f"could not {doing}: Discord took too long") from None
    except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as exc:
        problem = f"could not {doing}: {type(exc).__name__}"
        raise UnreachableError(problem) from None
