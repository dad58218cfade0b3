"""Every provider over real HTTP: the answer as it comes, every failure by its kind."""

import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.agents import (
    AssistantMessage,
    CallDelta,
    CallId,
    Failure,
    ModelError,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    Usage,
    UserMessage,
)
from orchestrator.agents.models.http.pools import CALLS_PER_POOL, KEEPALIVE_SECONDS, Pools
from orchestrator.agents.models.http.sse import SseParser
from orchestrator.agents.models.http.url import is_on_loopback
from orchestrator.agents.models.providers.anthropic import AnthropicModel
from orchestrator.agents.models.providers.openai_chat import OpenAIModel
from orchestrator.agents.models.providers.openai_responses import ResponsesModel
from orchestrator.agents.models.registry import CloseableModel
from tests.fake_provider import FakeProvider, Raw, Reply, Say, Then, encode, open_provider, stream

HELLO = UserMessage("hello")
KEY = "sk-secret"
MAKERS: dict[str, Callable[..., CloseableModel]] = {
    "/v1/chat/completions": OpenAIModel,
    "/v1/responses": ResponsesModel,
    "/v1/messages": AnthropicModel,
}

Make: TypeAlias = Callable[..., CloseableModel]


@pytest.fixture
async def server() -> AsyncIterator[FakeProvider]:
    async with open_provider() as provider:
        yield provider


@pytest.fixture(params=MAKERS.values(), ids=lambda maker: str(maker.__name__))
def maker(request: pytest.FixtureRequest) -> Make:
    found: Make = request.param
    return found


@pytest.fixture
async def model(maker: Make, server: FakeProvider) -> AsyncIterator[CloseableModel]:
    model = made(maker, server)
    yield model
    await model.aclose()


def made(maker: Make, server: FakeProvider, **more: Any) -> CloseableModel:
    # By convention the version belongs to the address at OpenAI, and to the path at Anthropic.
    url = server.url if maker is AnthropicModel else f"{server.url}/v1"
    return maker("some-model", **{"key": KEY, "base_url": url, **more})


async def ask(model: CloseableModel, **more: Any) -> AssistantMessage:
    given = {"instructions": "", "transcript": [HELLO], "tools": (), **more}
    return await model.answer(ModelRequest(**given))


async def failure(model: CloseableModel) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(model)
    assert str(caught.value).startswith(f"{model.name} ")
    return caught.value


pytestmark = pytest.mark.realtime

CALLS = (
    ToolCall("look", {"at": "ä", "deep": {"n": [1, None]}}, id=CallId("a")),
    ToolCall("wait", {}, id=CallId("b")),
)


@pytest.mark.parametrize("is_plain", [False, True])
async def test_an_answer_is_complete_and_reports_its_usage(
    server: FakeProvider, model: CloseableModel, *, is_plain: bool
) -> None:
    """Also from a server that streams nothing. The price is unknown."""
    server.replies = [
        Say(
            text="one moment, please",
            thinking="what would a fox do?",
            calls=CALLS,
            read=100,
            cached=60,
            wrote=30,
            thought=20,
            is_plain=is_plain,
        )
    ]

    assert await ask(model) == AssistantMessage(
        "one moment, please",
        CALLS,
        Usage(
            calls=1,
            input_tokens=100,
            output_tokens=30,
            unpriced=1,
            cached_tokens=60,
            reasoning_tokens=20,
            # The only protocol that tells what was written to a cache.
            cache_written_tokens=20 if isinstance(model, AnthropicModel) else 0,
        ),
        model.name,
    )


async def test_pieces_are_emitted_as_they_arrive(
    server: FakeProvider, model: CloseableModel
) -> None:
    emitted: list[ModelEvent] = []
    server.replies = [Say(text="hello, world", thinking="let me see", calls=CALLS[:1])]

    answer = await ask(model, tell=emitted.append)

    output = [event.text for event in emitted if isinstance(event, TextDelta)]
    thought = [event.text for event in emitted if isinstance(event, ReasoningDelta)]
    calls = [event for event in emitted if isinstance(event, CallDelta)]
    assert output == ["hello", ", wor", "ld"]
    assert thought == ["let m", "e see"]
    assert calls[0] == CallDelta(0, "look")
    assert {event.index for event in calls} == {0}
    assert answer.calls == CALLS[:1]


async def test_a_server_need_not_count(server: FakeProvider, model: CloseableModel) -> None:
    server.replies = [Say(text="hi")]

    assert (await ask(model)).usage == Usage(calls=1, unpriced=1)


