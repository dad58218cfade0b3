"""Rare but valid HTTP/1.1 requests are answered correctly."""

import logging
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from starlette.requests import Request
from starlette.responses import Response

from orchestrator.products.server.transport.connections import Connections
from orchestrator.products.server.transport.http11 import (
    HEAD_SECONDS,
    KEEP_ALIVE_SECONDS,
    MOST_UNREAD,
    WHOLE_BODY,
)
from orchestrator.products.server.transport.listener import Listening, bind
from tests.server.raw_http import connected, read_answer, read_answers, until_closed

pytestmark = pytest.mark.realtime

KEEP_ALIVE = HEAD_SECONDS + 3
GET = b"GET /a%20b?c=d HTTP/1.1\r\nHost: it\r\n\r\n"


@asynccontextmanager
async def answering(
    app: Callable[[Any, Any, Any], Awaitable[None]], *, per_peer: int | None = None
) -> AsyncGenerator[str]:
    """Serve an application as long as the block lasts."""
    connections = Connections(
        app, logging.getLogger(__name__), per_peer=per_peer, keep_alive=KEEP_ALIVE
    )
    shutdown = trio.Event()
    with bind(Listening(port=0)) as listener:
        async with trio.open_nursery() as nursery:
            await nursery.start(connections.serve, listener, shutdown)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            shutdown.set()


async def echo(scope: Any, receive: Any, send: Any) -> None:
    request = Request(scope, receive, send)
    body = await request.body()
    text = f"{request.method} {scope['path']} {scope['query_string'].decode()} {len(body)}"
    await Response(text)(scope, receive, send)


async def test_the_application_receives_the_request() -> None:
    async with answering(echo) as url, connected(url) as stream:
        await stream.send_all(GET)
        answer = await read_answer(stream)

    assert answer.body == b"GET /a b c=d 0"
    assert answer.headers["date"].endswith(" GMT")


async def test_a_client_that_waits_to_be_let_on_is() -> None:
    head = b"POST / HTTP/1.1\r\nHost: it\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
    async with answering(echo) as url, connected(url) as stream:
        await stream.send_all(head)
        assert await stream.receive_some() == b"HTTP/1.1 100 \r\n\r\n"
        await stream.send_all(b"hello")
        assert (await read_answer(stream)).body == b"POST /  5"


async def test_a_body_beyond_the_read_ahead_arrives_whole() -> None:
    length = 5 * MOST_UNREAD
    head = f"POST / HTTP/1.1\r\nHost: it\r\nContent-Length: {length}\r\n\r\n".encode()
    async with answering(echo) as url, connected(url) as stream:
        await stream.send_all(head + b"x" * length + GET)
        answers = await read_answers(stream, 2)

    assert [it.body for it in answers] == [f"POST /  {length}".encode(), b"GET /a b c=d 0"]


async def refuse(scope: Any, receive: Any, send: Any) -> None:
    await Response(status_code=401)(scope, receive, send)


async def test_a_connection_goes_on_after_a_body_that_comes_later_than_its_answer() -> None:
    """Clients send a body after the head, and their next request on the same connection."""
    head = b"POST / HTTP/1.1\r\nHost: it\r\nContent-Length: 5\r\n\r\n"
    async with answering(refuse) as url, connected(url) as stream:
        await stream.send_all(head)
        first = await read_answer(stream)
        await stream.send_all(b"hello" + head)
        second = await read_answer(stream)

    assert [first.status, second.status] == [401, 401]
    assert "connection" not in first.headers


@pytest.mark.parametrize(
    "header",
    [
        "Transfer-Encoding: chunked",
        f"Content-Length: {MOST_UNREAD + 1}",
        "Content-Length: 5\r\nExpect: 100-continue",
    ],
)
async def test_an_answer_says_that_the_rest_of_a_body_is_not_waited_for(header: str) -> None:
    async with answering(refuse) as url, connected(url) as stream:
        await stream.send_all(f"POST / HTTP/1.1\r\nHost: it\r\n{header}\r\n\r\n".encode())
        answer = await read_answer(stream)
        assert answer.headers["connection"] == "close"
        assert await until_closed(stream) == b""


