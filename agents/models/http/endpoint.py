"""The HTTP client of one model: posts a request, reads the answer, and classifies failures.

It never retries, no error contains the key, and a cancelled call hangs up at once.
"""

import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import httpx2
import msgspec
import trio

from agents.errors import Failure, ModelError
from agents.messages import AssistantMessage
from agents.models.http.answer_builder import AnswerBuilder, UnusableAnswerError
from agents.models.http.pools import Pools
from agents.models.http.provider_errors import status_error
from agents.models.http.sse import SseParser
from agents.models.http.wire_transcript import as_json

SILENCE_SECONDS: Final = 600.0
"""How long a connection may be silent: a model may think for minutes before its first byte."""
STREAM_END_SECONDS: Final = 0.1
"""How long to wait for the end of a stream after its last event, so that the connection can be used
again. Some servers never close it, and an answer that waits here is lost if the process dies."""
LONGEST_ANSWER: Final = 64 * 2**20
LONGEST_ERROR: Final = 64 * 2**10
SHOWN_OF_AN_ANSWER: Final = 500
SHORTEST_SECRET: Final = 6
"""A shorter part of a key is no secret, and occurs in any text."""


class Endpoint:
    """The URL at which one model answers."""

    def __init__(
        self,
        model: str,
        url: str,
        *,
        headers: Mapping[str, str],
        key: str = "",
        silence: float = SILENCE_SECONDS,
    ) -> None:
        self._model = model
        self._url = url
        self._secrets = [part for part in key.split() if len(part) >= SHORTEST_SECRET]
        self._pools = Pools(url, headers, silence)

    async def aclose(self) -> None:
        await self._pools.aclose()

    async def ask(
        self, body: Mapping[str, Any], builder: AnswerBuilder
    ) -> AssistantMessage:
        """Post a request and return the answer, whose pieces the builder emits as they arrive."""
        try:
            await self._pools.close_unused()
            with self._pools.client() as client:
                await self._post(client, as_json(body), builder)
            return builder.build()
        except (
            UnusableAnswerError,
            httpx2.HTTPError,
            httpx2.InvalidURL,
            UnicodeEncodeError,
        ) as exc:
            cause: Exception = exc
        # Raised outside the handler: inside, the error would carry its context, and so the key.
        error = self._error(cause, builder.text)
        if builder.usage.tokens:
            error.usage = builder.usage
        raise error from self._cause_without_key(cause)

    async def _post(
        self, client: httpx2.AsyncClient, content: bytes, builder: AnswerBuilder
    ) -> None:
        async with client.stream("POST", self._url, content=content) as response:
            if not response.is_success:
                body = await _read_body(response, LONGEST_ERROR)
                raise status_error(
                    response.status_code, response.headers, body[:LONGEST_ERROR]
                )
            if "text/event-stream" in response.headers.get("content-type", ""):
                await _read_stream(response, builder)
                return
            body = await _read_body(response, LONGEST_ANSWER)
            if len(body) > LONGEST_ANSWER:
                raise _malformed(builder, "it does not end", body)
            with _decoding_errors(builder, body):
                builder.feed_body(body)

    def _error(self, exc: Exception, partial: str) -> ModelError:
        match exc:
            case UnusableAnswerError():
                kind, problem = exc.kind, str(exc)
            case httpx2.TimeoutException():
                kind = Failure.TIMEOUT
                problem = f"was silent for too long: {_describe(exc)}"
            case httpx2.NetworkError() | httpx2.RemoteProtocolError() if partial:
                kind, problem = Failure.CONNECTION, f"broke off: {_describe(exc)}"
            case httpx2.NetworkError() | httpx2.RemoteProtocolError():
                kind = Failure.CONNECTION
                problem = f"cannot be reached: {_describe(exc)}"
            case _:
                # An address, a proxy or a key with which nothing can even be sent.
                kind = Failure.BAD_REQUEST
                problem = f"cannot be reached: {_describe(exc)}"
        retry_after = exc.retry_after if isinstance(exc, UnusableAnswerError) else None
        # Servers and clients quote what they got. Redact before cutting: half a key is a secret.
        problem = self._redact(problem)
        if len(problem) > SHOWN_OF_AN_ANSWER:
            problem = f"{problem[:SHOWN_OF_AN_ANSWER]}..."
        return ModelError(
            f"{self._model} {problem}",
            kind=kind,
            retry_after=retry_after,
            partial=partial,
        )

    def _redact(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _cause_without_key(self, exc: Exception) -> Exception | None:
        """Return the cause of an error, unless an exception of its chain contains the key."""
        link: BaseException | None = exc
        while link is not None:
            if self._redact(str(link)) != str(link):
                return None
            link = link.__cause__ or link.__context__
        return exc


async def _read_stream(response: httpx2.Response, builder: AnswerBuilder) -> None:
    events = SseParser()

    def take(chunk: bytes) -> float:
        seconds_left = math.inf
        for data in events.feed(chunk):
            with _decoding_errors(builder, data):
                if builder.feed_event(data):
                    seconds_left = STREAM_END_SECONDS
        if events.buffered > LONGEST_ANSWER:
            raise _malformed(builder, "it does not end", chunk)
        return seconds_left

    await _read_chunks(response, take)
    if not builder.is_complete:
        raise UnusableAnswerError(
            Failure.CONNECTION, "broke off: the stream ended before the answer did"
        )


async def _read_body(response: httpx2.Response, limit: int) -> bytes:
    """Return the body of a response, cut soon after this many bytes."""
    body = bytearray()

    def take(chunk: bytes) -> float:
        body.extend(chunk)
        return math.inf if len(body) <= limit else 0

    await _read_chunks(response, take)
    return bytes(body)


async def _read_chunks(
    response: httpx2.Response, take: Callable[[bytes], float]
) -> None:
    """Pass each chunk to `take`, which returns how many seconds to read on.

    The loop is left only by its end or a cancellation: httpx2's generators do not close each
    other.
    """
    error: UnusableAnswerError | None = None
    with trio.CancelScope() as scope:
        async for chunk in response.aiter_raw():
            try:
                seconds_left = take(chunk) if error is None else 0
            except UnusableAnswerError as exc:
                error, seconds_left = exc, 0
            scope.deadline = min(scope.deadline, trio.current_time() + seconds_left)
    if error is not None:
        raise error


@contextmanager
def _decoding_errors(builder: AnswerBuilder, data: bytes) -> Generator[None]:
    try:
        yield
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise _malformed(builder, exc, data) from exc


def _malformed(
    builder: AnswerBuilder, problem: object, data: bytes
) -> UnusableAnswerError:
    beginning = data[:LONGEST_ERROR].decode(errors="replace")
    return UnusableAnswerError(
        Failure.MALFORMED,
        f"gave an answer that is no {builder.protocol} ({problem}): {beginning}",
    )


def _describe(exc: Exception) -> str:
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
