"""A provider may send anything: an answer is bounded in bytes, events and seconds."""

import math
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

import pytest
import trio

from orchestrator import Machine, Models, open_orchestrator
from orchestrator.agents import Agent, Failure, Limits, ModelError, ModelRequest, UserMessage
from orchestrator.agents.models.http.answer_errors import AnswerTooLongError
from orchestrator.agents.models.http.answer_limits import (
    VALUES_PER_DOCUMENT,
    AnswerLimits,
    require_few_values,
)
from orchestrator.agents.models.http.sse import SseParser
from orchestrator.agents.models.providers.anthropic import AnthropicModel
from orchestrator.agents.models.providers.openai_chat import OpenAIModel
from orchestrator.agents.models.providers.openai_responses import ResponsesModel
from orchestrator.agents.models.registry import CloseableModel
from orchestrator.delegation import Cause
from tests.fake_provider import (
    FakeProvider,
    Flood,
    Raw,
    Reply,
    chunk,
    encode,
    open_provider,
    stream,
)

pytestmark = pytest.mark.realtime

Make: TypeAlias = Callable[..., CloseableModel]
SMALL = AnswerLimits(
    bytes=500_000, document_bytes=20_000, events=500, characters=10_000, calls=20, seconds=30
)
JSON_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
)


@pytest.fixture
async def server() -> AsyncIterator[FakeProvider]:
    async with open_provider() as provider:
        yield provider


@pytest.fixture(
    params=[OpenAIModel, ResponsesModel, AnthropicModel], ids=lambda maker: str(maker.__name__)
)
def maker(request: pytest.FixtureRequest) -> Make:
    found: Make = request.param
    return found


async def failure(
    maker: Make, server: FakeProvider, reply: Reply, limits: AnswerLimits = SMALL
) -> ModelError:
    server.replies = [reply]
    url = server.url if maker is AnthropicModel else f"{server.url}/v1"
    model = maker("some-model", key="", base_url=url, limits=limits)
    request = ModelRequest(instructions="", transcript=[UserMessage("hello")], tools=())
    try:
        with pytest.raises(ModelError) as caught:
            await model.answer(request)
    finally:
        await model.aclose()
    return caught.value


def text_event(maker: Make, text: str) -> bytes:
    if maker is OpenAIModel:
        event: object = {"choices": [{"delta": {"content": text}}]}
    elif maker is ResponsesModel:
        event = {"type": "response.output_text.delta", "delta": text}
    else:
        delta = {"type": "text_delta", "text": text}
        event = {"type": "content_block_delta", "index": 0, "delta": delta}
    return b"data: %s\n\n" % encode(event)


def call_event(maker: Make, index: int, arguments: str) -> bytes:
    if maker is OpenAIModel:
        function = {"name": "look", "arguments": arguments}
        calls = [{"index": index, "function": function}]
        event: object = {"choices": [{"delta": {"tool_calls": calls}}]}
    elif maker is ResponsesModel:
        kind = "response.function_call_arguments.delta"
        event = {"type": kind, "output_index": index, "delta": arguments}
    else:
        delta = {"type": "input_json_delta", "partial_json": arguments}
        event = {"type": "content_block_delta", "index": index, "delta": delta}
    return b"data: %s\n\n" % encode(event)


FLOODS: dict[str, tuple[str, Callable[[Make], Reply]]] = {
    "text": ("10000 characters", lambda of: Flood(piece=chunk(text_event(of, "x" * 400)))),
    "arguments": ("10000 characters", lambda of: Flood(piece=chunk(call_event(of, 0, "x" * 400)))),
    "events": ("500 events", lambda of: Flood(piece=chunk(text_event(of, "x") * 50))),
    "calls": (
        "20 calls",
        lambda of: stream(*(call_event(of, index, "{}")[6:-2] for index in range(100))),
    ),
    "one line": ("20000 bytes in one event", lambda of: Flood(piece=chunk(b"x" * 999))),
    "one event": (
        "20000 bytes in one event",
        lambda of: Flood(piece=chunk(b"data: %s\n" % (b"x" * 99))),
    ),
    "comments": ("2000 lines", lambda of: Flood(piece=chunk(b":\n" * 99))),
    "padding": ("500000 bytes", lambda of: Flood(piece=chunk(b":%s\n" % (b"x" * 9999)))),
    "chunks": ("1000 chunks", lambda of: Flood(piece=chunk(b":") * 500)),
    "a plain body": (
        "20000 bytes in one JSON document",
        lambda of: Flood(head=JSON_HEAD, piece=chunk(b"x" * 999)),
    ),
    "headers": (
        "too long",
        lambda of: Flood(head=b"HTTP/1.1 200 OK\r\n", piece=b"a: b\r\n" * 5000),
    ),
}


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_is_malformed_by_the_limit_that_it_exceeds(
    server: FakeProvider, maker: Make, kind: str
) -> None:
    limit, flood = FLOODS[kind]

    error = await failure(maker, server, flood(maker))

    assert error.kind is Failure.MALFORMED
    assert limit in str(error)
    assert len(str(error)) < 1000


