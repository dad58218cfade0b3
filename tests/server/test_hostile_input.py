"""Hostile input: the server stays up, answers other clients, and keeps nothing of it."""

import re
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from orchestrator.products.server.app import OPERATIONS
from orchestrator.products.server.state import Settings
from orchestrator.products.server.transport.listener import Listening
from orchestrator.products.server.transport.peers import PeerConnections, peer_of
from tests.kit import worker
from tests.server.kit import TOKEN, Served, serving
from tests.server.raw_http import connected, exchanged, read_answers, until_closed
from tests.server.server_process import server_process

pytestmark = pytest.mark.realtime

HEAD = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
POST = f"POST /v1/models HTTP/1.1\r\n{HEAD}Content-Type: application/json\r\n"
GOOD = f"GET /v1/models HTTP/1.1\r\n{HEAD}\r\n".encode()
UPGRADE = (
    f"GET /v1/models HTTP/1.1\r\n{HEAD}Connection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
).encode()
NO_JSON = [
    *(b"", b"{", b"null", b"[]", b'"text"', b"\x00", b"{}\x00", b"\xff\xfe{}", b"NaN"),
    *(b'{"a": "\xff"}', b'{"a": "\\ud800"', b"[" * 100_000, b'{"a":' * 100_000),
]


NO_REQUESTS = [
    b"\x00\x01\x02\x03\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500,
    b"nonsense\r\n\r\n",
    b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
    b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    # Two who read these do not agree where the next request begins.
    POST.encode() + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}   ",
    POST.encode() + b"Content-Length: -1\r\n\r\n{}",
    POST.encode() + b"Content-Length: 2, 3\r\n\r\n{}",
    POST.encode() + b"Content-Length: +2\r\n\r\n{}",
    POST.encode() + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    POST.encode() + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    POST.encode() + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
]

ODD_PATHS = [
    *("/v1/models/%00", "/v1/models/%ff%fe", "/v1/models/..%2f..%2fetc%2fpasswd"),
    *("/../../etc/passwd", "/v1/models?%00=%ff&x=%", "/%", "/v1/%2e%2e/x", "*"),
    *("//evil.example/x", "http://evil.example/v1/models/nobody", "/?" + "x=1&" * 3000),
]

FRAMES = [b"", b"\x81\x85abcd\x00\x00\x00\x00\x00", b"\xff" * 9]


@pytest.fixture
async def served(capsys: pytest.CaptureFixture[str]) -> AsyncGenerator[Served]:
    """A server that must be as it was when the test is over."""
    settings = Settings(token=TOKEN, may_default_approve=True, body_limit=1_000_000)
    async with serving(worker(), settings=settings) as opened:
        before = trio.lowlevel.current_statistics().tasks_living
        yield opened
        assert (await exchanged(opened.url, GOOD)).status == 200
        # The server would keep its connection for longer than the test may take.
        await opened.http.aclose()
        with trio.fail_after(20):
            await opened.server.connections.wait_empty()
        after = trio.lowlevel.current_statistics().tasks_living
        assert after <= before
    assert capsys.readouterr().err == ""


async def test_a_malformed_request_is_refused_and_its_connection_closed(served: Served) -> None:
    for request_ in NO_REQUESTS:
        async with connected(served.url) as stream:
            await stream.send_all(request_)
            answer = await until_closed(stream)

        assert not answer or answer.split()[1] in {b"400", b"431", b"501", b"505", b"405"}


async def test_a_length_and_chunks_together_hide_no_second_request(served: Served) -> None:
    """Bytes after the last chunk are a request of their own, and it has no token."""
    hidden = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    request = POST.encode() + (
        b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden
    )
    async with connected(served.url) as stream:
        await stream.send_all(request)
        answer = await until_closed(stream)

    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"HTTP/1.1 200" not in answer


async def test_an_odd_path_is_answered_like_any_other(served: Served) -> None:
    for target in ODD_PATHS:
        async with connected(served.url) as stream:
            await stream.send_all(f"GET {target} HTTP/1.1\r\n{HEAD}\r\n".encode())
            (answer,) = await read_answers(stream, 1)

        assert answer.status in {200, 400, 404}
        if answer.status == 404:
            assert answer.error["code"] in {"not_found", "model_not_found"}


async def test_every_route_refuses_invalid_json(served: Served) -> None:
    for route in OPERATIONS:
        path = re.sub(r"{\w+}", "nothing", route.path)
        for body in NO_JSON if route.body is not None else ():
            answer = await served.http.request(
                route.method, path, content=body, headers={"content-type": "application/json"}
            )
            assert answer.status_code in {400, 404, 422}, (path, body[:40])
            assert answer.json()["error"]["message"]
            assert answer.headers["x-request-id"]


async def test_requests_in_one_packet_are_answered_in_order(served: Served) -> None:
    async with connected(served.url) as stream:
        await stream.send_all(GOOD + f"GET /no HTTP/1.1\r\n{HEAD}\r\n".encode() + GOOD)
        answers = await read_answers(stream, 3)

    assert [answer.status for answer in answers] == [200, 404, 200]


async def test_a_websocket_upgrade_is_always_refused(served: Served) -> None:
    for frame in FRAMES:
        async with connected(served.url) as stream:
            await stream.send_all(UPGRADE + frame)
            answer = await until_closed(stream)

        assert answer.split()[1] == b"403"


async def test_another_version_of_http_is_refused(served: Served) -> None:
    """HTTP/2 without TLS, begun without an upgrade: 33 bytes held a connection for ever."""
    for rest in (b"", b"SM\r\n\r\n" + b"\x00" * 9 + b"\xff" * 64):
        async with connected(served.url) as stream:
            await stream.send_all(b"PRI * HTTP/2.0\r\n\r\n" + rest)
            answer = await until_closed(stream)

        assert answer.startswith(b"HTTP/1.1 505")