async def test_a_body_that_never_comes_ends_its_connection(
    mock_clock: trio.testing.MockClock,
) -> None:
    mock_clock.rate = 1
    head = b"POST / HTTP/1.1\r\nHost: it\r\nContent-Length: 5\r\n\r\n"
    async with answering(refuse) as url, connected(url) as stream:
        await stream.send_all(head)
        assert (await read_answer(stream)).status == 401
        await trio.testing.wait_all_tasks_blocked(0.01)
        mock_clock.jump(HEAD_SECONDS + 1)
        assert await stream.receive_some() == b""


async def test_a_connection_goes_on_after_a_body_that_was_not_read() -> None:
    body = b"POST / HTTP/1.1\r\nHost: it\r\nContent-Length: 5\r\n\r\nhello"
    async with answering(refuse) as url, connected(url) as stream:
        await stream.send_all(body + body)
        answers = await read_answers(stream, 2)

    assert [it.status for it in answers] == [401, 401]


async def test_a_client_that_goes_on_sending_reads_the_answer_to_that() -> None:
    """A connection that is closed with bytes to read is reset, and the answer is lost."""

    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        await Response("too long", status_code=413)(scope, receive, send)

    head = b"POST / HTTP/1.1\r\nHost: it\r\nContent-Length: 9000000\r\n\r\n"
    async with answering(refuse) as url, connected(url) as stream:
        await stream.send_all(head)
        for _ in range(60):
            await stream.send_all(b"x" * 50_000)
        assert (await until_closed(stream)).endswith(b"too long")


async def test_an_old_client_gets_a_stream_that_ends_with_its_connection() -> None:
    async def stream_of_two(scope: Any, receive: Any, send: Any) -> None:
        del receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for more in (True, False):
            await send({"type": "http.response.body", "body": b"word ", "more_body": more})

    async with answering(stream_of_two) as url, connected(url) as stream:
        await stream.send_all(b"GET / HTTP/1.0\r\n\r\n")
        answer = await until_closed(stream)

    assert answer.endswith(b"\r\n\r\nword word ")


async def test_an_application_that_raises_ends_its_connection_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/bug":
            raise ValueError("a bug")
        await echo(scope, receive, send)

    async with answering(fails) as url, connected(url) as other:
        async with connected(url) as stream:
            await stream.send_all(b"GET /bug HTTP/1.1\r\nHost: it\r\n\r\n")
            assert await until_closed(stream) == b""
        await other.send_all(GET)
        assert (await read_answer(other)).status == 200

    assert "a bug" in caplog.text