async def test_an_answer_over_its_limit_keeps_the_text_before_it(server: FakeProvider) -> None:
    flood = Flood(piece=chunk(text_event(OpenAIModel, "x" * 400)))

    error = await failure(OpenAIModel, server, flood)

    assert 10_000 < len(error.partial) <= 10_400
    assert not error.is_transient


@pytest.mark.parametrize(
    "drip",
    [
        Flood(piece=chunk(b": still thinking\n\n"), pause=0.01),
        Flood(head=b"HTTP/1.1 200 OK\r\n", piece=b"a: b\r\n", pause=0.01),
        Flood(head=JSON_HEAD, piece=chunk(b" "), pause=0.01),
    ],
    ids=["stream", "headers", "body"],
)
async def test_an_endless_drip_ends_after_the_seconds_of_an_answer(
    server: FakeProvider, maker: Make, drip: Flood
) -> None:
    """Never silent, so no time-out of a silence ends it."""
    error = await failure(maker, server, drip, AnswerLimits(seconds=0.1))

    assert error.kind is Failure.MALFORMED
    assert "0.1 seconds" in str(error)


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate, gzip"])
async def test_a_compressed_answer_is_never_decompressed(
    server: FakeProvider, maker: Make, encoding: str
) -> None:
    """It was not asked for, and a small bomb makes gigabytes."""
    headers = {"content-type": "text/event-stream", "content-encoding": encoding}

    error = await failure(maker, server, Raw(b"\x1f\x8b" * 1000, headers=headers))

    assert error.kind is Failure.MALFORMED
    assert encoding in str(error)


async def test_an_error_without_end_keeps_its_kind(server: FakeProvider, maker: Make) -> None:
    head = b"HTTP/1.1 503 Busy\r\nretry-after: 7\r\ntransfer-encoding: chunked\r\n\r\n"

    error = await failure(maker, server, Flood(head=head, piece=chunk(b"x" * 9999)))

    assert error.kind is Failure.OVERLOADED
    assert error.retry_after == 7


async def test_others_run_while_ten_thousand_chunks_of_one_packet_are_read(
    server: FakeProvider,
) -> None:
    """httpx2 returns them one by one without a checkpoint."""
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    # The server is part of this loop too, and has its turns; what counts is that ours are many.
    limits = AnswerLimits(events=4_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        await failure(OpenAIModel, server, Flood(piece=chunk(b":") * 10_000), limits)
        nursery.cancel_scope.cancel()

    assert turns > 8_000 / 16


@pytest.mark.parametrize("per_chunk", [1, 7, 64, 100_000])
def test_events_are_the_same_however_they_are_cut(per_chunk: int) -> None:
    sent = b"data: a\r\ndata:b\r\r: c\n\ndata: %s\n\nid: 7\r\n\r\n" % (b"x" * 300)
    parser = SseParser()

    events = [
        data
        for start in range(0, len(sent), per_chunk)
        for data in parser.feed(sent[start : start + per_chunk])
    ]

    assert events == [b"a\nb", b"x" * 300]
    assert parser.buffered == 0


def test_a_small_text_that_stands_for_a_million_objects_is_not_parsed() -> None:
    nested = b'{"x": [%s0]}' % (b"[]," * VALUES_PER_DOCUMENT)
    with pytest.raises(AnswerTooLongError, match="values"):
        require_few_values(nested)
    # Commas in a text are no values, also behind escaped quotes or in a text without end.
    require_few_values(b'{"x": "%s"}' % (b'\\",' * VALUES_PER_DOCUMENT))
    require_few_values(b'{"x": "%s' % (b'\\",' * VALUES_PER_DOCUMENT))


async def test_arguments_of_a_million_objects_are_malformed(server: FakeProvider) -> None:
    arguments = '{"x": [%s0]}' % ("[]," * VALUES_PER_DOCUMENT)
    call = call_event(OpenAIModel, 0, arguments)[6:-2]
    end = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}

    error = await failure(OpenAIModel, server, stream(call, end, b"[DONE]"), AnswerLimits())

    assert error.kind is Failure.MALFORMED
    assert "values" in str(error)


async def test_a_flood_is_asked_for_once_and_the_task_fails_as_malformed(
    server: FakeProvider,
) -> None:
    """Four attempts would read it four times."""
    flood = Flood(piece=chunk(text_event(OpenAIModel, "x" * 400)))
    server.replies = [flood] * 4
    environ = {"OPENAI_BASE_URL": f"{server.url}/v1"}
    agent = Agent("reader", model="openai:endless", limits=Limits(seconds=30))

    async with open_orchestrator(
        ":memory:", machine=Machine(environ=environ), models=Models(answer_limits=SMALL)
    ) as orchestrator:
        run = await orchestrator.run(agent, "go")

    assert run.outcome.cause is Cause.MODEL
    assert run.outcome.kind == "malformed"
    assert len(server.heard) == 1


def test_the_limits_have_room_for_the_longest_answers_of_today() -> None:
    """128,000 tokens, each an event of about 350 bytes."""
    limits = AnswerLimits()

    assert limits.events >= 1.5 * 128_000
    assert limits.bytes >= 128_000 * 350
    assert limits.characters >= 128_000 * 6
    assert limits.seconds < math.inf