async def test_a_broken_stream_keeps_its_partial_text(
    server: FakeProvider, model: CloseableModel
) -> None:
    for then in (Then.HANG_UP, Then.END):
        server.replies = [Say(text="hello, world", cut=4, then=then)]

        error = await failure(model)

        assert error.kind is Failure.CONNECTION
        assert "broke off" in str(error)
        assert error.partial
        assert "hello, world".startswith(error.partial)


async def test_a_stream_that_falls_silent_times_out(server: FakeProvider, maker: Make) -> None:
    model = made(maker, server, silence=0.1)
    server.replies = [Say(text="hello, world", cut=4, then=Then.SILENCE), Then.SILENCE]

    midway, at_once = await failure(model), await failure(model)

    assert midway.kind is at_once.kind is Failure.TIMEOUT
    assert midway.partial
    assert not at_once.partial
    await model.aclose()


@pytest.mark.parametrize(
    "reply",
    [
        Raw(b""),
        Raw(b"<html>"),
        Raw(b"[]"),
        Raw(b"{}"),
        Raw(b'{"type": "message"}'),
        Raw(b"\xff\xfe"),
        Raw(b"[" * 100_000),
        Raw(b"no gzip", headers={"content-encoding": "gzip"}),
        stream(b"<html>"),
        stream(b"[1]"),
        stream(b'{"type": 7, "choices": 8}'),
        stream(b"\xff"),
        stream(b"[" * 100_000),
    ],
)
async def test_garbage_is_malformed(
    server: FakeProvider, model: CloseableModel, reply: Reply
) -> None:
    server.replies = [reply]

    error = await failure(model)

    assert error.kind is Failure.MALFORMED
    assert len(str(error)) < 1000


@pytest.mark.parametrize("arguments", ["{where:", "[1]", '"x"', "[" * 100_000])
async def test_malformed_arguments_are_a_transient_failure(
    server: FakeProvider, arguments: str
) -> None:
    """The model wrote them, and may write better ones when it is asked again."""
    function = {"name": "look", "arguments": arguments}
    delta = {"content": "so", "tool_calls": [{"id": "a", "function": function}]}
    choice = {"delta": delta, "finish_reason": "tool_calls"}
    server.replies = [stream({"choices": [choice]}, b"[DONE]")]
    model = made(OpenAIModel, server)

    error = await failure(model)

    assert error.kind is Failure.MALFORMED
    assert error.partial == "so"
    await model.aclose()


def output(message: str = "no", **more: object) -> bytes:
    return encode({"error": {"message": message, **more}})


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (302, b"elsewhere", Failure.OTHER),
        (400, output(type="invalid_request_error"), Failure.BAD_REQUEST),
        (400, output(code="context_length_exceeded"), Failure.CONTEXT_TOO_LONG),
        (400, output("prompt is too long: 9 > 8"), Failure.CONTEXT_TOO_LONG),
        (400, output("Your credit balance is too low"), Failure.QUOTA),
        (400, output(code="content_policy_violation"), Failure.REFUSED),
        (400, b'{"error": "plain words"}', Failure.BAD_REQUEST),
        (400, b'{"message": "no", "code": "content_filter"}', Failure.REFUSED),
        (401, output(code="invalid_api_key"), Failure.AUTH),
        (402, output(type="billing_error"), Failure.QUOTA),
        (403, output(type="permission_error"), Failure.AUTH),
        (404, output(code="model_not_found"), Failure.BAD_REQUEST),
        (408, b"", Failure.TIMEOUT),
        (413, output(type="request_too_large"), Failure.CONTEXT_TOO_LONG),
        (429, output(code="rate_limit_exceeded"), Failure.RATE_LIMIT),
        (429, output(code="insufficient_quota"), Failure.QUOTA),
        (429, output(details={"error_code": "enforced_spend_limit_reached"}), Failure.QUOTA),
        (500, output("maximum context length"), Failure.OVERLOADED),
        (502, b"<html>", Failure.OVERLOADED),
        (503, b"", Failure.OVERLOADED),
        (504, b"", Failure.TIMEOUT),
        (529, output(type="overloaded_error"), Failure.OVERLOADED),
    ],
)
async def test_every_status_has_its_kind(
    server: FakeProvider, model: CloseableModel, status: int, body: bytes, kind: Failure
) -> None:
    server.replies = [Raw(body, status)]

    error = await failure(model)

    assert error.kind is kind
    assert f"(HTTP {status})" in str(error)
    assert error.retry_after is None


