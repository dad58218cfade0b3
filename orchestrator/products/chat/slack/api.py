"""Slack's Web API: its calls, its errors, and files to and from Slack.

* SlackError                 Slack did not carry out a call
  - SlackRefusedError        Slack refused; `code` is its word for the reason
  - SlackUnreachableError    Slack did not answer, or not in its own form
  - FileTooLargeError        a file has too many bytes

If Slack asks for a pause, the error is a `RetryAfterError`. Arguments are sent as a form, which
each method accepts. No error contains a URL or a token, and the token goes only to Slack's own
hosts.
"""

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import SplitResult, urlsplit

import httpx2
import msgspec
import trio

from orchestrator.products.chat.errors import ChatError, RetryAfterError
from orchestrator.products.chat.slack.answers import Answer, Connection, Upload

API_URL: Final = "https://slack.com/api/"
SECONDS: Final = 15
"""The seconds that one call may take."""
FILE_SECONDS: Final = 120
"""The seconds that one file may take."""
PAUSE_SECONDS: Final = 30
"""The seconds of a pause if Slack limits the rate and states no pause."""
RATE_LIMITED: Final = frozenset({"ratelimited", "rate_limited"})
PASSING: Final = frozenset(
    {"fatal_error", "internal_error", "request_timeout", "service_unavailable"}
)
"""Slack's words for its own faults, after which the call may have taken effect."""
NOT_CONNECTED: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.InvalidURL,
    httpx2.PoolTimeout,
)

T = TypeVar("T")


class SlackError(ChatError):
    """Slack did not carry out a call."""


class SlackRefusedError(SlackError):
    """Slack refused a call."""

    def __init__(self, method: str, code: str, details: str = "") -> None:
        super().__init__(f"Slack refused {method}: {code}{f' ({details})' * bool(details)}")
        self.method = method
        self.code = code


class SlackUnreachableError(SlackError):
    """Slack did not answer, or not in its own form."""

    def __init__(self, text: str, *, is_sent: bool = True) -> None:
        super().__init__(text)
        self.is_sent = is_sent
        """Whether Slack may have received and executed the call."""


class FileTooLargeError(SlackError):
    """A file has too many bytes."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the file has more than {most:,} bytes")


class SlackApi:
    """Calls methods of Slack, each once; the caller decides whether to retry."""

    def __init__(
        self, http: httpx2.AsyncClient, token: str, *, app_token: str = "", url: str = API_URL
    ) -> None:
        """Set up without a call; the client must not follow redirects.

        The token of the bot is `xoxb-…`; the token of the app, for Socket Mode, is `xapp-…`.
        """
        self._http = http
        self._token = token
        self._app_token = app_token
        self._url = url

    async def call(self, method: str, into: type[T], **arguments: Any) -> T:
        """Call a method as the bot, and return its answer; an argument of None is left out."""
        return await self._call(self._token, method, into, arguments)

    async def open_connection(self) -> str:
        """Return the URL of a new connection of Socket Mode. It is valid once, for a short time."""
        method = "apps.connections.open"
        return (await self._call(self._app_token, method, Connection, {})).url

    async def upload(self, name: str, content: bytes) -> str:
        """Send a file to Slack, and return its id. People see it when the upload is completed."""
        method = "files.getUploadURLExternal"
        upload = await self.call(method, Upload, filename=name, length=len(content))
        if not is_host_of(self._url, upload.upload_url):
            raise SlackUnreachableError(f"Slack answered {method} with a foreign host")
        with _within(FILE_SECONDS, "the upload of a file"):
            sent = await self._http.post(upload.upload_url, content=content)
        if sent.status_code != HTTPStatus.OK:
            raise SlackUnreachableError(
                f"Slack answered the upload of {name!r} with {sent.status_code}"
            )
        return upload.file_id

    async def download(self, url: str, *, most: int) -> bytes:
        """Return a file of a message.

        Raises:
            FileTooLargeError: the file has more than `most` bytes.
            SlackRefusedError: the file is not at Slack, or the bot may not read it.
        """
        method = "the download of a file"
        if not is_host_of(self._url, url):
            raise SlackRefusedError(method, "foreign_host")
        content = bytearray()
        with _within(FILE_SECONDS, method):
            async with self._http.stream("GET", url, headers=_authorization(self._token)) as answer:
                if answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise SlackUnreachableError(
                        f"Slack answered {method} with {answer.status_code}"
                    )
                if answer.status_code == HTTPStatus.NOT_FOUND:
                    raise SlackRefusedError(method, "file_not_found")
                # Slack redirects a bot that may not read the file to the login page.
                if answer.status_code != HTTPStatus.OK:
                    raise SlackRefusedError(method, "not_allowed", "scope files:read")
                length = answer.headers.get("content-length", "")
                if length.isdecimal() and int(length) > most:
                    raise FileTooLargeError(most)
                async for piece in answer.aiter_bytes():
                    content += piece
                    if len(content) > most:
                        raise FileTooLargeError(most)
        return bytes(content)

    async def _call(
        self, token: str, method: str, into: type[T], arguments: Mapping[str, Any]
    ) -> T:
        form = {
            name: value if isinstance(value, str) else _json(value)
            for name, value in arguments.items()
            if value is not None
        }
        with _within(SECONDS, method):
            answer = await self._http.post(
                self._url + method, data=form, headers=_authorization(token)
            )
        return _read(method, answer, into)


@asynccontextmanager
async def open_slack_api(
    token: str, *, app_token: str = "", url: str = API_URL
) -> AsyncGenerator[SlackApi]:
    """Open a client of Slack's Web API for the duration of the block."""
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        yield SlackApi(http, token, app_token=app_token, url=url)