async def test_an_upgrade_to_http_2_is_ignored(served: Served) -> None:
    """Also one whose settings are nonsense."""
    upgrade = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    for settings in ("", "AAMAAABkAAQAAP__", "!!"):
        request = f"GET /v1/models HTTP/1.1\r\n{HEAD}{upgrade}HTTP2-Settings: {settings}\r\n\r\n"
        assert (await exchanged(served.url, request.encode())).status == 200


async def test_a_large_body_is_refused_where_no_body_is_needed(served: Served) -> None:
    """Without a token it would fill the memory."""
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 70000\r\n\r\n"
    async with connected(served.url) as stream:
        await stream.send_all(head + b"x" * 69_000)
        answer = await until_closed(stream)

    assert answer.startswith(b"HTTP/1.1 413")
    assert b"takes no body" in answer
    small = head.replace(b"70000", b"2") + b"{}"
    assert (await exchanged(served.url, small)).status == 200


async def test_a_broken_off_body_is_refused_without_a_log_line(served: Served) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    for rest in (b"ZZ\r\n", b"2\r\n{}XX0\r\n\r\n"):
        async with connected(served.url) as stream:
            await stream.send_all(head + rest)
            answer = await until_closed(stream)
        assert answer.count(b"HTTP/1.1 ") == 1
        assert answer.split()[1] == b"400"


async def test_without_a_key_no_large_body_is_taken(served: Served) -> None:
    head = (
        b"POST /console/login HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\n"
        b"Content-Type: application/json\r\nContent-Length: 900000\r\n\r\n"
    )
    answer = await exchanged(served.url, head + b"[" * 70_000)
    assert answer.status == 413


async def test_an_incomplete_request_blocks_no_other_and_is_closed(served: Served) -> None:
    async with AsyncExitStack() as slow:
        streams = [await slow.enter_async_context(connected(served.url)) for _ in range(50)]
        for number, stream in enumerate(streams):
            await stream.send_all(GOOD[: 1 + number])
        with trio.fail_after(30):
            assert (await exchanged(served.url, GOOD)).status == 200
        for stream in streams:
            await until_closed(stream)


async def test_a_disconnect_at_any_point_leaves_no_connection(served: Served) -> None:
    long = POST.encode() + b"Content-Length: 1000\r\n\r\n{"
    chunked = POST.encode() + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"
    public = b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nab"
    read = long.replace(b"/v1/models", b"/v1/runs")
    heads = (b"", b"G", GOOD[:40], GOOD, GOOD * 50, UPGRADE)
    for request in (*heads, long, chunked, public, read):
        for is_rude in (False, True):
            async with connected(served.url) as stream:
                if is_rude:
                    # Closing then resets the connection instead of ending it.
                    linger = struct.pack("ii", 1, 0)
                    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                await stream.send_all(request)


async def test_many_silent_connections_block_no_request(served: Served) -> None:
    async with AsyncExitStack() as idle:
        for _ in range(1000):
            await idle.enter_async_context(connected(served.url))
        with trio.fail_after(5):
            assert (await exchanged(served.url, GOOD)).status == 200


async def test_one_peer_cannot_take_all_connections() -> None:
    """It is told so at once, and has one again when it closes another."""
    async with serving(worker(), listening=Listening(port=0, connections_per_peer=3)) as limited:
        async with AsyncExitStack() as idle:
            for _ in range(3):
                await idle.enter_async_context(connected(limited.url))
            async with connected(limited.url) as stream:
                assert (await until_closed(stream)).startswith(b"HTTP/1.1 429 ")
            assert limited.server.connections.count == 3
        await limited.server.connections.wait_empty()
        assert (await exchanged(limited.url, GOOD)).status == 200
        metrics = (await limited.http.get("/metrics")).text
        assert 'orchestrator_http_refused_total{status="429"} 1.0' in metrics


def test_a_peer_is_an_address_a_network_of_one_owner_or_this_machine() -> None:
    same = [
        ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"),
        ("192.0.2.1", "::ffff:192.0.2.1"),
        ("2001:db8::1", "2001:db8::ffff:1:2:3"),
        ("fe80::1", "fe80::2%eth0"),
        ("192.0.2.2",),
        ("2001:db8:0:1::1",),
    ]
    peers = [{peer_of(address) for address in addresses} for addresses in same]

    assert all(len(found) == 1 for found in peers)
    assert len(set.union(*peers)) == len(same)


def test_a_peer_has_no_more_than_its_share() -> None:
    """Loopback may have half of all, since a proxy may be there; another one a quarter."""

    def open_all(peer: str, slots: int) -> int:
        connections = PeerConnections(slots)
        return sum(connections.open(peer) is not None for _ in range(slots))

    assert open_all("192.0.2.1", 48) == 12
    assert open_all("192.0.2.1", 10_000) == 100
    assert open_all(peer_of("::1"), 48) == 24
    assert open_all("192.0.2.1", 1) == 1


async def test_the_server_waits_when_files_run_out(tmp_path: Path) -> None:
    """As many connections as it may have files, and more: it goes on, and so do its runs."""
    limited = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
    agents = limited + "from tests.kit import worker\nagent = worker()\n"
    async with server_process(tmp_path, agents) as server:
        async with AsyncExitStack() as idle:
            for _ in range(100):
                await idle.enter_async_context(connected(server.url))
        async with server.http() as http:
            assert (await http.get("/v1/models")).status_code == 200
        assert await server.terminate() == 0
        assert server.errors.count("\n") == 1
        assert "raise the limit of open files" in server.errors