async def test_a_rate_limit_is_a_sentence_with_the_time_of_a_retry(
    server: FakeProvider, model: CloseableModel
) -> None:
    body = b'{"error": {"message": "Slow down.", "type": "x", "code": null}}'
    server.replies = [Raw(body, 429, headers={"retry-after": "19.5"})]

    error = await failure(model)

    assert str(error) == (
        f"{model.name} has reached its rate limit (HTTP 429), try again in 20 s: Slow down."
    )


DATE = "Wed, 21 Oct 2015 07:28:00 GMT"
SOON = "Wed, 21 Oct 2015 07:28:30 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": SOON, "date": DATE}, 30.0),
        ({"retry-after": DATE, "date": SOON}, 0.0),
        ({"retry-after": SOON}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "later"}, None),
        ({}, None),
    ],
)
async def test_the_retry_time_of_a_provider_is_read(
    server: FakeProvider, headers: dict[str, str], seconds: float | None
) -> None:
    """A date is read by the server's clock: ours may be wrong."""
    model = made(OpenAIModel, server)
    server.replies = [Raw(b"slow down", 429, headers)]

    error = await failure(model)

    assert error.kind is Failure.RATE_LIMIT
    assert error.retry_after == seconds
    await model.aclose()


async def test_a_long_error_is_shortened_to_its_beginning(
    server: FakeProvider, model: CloseableModel
) -> None:
    """A proxy may answer with a whole page."""
    server.replies = [Raw(b"<html>" * 50_000, 502)]

    error = await failure(model)

    assert "is overloaded or out of order (HTTP 502): <html>" in str(error)
    assert len(str(error)) < 1000


async def test_a_server_that_hangs_up_cannot_be_reached(
    server: FakeProvider, model: CloseableModel
) -> None:
    server.replies = [Then.HANG_UP]

    error = await failure(model)

    assert error.kind is Failure.CONNECTION
    assert "cannot be reached: " in str(error)


async def test_a_missing_server_cannot_be_reached(maker: Make) -> None:
    with trio.socket.socket() as nobody_listens:
        await nobody_listens.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody_listens.getsockname()[1]}"
        model = maker("some-model", key=KEY, base_url=url)

        error = await failure(model)

        assert error.kind is Failure.CONNECTION
        assert "cannot be reached: ConnectError" in str(error)
        assert error.usage == Usage(calls=1), "nothing was used"
        await model.aclose()


@pytest.mark.parametrize(
    "url", ["127.0.0.1/v1", "nowhere://at-all", "http://[oops", "http://a:b:c"]
)
async def test_an_invalid_address_fails_without_waiting(maker: Make, url: str) -> None:
    model = maker("some-model", key=KEY, base_url=url)

    error = await failure(model)

    assert "cannot be reached: " in str(error)
    await model.aclose()


@pytest.mark.parametrize("key", ["sk-secret\n", "sk-secret\nsk-secret-2", "sk-secretä"])
async def test_no_error_holds_the_key(server: FakeProvider, maker: Make, key: str) -> None:
    """Keys come out of files with line ends, and errors go to journals and to other models."""
    model = made(maker, server, key=key)

    error = await failure(model)

    link: BaseException | None = error
    while link is not None:
        assert "sk-secret" not in str(link)
        link = link.__cause__ or link.__context__
    await model.aclose()


@pytest.mark.parametrize("before", [0, 455])
async def test_a_key_quoted_by_a_server_is_redacted(
    server: FakeProvider, model: CloseableModel, before: int
) -> None:
    """Also where the quote is cut in the midst of the key."""
    server.replies = [Raw(b"x" * before + b" wrong: sk-secret", 401)]

    error = await failure(model)

    assert "sk-" not in str(error)
    assert "wrong: **" in str(error)


async def test_an_error_without_a_key_is_not_redacted(server: FakeProvider, maker: Make) -> None:
    """A server of one's own may need none, or one of a letter; its errors are to be read."""
    for key in ("", "n"):
        model = made(maker, server, key=key)
        server.replies = [Raw(b"not now", 500)]

        assert "not now" in str(await failure(model))
        await model.aclose()


async def test_a_refusal_is_its_own_failure(server: FakeProvider, model: CloseableModel) -> None:
    server.replies = [Say(text="Well. ", refusal="I will not say that")]

    error = await failure(model)

    assert error.kind is Failure.REFUSED
    assert error.partial == "Well. "


async def test_a_cancelled_request_hangs_up_and_leaves_the_model_usable(
    server: FakeProvider, model: CloseableModel
) -> None:
    """A provider that works on would be paid for it."""
    for reply in (Then.SILENCE, Say(text="hello", cut=2, then=Then.SILENCE)):
        received = len(server.heard)
        server.replies = [reply]
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, model)
                await server.wait_asked(received + 1)
                nursery.cancel_scope.cancel()
    server.replies = [Say(text="still here")]

    assert (await ask(model)).text == "still here"
    assert server.connections == 3


