"""Reads the answer to a request within its limits, and lets other tasks run in between.

A provider may send anything: each byte is handled once, no step takes long, and what exceeds a
limit is not read to its end.
"""

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Final

import httpx2
import msgspec
import trio

from orchestrator.agents.errors import Failure
from orchestrator.agents.models.http.answer_builder import AnswerBuilder
from orchestrator.agents.models.http.answer_errors import AnswerTooLongError, UnusableAnswerError
from orchestrator.agents.models.http.answer_limits import (
    CHUNKS_PER_EVENT,
    LINES_PER_EVENT,
    AnswerLimits,
    require_few_values,
)
from orchestrator.agents.models.http.aws_frames import AwsFrames
from orchestrator.agents.models.http.provider_errors import LONGEST_ERROR, status_error
from orchestrator.agents.models.http.sse import SseParser

STREAM_END_SECONDS: Final = 0.1
"""How long to wait for the end of a stream after its last event, so that the connection can be used
again. Some servers never close it, and an answer that waits here is lost if the process dies."""
ERROR_SECONDS: Final = 10.0
"""How long to wait for the text of an error."""
AWS_STREAM: Final = "application/vnd.amazon.eventstream"
STEPS_AT_ONCE: Final = 16
"""How many pieces or events are read before other tasks run."""


async def read_answer(
    response: httpx2.Response, builder: AnswerBuilder, limits: AnswerLimits
) -> None:
    """Feed an answer to its builder, or raise `UnusableAnswerError`."""
    if not response.is_success:
        body = await _read_body(response, LONGEST_ERROR, ERROR_SECONDS)
        raise status_error(response.status_code, response.headers, body[:LONGEST_ERROR])
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        await trio.lowlevel.checkpoint()
        raise UnusableAnswerError(
            Failure.MALFORMED,
            f"gave an answer that is compressed ({encoding}), which was not asked for",
        )
    kind = response.headers.get("content-type", "")
    if "text/event-stream" in kind:
        await _StreamReader(builder, limits, SseParser()).read(response)
        return
    if AWS_STREAM in kind:
        await _StreamReader(builder, limits, AwsFrames()).read(response)
        return
    body = await _read_body(response, limits.document_bytes)
    if len(body) > limits.document_bytes:
        raise AnswerTooLongError(f"{limits.document_bytes} bytes in one JSON document")
    with _decoding_errors(builder, body):
        builder.feed_body(body)


class _StreamReader:
    def __init__(
        self, builder: AnswerBuilder, limits: AnswerLimits, parser: SseParser | AwsFrames
    ) -> None:
        self._builder = builder
        self._limits = limits
        self._parser = parser
        self._chunks = 0
        self._bytes = 0
        self._events = 0

    async def read(self, response: httpx2.Response) -> None:
        await _read_chunks(response, self._take)
        if not self._builder.is_complete:
            raise UnusableAnswerError(
                Failure.CONNECTION, "broke off: the stream ended before the answer did"
            )

    def _take(self, chunk: bytes) -> Iterator[float]:
        limits = self._limits
        self._chunks += 1
        self._bytes += len(chunk)
        if self._bytes > limits.bytes:
            raise AnswerTooLongError(f"{limits.bytes} bytes")
        for data in self._parser.feed(chunk):
            self._events += 1
            with _decoding_errors(self._builder, data):
                is_last = self._builder.feed_event(data)
            self._require_within_limits()
            yield STREAM_END_SECONDS if is_last else math.inf
        if self._parser.buffered > limits.document_bytes:
            raise AnswerTooLongError(f"{limits.document_bytes} bytes in one event")
        if self._parser.lines > limits.events * LINES_PER_EVENT:
            raise AnswerTooLongError(f"{limits.events * LINES_PER_EVENT} lines")
        if self._chunks > limits.events * CHUNKS_PER_EVENT:
            raise AnswerTooLongError(f"{limits.events * CHUNKS_PER_EVENT} chunks")

    def _require_within_limits(self) -> None:
        limits = self._limits
        if self._events > limits.events:
            raise AnswerTooLongError(f"{limits.events} events")
        if self._builder.characters > limits.characters:
            raise AnswerTooLongError(
                f"{limits.characters} characters of text, reasoning and arguments"
            )
        if self._builder.calls > limits.calls:
            raise AnswerTooLongError(f"{limits.calls} calls of tools")


async def _read_body(response: httpx2.Response, limit: int, seconds: float = math.inf) -> bytes:
    """Return the body of a response, cut soon after this many bytes, or seconds."""
    body = bytearray()

    def take(chunk: bytes) -> Iterator[float]:
        body.extend(chunk)
        yield math.inf if len(body) <= limit else 0

    await _read_chunks(response, take, seconds)
    return bytes(body)


async def _read_chunks(
    response: httpx2.Response, take: Callable[[bytes], Iterator[float]], seconds: float = math.inf
) -> None:
    """Pass each chunk to `take`, which yields after each step how many seconds to read on.

    The loop is left only by its end, or by a cancellation where it waits for the network:
    httpx2's generators do not close each other. So other tasks run in shielded checkpoints:
    a server can send ten thousand chunks in one packet, and httpx2 has none between them.
    """
    error: UnusableAnswerError | None = None
    steps = 0
    with trio.move_on_after(seconds) as scope:
        async for chunk in response.aiter_raw():
            try:
                for seconds_left in take(chunk) if error is None else ():
                    deadline = trio.current_time() + seconds_left
                    scope.deadline = min(scope.deadline, deadline)
                    if (steps := steps + 1) % STEPS_AT_ONCE == 0:
                        await trio.lowlevel.cancel_shielded_checkpoint()
            except UnusableAnswerError as exc:
                error = exc
                scope.cancel()
            if (steps := steps + 1) % STEPS_AT_ONCE == 0:
                await trio.lowlevel.cancel_shielded_checkpoint()
    if error is not None:
        raise error


@contextmanager
def _decoding_errors(builder: AnswerBuilder, data: bytes) -> Generator[None]:
    require_few_values(data)
    try:
        yield
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        beginning = data[:LONGEST_ERROR].decode(errors="replace")
        raise UnusableAnswerError(
            Failure.MALFORMED, f"gave an answer that is no {builder.protocol} ({exc}): {beginning}"
        ) from exc
