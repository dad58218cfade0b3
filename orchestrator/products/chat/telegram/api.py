"""The client of Telegram's Bot API: JSON over POST, with its errors translated to the port's
errors.

The token is part of every URL, so no error contains a URL or the text of an HTTP client's error.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import httpx2
import msgspec

from orchestrator.products.chat import errors
from orchestrator.products.chat.chat_address import ChatAddress

NAME: Final = "telegram"
ADDRESS: Final = "https://api.telegram.org"
SECONDS: Final = 30.0
"""The seconds that an answer may take, besides the waiting time of a poll."""
_NOT_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_GONE: Final = (
    "chat not found",
    "peer_id_invalid",
    "user is deactivated",
    "group chat was deactivated",
    "chat_write_forbidden",
    "have no rights to send",
    "not enough rights to send",
)
"""The texts of a 400 about an unreachable chat."""


class ConflictError(errors.ChatError):
    """Another process polls with the same token, or a webhook is set."""


_ERRORS: Final[Mapping[int, type[errors.ChatError]]] = {
    400: errors.RefusedError,
    401: errors.RevokedError,
    403: errors.GoneError,
    404: errors.RevokedError,
    409: ConflictError,
}


class _Parameters(msgspec.Struct):
    migrate_to_chat_id: int | None = None
    retry_after: float | None = None


class _Answer(msgspec.Struct):
    ok: bool
    result: Any = None
    error_code: int = 0
    description: str = ""
    parameters: _Parameters | None = None


class TelegramApi:
    """Calls the methods of one bot."""

    def __init__(self, client: httpx2.AsyncClient, token: str, *, address: str = ADDRESS) -> None:
        self._client = client
        self._methods = f"{address}/bot{token}"
        self._files = f"{address}/file/bot{token}"

    async def call(
        self,
        method: str,
        fields: Mapping[str, Any],
        *,
        files: Mapping[str, tuple[str, bytes]] | None = None,
        wait: float = 0.0,
    ) -> Any:
        """Call a method, which may wait some seconds; fields with the value None are left out."""
        given = {name: value for name, value in fields.items() if value is not None}
        sent: dict[str, Any]
        if files is None:
            content = msgspec.json.encode(given)
            headers = {"content-type": "application/json"}
            sent = {"content": content, "headers": headers}
        else:
            form = {name: _form_value(value) for name, value in given.items()}
            sent = {"data": form, "files": files}
        try:
            answer = await self._client.post(
                f"{self._methods}/{method}", timeout=SECONDS + wait, **sent
            )
        except _NOT_SENT as exc:
            raise errors.NotSentError(_unreachable(exc)) from None
        except httpx2.HTTPError as exc:
            raise errors.ChatError(_unreachable(exc)) from None
        try:
            found = msgspec.json.decode(answer.content, type=_Answer)
        except msgspec.DecodeError:
            raise errors.ChatError(
                f"Telegram answered {method} with {answer.status_code} and no JSON"
            ) from None
        if found.ok:
            return found.result
        raise _error(found)

    async def fetch(self, path: str, most: int) -> bytes:
        """Return a file; raise `GoneError` if it is gone, or has more than `most` bytes."""
        content = bytearray()
        try:
            async with self._client.stream(
                "GET", f"{self._files}/{quote(path)}", timeout=SECONDS
            ) as answer:
                if answer.status_code != 200:
                    raise errors.GoneError(f"Telegram answered {answer.status_code} for the file")
                async for chunk in answer.aiter_bytes():
                    content += chunk
                    if len(content) > most:
                        raise errors.GoneError(f"it has more than {most} bytes")
        except httpx2.HTTPError as exc:
            raise errors.ChatError(_unreachable(exc)) from None
        return bytes(content)


def _form_value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _unreachable(exc: Exception) -> str:
    # The error's text may quote the URL, which contains the token.
    return f"Telegram cannot be reached: {type(exc).__name__}"


def _error(answer: _Answer) -> errors.ChatError:
    """Return the error for an answer that refuses."""
    said = f"Telegram says {answer.error_code}: {answer.description}"
    parameters = answer.parameters or _Parameters()
    if parameters.migrate_to_chat_id is not None:
        return errors.MovedError(ChatAddress(NAME, str(parameters.migrate_to_chat_id)))
    if answer.error_code == 429:
        return errors.RetryAfterError(parameters.retry_after or 1.0)
    if answer.error_code in {401, 404}:
        said = f"{said}. Is the token of the bot right?"
    words = answer.description.lower()
    if answer.error_code == 400 and any(it in words for it in _GONE):
        return errors.GoneError(said)
    return _ERRORS.get(answer.error_code, errors.ChatError)(said)