@pytest.mark.parametrize(
    "header",
    [
        (b"x-next", b"one\r\nset-cookie: two"),
        (b"x-next: one\r\nset-cookie", b"two"),
        (b"x next", b"one"),
        (b"", b"one"),
        (b"x-next", b"one\x00"),
    ],
)
async def test_an_invalid_header_of_an_application_is_never_sent(
    header: tuple[bytes, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        del scope, receive
        headers = [(b"content-length", b"0"), header]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async with answering(answer) as url, connected(url) as stream:
        await stream.send_all(GET)
        assert await until_closed(stream) == b""

    assert "Illegal header" in caplog.text


async def test_headers_of_any_case_frame_an_answer() -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        del scope, receive
        headers = [(b"Content-Length", b"2"), (b"X-Next", b"one two")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    async with answering(answer) as url, connected(url) as stream:
        await stream.send_all(GET)
        found = await read_answer(stream)

    assert (found.body, found.headers["x-next"]) == (b"ok", "one two")
    assert "transfer-encoding" not in found.headers


async def test_an_incomplete_answer_closes_the_connection() -> None:
    """Its client would take the next one for the rest of it."""

    async def half(scope: Any, receive: Any, send: Any) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})

    async with answering(half) as url, connected(url) as stream:
        await stream.send_all(GET + GET)
        answer = await until_closed(stream)

    assert answer.count(b"HTTP/1.1 200") == 1
    assert answer.endswith(b"half\r\n")


async def test_a_client_that_is_silent_is_disconnected(mock_clock: trio.testing.MockClock) -> None:
    mock_clock.rate = 1
    async with answering(echo) as url, connected(url) as stream:
        await stream.send_all(GET)
        assert (await read_answer(stream)).status == 200
        await trio.testing.wait_all_tasks_blocked(0.01)
        mock_clock.jump(KEEP_ALIVE - 1)
        await stream.send_all(GET)
        assert (await read_answer(stream)).status == 200
        await trio.testing.wait_all_tasks_blocked(0.01)
        mock_clock.jump(KEEP_ALIVE + 1)
        assert await stream.receive_some() == b""


def test_a_server_keeps_a_connection_longer_than_its_clients_do() -> None:
    """Clients keep one for 5 or 60 seconds; a server that closed it first would lose a request."""
    assert Listening(port=0).keep_alive == KEEP_ALIVE_SECONDS > 60


@asynccontextmanager
async def answered(first: bytes) -> AsyncGenerator[trio.SocketStream]:
    """Connect to a server, which answers a first request, if there is one."""
    async with answering(echo) as url, connected(url) as stream:
        if first:
            await stream.send_all(first)
            await read_answer(stream)
        yield stream


@pytest.mark.parametrize("first", [b"", GET])
async def test_a_head_that_comes_byte_by_byte_is_given_up(
    mock_clock: trio.testing.MockClock, first: bytes
) -> None:
    mock_clock.rate = 1
    async with answered(first) as stream:
        for byte in (b"G", b"E", b"T"):
            await stream.send_all(byte)
            await trio.testing.wait_all_tasks_blocked(0.01)
            mock_clock.jump(HEAD_SECONDS * 0.4)

        assert await stream.receive_some() == b""


@pytest.mark.parametrize("first", [b"", GET])
async def test_a_request_that_came_while_the_process_was_stopped_is_answered(
    mock_clock: trio.testing.MockClock, first: bytes
) -> None:
    mock_clock.rate = 1
    async with answered(first) as stream:
        await trio.testing.wait_all_tasks_blocked(0.01)
        # Both in one step of the event loop, as after SIGCONT.
        with socket.socket(fileno=os.dup(stream.socket.fileno())) as raw:
            raw.sendall(GET)
            mock_clock.jump(KEEP_ALIVE + 1)

        assert (await read_answer(stream)).status == 200


async def test_an_idle_connection_makes_room_for_another() -> None:
    async with answering(echo, per_peer=2) as url:
        async with connected(url) as busy, connected(url) as idle:
            await idle.send_all(GET)
            await read_answer(idle)
            await busy.send_all(b"GET / HTTP/1.1\r\n")
            await trio.testing.wait_all_tasks_blocked(0.01)
            async with connected(url) as another:
                await another.send_all(GET)

                assert (await read_answer(another)).status == 200
            assert await idle.receive_some() == b""
            await busy.send_all(b"Host: it\r\n\r\n")

            assert (await read_answer(busy)).status == 200


async def test_an_address_with_too_many_connections_reads_why_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with answering(echo, per_peer=1) as url, connected(url) as busy:
        await busy.send_all(b"GET / HTTP/1.1\r\n")
        await trio.testing.wait_all_tasks_blocked(0.01)
        for _ in range(2):
            async with connected(url) as another:
                refused = await read_answer(another)

                assert refused.status == 429
                assert b"too many connections" in refused.body

    (record,) = caplog.records
    assert "loopback has 1 connections" in record.getMessage()


async def test_clients_that_connect_together_are_accepted_together() -> None:
    """One in each pass of the scheduler would wait for all other work that is ready."""
    reached = 0

    async def note(scope: Any, receive: Any, send: Any) -> None:
        nonlocal reached
        reached += 1
        await echo(scope, receive, send)

    passes = 0
    async with answering(note) as url:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        with ExitStack() as clients:
            for _ in range(60):
                clients.enter_context(socket.create_connection(address)).sendall(GET)
            while reached < 60:
                await trio.lowlevel.checkpoint()
                passes += 1

    assert passes < 20


async def test_a_body_that_comes_in_two_parts_arrives_whole() -> None:
    """The application asks for the body that came with the head, and then waits for the rest."""

    async def look_first(scope: Any, receive: Any, send: Any) -> None:
        early = scope["state"][WHOLE_BODY]()
        body = await Request(scope, receive, send).body() if early is None else early
        await Response(f"{early is not None} {body.decode()}")(scope, receive, send)

    head = b"POST / HTTP/1.1\r\nHost: it\r\nContent-Length: 6\r\n\r\n"
    async with answering(look_first) as url, connected(url) as stream:
        await stream.send_all(head + b"abcdef")
        whole = await read_answer(stream)
        await stream.send_all(head + b"abc")
        await trio.testing.wait_all_tasks_blocked(0.05)
        await stream.send_all(b"def")
        halves = await read_answer(stream)

    assert whole.body == b"True abcdef"
    assert halves.body == b"False abcdef"