@contextmanager
def _within(seconds: float, what: str) -> Generator[None]:
    """Translate transport errors, whose text may contain the URL."""
    scope = trio.CancelScope(relative_deadline=seconds)
    try:
        with scope:
            yield
    except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
        raise SlackUnreachableError(
            f"Slack cannot be reached for {what}: {type(exc).__name__}",
            is_sent=not isinstance(exc, NOT_CONNECTED),
        ) from None
    if scope.cancelled_caught:
        raise SlackUnreachableError(f"Slack took more than {seconds:g} s for {what}")


def _read(method: str, response: httpx2.Response, into: type[T]) -> T:
    """Return the decoded answer to a call, or raise its error."""
    if response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
        raise RetryAfterError(_pause(response))
    try:
        answer = msgspec.json.decode(response.content, type=Answer)
        if answer.ok:
            return msgspec.json.decode(response.content, type=into)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise SlackUnreachableError(
            f"Slack answered {method} with {response.status_code}, and not as expected"
        ) from None
    if answer.error in RATE_LIMITED:
        raise RetryAfterError(_pause(response))
    if answer.error in PASSING:
        raise SlackUnreachableError(f"Slack answered {method} with {answer.error}")
    raise SlackRefusedError(method, answer.error, answer.details)


def _pause(answer: httpx2.Response) -> float:
    try:
        return max(0, int(answer.headers.get("retry-after", "")))
    except ValueError:
        return PAUSE_SECONDS


def is_host_of(api_url: str, url: str) -> bool:
    """Return whether a URL has the host of the methods, or a host below it."""
    try:
        found, own = _origin(urlsplit(url)), _origin(urlsplit(api_url))
    except ValueError:
        return False
    is_below = found.host.endswith(f".{own.host}") and found.scheme == "https"
    return found == own or (is_below and found.port == own.port)


def _authorization(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


class _Origin(NamedTuple):
    scheme: str
    host: str
    port: int | None


def _origin(url: SplitResult) -> _Origin:
    default = {"https": 443, "http": 80}.get(url.scheme)
    return _Origin(url.scheme, url.hostname or "", url.port or default)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