async def test_cancelling_a_request_closes_its_connection_at_once(
    server: FakeProvider, model: CloseableModel
) -> None:
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, model)
            await server.wait_asked()
            nursery.cancel_scope.cancel()
        await server.was_left.wait()


async def test_a_connection_is_used_again_until_the_model_is_closed(
    server: FakeProvider, model: CloseableModel
) -> None:
    server.replies = [Say(text="one"), Raw(b"", 500), Say(text="two")]

    assert (await ask(model)).text == "one"
    await failure(model)
    assert (await ask(model)).text == "two"
    assert server.connections == 1
    await model.aclose()
    with trio.fail_after(5):
        await server.was_left.wait()
    with pytest.raises(trio.ClosedResourceError, match="was closed"):
        await ask(model)


async def test_a_stream_that_never_ends_is_closed_after_the_answer(
    server: FakeProvider, model: CloseableModel
) -> None:
    server.replies = [Say(text="all", cut=1000, then=Then.SILENCE)]

    with trio.fail_after(10):
        assert (await ask(model)).text == "all"


async def test_no_request_waits_for_another(server: FakeProvider, model: CloseableModel) -> None:
    """A parent that waits for its children would hold the connection they need."""
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            for _ in range(110):
                nursery.start_soon(ask, model)
            await server.wait_asked(110)
            nursery.cancel_scope.cancel()

    assert server.connections == 110


async def test_half_a_character_does_not_break_a_request(
    server: FakeProvider, model: CloseableModel
) -> None:
    """A file name that is no UTF-8 comes out of a tool like this."""
    server.replies = [Say(text="hi")]
    call = ToolCall("look", {"at": ["\udcff", {"\udcff": 1}, 2]}, id=CallId("a"))
    transcript = [UserMessage("look at \udcff"), AssistantMessage("", (call,))]

    assert (await ask(model, transcript=transcript)).text == "hi"


def pools(url: str = "http://127.0.0.1:1") -> Pools:
    return Pools(url, {}, 1.0)


def test_many_calls_are_spread_over_small_pools() -> None:
    """A pool looks at all its connections for each call."""

    async def spread() -> None:
        ours = pools()
        lent = [ours.client() for _ in range(3 * CALLS_PER_POOL)]
        clients = {id(each.__enter__()) for each in lent}
        assert len(ours) == len(clients) == 3
        for each in lent:
            each.__exit__(None, None, None)
        with ours.client() as again:
            assert id(again) in clients
        # They stay while their connections are fresh, and then all but the first go.
        await ours.close_unused()
        assert len(ours) == 3
        await trio.sleep(KEEPALIVE_SECONDS + 1)
        await ours.close_unused()
        assert len(ours) == 1
        await ours.aclose()
        assert len(ours) == 0

    trio.run(spread, clock=trio.testing.MockClock(autojump_threshold=0))


def test_certificates_are_only_loaded_where_there_are_any() -> None:
    assert pools()._tls.get_ca_certs() == []
    assert pools("https://example.org")._tls.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("url", "is_here"),
    [
        ("http://127.0.0.1:8080/v1", True),
        ("http://127.1.2.3", True),
        ("http://localhost:1234", True),
        ("http://[::1]:80", True),
        ("https://api.openai.com/v1", False),
        ("http://10.0.0.1", False),
        ("http://127.0.0.1.example.org", False),
        ("127.0.0.1/v1", False),
        ("http://[oops", False),
        ("http://a:b:c", False),
    ],
)
def test_is_on_loopback_recognizes_addresses_of_this_machine(url: str, *, is_here: bool) -> None:
    assert is_on_loopback(url) is is_here


@settings(deadline=None)
@given(st.data(), st.sampled_from([b"\n", b"\r\n"]))
def test_events_are_the_same_however_the_stream_is_cut(data: st.DataObject, end: bytes) -> None:
    lines = [
        *(b": a comment", b"event: x", b"data: one", b""),
        *(b"data:two", b"data: lines", b"id: 1", b""),
        *(b"retry: 1", b"", b"data: three", b"", b"data: unfinished"),
    ]
    whole = end.join(lines)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)))))
    events = SseParser()

    received = [
        event
        for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True)
        for event in events.feed(whole[start:stop])
    ]

    assert received == [b"one", b"two\nlines", b"three"]
    assert events.buffered == len(b"data: unfinished")
