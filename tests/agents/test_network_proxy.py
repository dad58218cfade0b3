"""The proxy of sandboxed commands: real sockets on loopback, and names that a test resolves."""

import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from orchestrator.agents.sandbox.network import proxy as proxy_module
from orchestrator.agents.sandbox.network.allowed_hosts import AllowedHosts
from orchestrator.agents.sandbox.network.proxy import NetworkProxy
from orchestrator.agents.sandbox.network.requests import NetworkRequest

Handler = Callable[[trio.SocketStream], Awaitable[None]]
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class Site:
    """A host on loopback, and a proxy in front of it."""

    def __init__(self, port: int, proxy_port: int) -> None:
        self.port = port
        self.proxy_port = proxy_port
        self.seen = bytearray()
        """All that the host has received."""
        self.requests: list[NetworkRequest] = []

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.proxy_port)

    async def send(self, data: bytes) -> bytes:
        """Send a request, and return the whole answer."""
        async with await self.connect() as stream:
            await stream.send_all(data.replace(b"PORT", str(self.port).encode()))
            return await read_all(stream)

    async def get(self, authority: str, *headers: str) -> bytes:
        lines = [f"GET http://{authority}/a HTTP/1.1", "Host: x", *headers, "", ""]
        return await self.send("\r\n".join(lines).encode())


async def read_all(stream: trio.SocketStream) -> bytes:
    data = bytearray()
    async for chunk in stream:
        data += chunk
    return bytes(data)


@asynccontextmanager
async def open_site(
    *entries: str, handler: Handler | None = None, password: str | None = None
) -> AsyncGenerator[Site]:
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        [front] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        site = Site(listener.socket.getsockname()[1], front.socket.getsockname()[1])

        async def answer(stream: trio.SocketStream) -> None:
            async with stream:
                while b"\r\n\r\n" not in site.seen:
                    site.seen += await stream.receive_some()
                await stream.send_all(ANSWER)

        nursery.start_soon(trio.serve_listeners, handler or answer, [listener])
        proxy = NetworkProxy(
            AllowedHosts.parse(entry.replace("PORT", str(site.port)) for entry in entries),
            on_request=site.requests.append,
            password=password,
        )
        nursery.start_soon(proxy.serve, front)
        yield site
        nursery.cancel_scope.cancel()


class Names(trio.abc.HostnameResolver):
    """Resolves each name to its addresses, one list after the other."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def getaddrinfo(self, host: Any, port: Any, family: int = 0, *_: int, **__: int) -> Any:
        await trio.lowlevel.checkpoint()
        self.asked.append(host.decode())
        addresses = self._answers.pop(0)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(0, 0, 0, "", (address, port)) for address in addresses]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        raise AssertionError("the proxy looks up names, never addresses")


@pytest.fixture
def names() -> Callable[..., Names]:
    def resolve(*answers: Sequence[str]) -> Names:
        resolver = Names(*answers)
        trio.socket.set_custom_hostname_resolver(resolver)
        return resolver

    return resolve


@pytest.mark.realtime
async def test_a_request_reaches_the_host_that_is_named_and_its_answer_comes_back() -> None:
    async with open_site("localhost:PORT") as site:
        answer = await site.get(
            f"localhost:{site.port}",
            "Connection: close, X-Hop",
            "X-Hop: 1",
            "X-End: 2",
            "Proxy-Connection: keep-alive",
            "TE: trailers",
            "Upgrade: h2c",
        )

        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"\r\n\r\nhello")
        # The name that was judged, and nothing that is meant for us.
        assert bytes(site.seen).split(b"\r\n") == [
            b"GET /a HTTP/1.1",
            b"Host: localhost:%d" % site.port,
            b"X-End: 2",
            b"Connection: close",
            b"",
            b"",
        ]
        assert site.requests == [
            NetworkRequest(
                target=f"localhost:{site.port}",
                allowed=True,
                sent=len(site.seen),
                received=len(ANSWER),
            )
        ]


@pytest.mark.realtime
async def test_a_tunnel_carries_bytes_both_ways_and_each_end_by_itself() -> None:
    async def echo(stream: trio.SocketStream) -> None:
        async with stream:
            heard = await read_all(stream)  # up to the end of what the client says
            await stream.send_all(heard[::-1])

    async with open_site("localhost:PORT", handler=echo) as site:
        async with await site.connect() as stream:
            # The first bytes of the tunnel may come with the head.
            asked = f"CONNECT localhost:{site.port} HTTP/1.1\r\nHost: x\r\n\r\nabc"
            await stream.send_all(asked.encode())
            await stream.send_all(b"def")
            await stream.send_eof()
            answer = await read_all(stream)
        with trio.fail_after(5):
            while not site.requests:
                await trio.lowlevel.checkpoint()

        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"transfer-encoding" not in head.lower()
        assert body == b"fedcba"
        [request] = site.requests
        assert (request.sent, request.received) == (6, 6)


@pytest.mark.realtime
@pytest.mark.parametrize("entry", ["example.com", "*", "public:localhost:PORT", "127.0.0.1:1"])
async def test_the_proxy_refuses_an_unnamed_host_with_a_sentence(entry: str) -> None:
    async with open_site(entry) as site:
        for target in (f"localhost:{site.port}", f"127.0.0.1:{site.port}"):
            answer = await site.get(target)
            line, _, rest = answer.partition(b"\r\n")

            assert line.startswith(b"HTTP/1.1 403 ")
            assert f'Sandbox(network=[..., "{target}"])'.encode() in rest
        answer = await site.send(b"CONNECT localhost:PORT HTTP/1.1\r\nHost: x\r\n\r\n")

        # Clients show only the first line of what answers a CONNECT.
        assert b"403 localhost:%d " % site.port in answer
        assert [request.allowed for request in site.requests] == [False] * 3
        assert not site.seen


@pytest.mark.realtime
async def test_a_head_request_is_refused_without_a_body() -> None:
    async with open_site("example.com") as site:
        answer = await site.send(b"HEAD http://localhost:PORT/ HTTP/1.1\r\nHost: x\r\n\r\n")

        assert answer.startswith(b"HTTP/1.1 403 ")
        assert answer.endswith(b"\r\n\r\n")
        assert b" 403 " in await site.get("localhost")


@pytest.mark.realtime
async def test_a_name_that_is_not_allowed_is_not_even_looked_up(
    names: Callable[..., Names],
) -> None:
    """A lookup tells the name to its owner: that is a way out for secrets."""
    resolver = names()
    async with open_site("example.com", "*.example.net") as site:
        assert b" 403 " in await site.get("c3dvcmRmaXNo.example.com")

        assert resolver.asked == []


@pytest.mark.realtime
@pytest.mark.parametrize("entry", ["a.example.com", "*.example.com", "*"])
@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "::ffff:127.0.0.1"])
async def test_a_name_that_leads_to_this_machine_is_refused(
    names: Callable[..., Names], entry: str, address: str
) -> None:
    names([address])
    async with open_site(entry) as site:
        answer = await site.get("a.example.com")

        assert b" 403 " in answer.splitlines()[0]
        assert [request.allowed for request in site.requests] == [False]


@pytest.mark.realtime
async def test_the_address_that_was_judged_is_the_one_that_is_connected_to(
    names: Callable[..., Names],
) -> None:
    """A name whose second lookup leads elsewhere (DNS rebinding) is looked up once."""
    resolver = names(["127.0.0.1"], ["127.0.0.2"])
    async with open_site("a.example.com:PORT") as site:
        assert b" 200 " in await site.get(f"a.example.com:{site.port}")

        assert resolver.asked == ["a.example.com"]


@pytest.mark.realtime
async def test_the_next_address_is_tried_and_private_ones_are_skipped(
    names: Callable[..., Names],
) -> None:
    names(["169.254.169.254", "127.0.0.3", "127.0.0.1"], [])
    async with open_site("a.example.com:PORT") as site:
        assert b" 200 " in await site.get(f"a.example.com:{site.port}")
        assert b" 502 " in await site.get(f"a.example.com:{site.port}")


@pytest.mark.realtime
async def test_a_host_that_does_not_listen_is_a_bad_gateway() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        async with open_site(f"localhost:{port}") as site:
            assert b" 502 " in await site.get(f"localhost:{port}")
            assert [request.allowed for request in site.requests] == [True]


@pytest.mark.realtime
async def test_the_proxy_refuses_requests_without_the_password() -> None:
    async with open_site("localhost:PORT", password="swordfish") as site:
        target = f"localhost:{site.port}"
        right = "Proxy-Authorization: Basic c2FuZGJveDpzd29yZGZpc2g="
        for wrong in ("X: y", right[:-2], right.replace("Basic", "Bearer")):
            answer = await site.get(target, wrong)
            assert b" 407 " in answer.splitlines()[0]
            assert b"Proxy-Authenticate: Basic" in answer
        assert b" 200 " in await site.get(target, right)

        assert b"Authorization" not in site.seen


@pytest.mark.realtime
@pytest.mark.parametrize(
    "request_",
    [
        b"GET /a HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n",
        b"GET https://localhost:PORT/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://me:pw@localhost:PORT/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http:///a HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n",
        b"GET http://0x7f.1:PORT/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://localhost:PORT/ HTTP/1.1\r\n\r\n",
        b"CONNECT localhost HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT localhost:PORT HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx",
        # What two parsers could read in two ways.
        b"POST http://localhost:PORT/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET",
        b"POST http://localhost:PORT/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
        b"Content-Length: 4\r\n\r\nabcd",
        b"POST http://localhost:PORT/ HTTP/1.1\r\nHost: x\r\n"
        b"Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
        b"GET http://localhost:PORT/ HTTP/1.1\r\nHost : x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET http://localhost:PORT/" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_the_proxy_forwards_no_malformed_request(request_: bytes) -> None:
    async with open_site("localhost:PORT") as site:
        answer = await site.send(request_)

        assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 "))
        assert not site.seen


@pytest.mark.realtime
async def test_a_second_request_on_the_same_connection_is_not_forwarded() -> None:
    one = b"GET http://localhost:PORT/%d HTTP/1.1\r\nHost: x\r\n\r\n"
    async with open_site("localhost:PORT") as site:
        answer = await site.send(one % 1 + one % 2)

        assert answer.count(b"HTTP/1.1") == 1
        assert b"connection: close" in answer.lower()
        assert b"/2" not in site.seen


@pytest.mark.realtime
async def test_a_body_is_forwarded_in_either_framing_and_a_waiting_client_is_let_on() -> None:
    bodies: list[bytes] = []

    async def take(stream: trio.SocketStream) -> None:
        async with stream:
            heard = bytearray()
            while not heard.endswith((b"0\r\n\r\n", b"END")):
                heard += await stream.receive_some()
            bodies.append(bytes(heard).partition(b"\r\n\r\n")[2])
            await stream.send_all(
                b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n3\r\nyes\r\n0\r\n\r\n"
            )

    head = b"POST http://localhost:PORT/ HTTP/1.1\r\nHost: x\r\n"
    async with open_site("localhost:PORT", handler=take) as site:
        lengths = await site.send(head + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\nthEND")
        chunks = await site.send(head + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")

        assert b"HTTP/1.1 200 OK" in lengths
        assert chunks.startswith(b"HTTP/1.1 200 OK")
        assert chunks.endswith(b"3\r\nyes\r\n0\r\n\r\n")
        assert bodies == [b"thEND", b"3\r\nabc\r\n0\r\n\r\n"]


@pytest.mark.realtime
async def test_a_connection_header_cannot_drop_the_content_length() -> None:
    """Without its length the body would be a second request, or break the proxy."""
    async with open_site("localhost:PORT") as site:
        answer = await site.send(
            b"POST http://localhost:PORT/ HTTP/1.1\r\nHost: x\r\nConnection: content-length,"
            b" host\r\nContent-Length: 3\r\n\r\nabc"
        )

        assert b" 200 " in answer
        assert b"Content-Length: 3\r\n" in site.seen
        assert b"Host: localhost" in site.seen
        assert b" 200 " in await site.get(f"localhost:{site.port}")


@pytest.mark.realtime
async def test_an_early_answer_of_a_host_is_forwarded() -> None:
    async def too_large(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
            await read_all(stream)

    async with open_site("localhost:PORT", handler=too_large) as site:
        answer = await site.send(
            b"POST http://localhost:PORT/ HTTP/1.1\r\nHost: x\r\n"
            b"Content-Length: 100000000\r\n\r\nabc"
        )

        assert answer.startswith(b"HTTP/1.1 413 ")


@pytest.mark.realtime
@pytest.mark.parametrize("said", [b"", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 101 x\r\n\r\n"])
async def test_a_host_that_speaks_no_http_is_a_bad_gateway(said: bytes) -> None:
    async def speak(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(said or b" ")

    async with open_site("localhost:PORT", handler=speak) as site:
        assert b" 502 " in await site.get(f"localhost:{site.port}")


@pytest.mark.realtime
async def test_an_answer_that_breaks_off_breaks_off() -> None:
    async def break_off(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(ANSWER[:-2])

    async with open_site("localhost:PORT", handler=break_off) as site:
        answer = await site.get(f"localhost:{site.port}")

        assert answer.endswith(b"\r\n\r\nhel")


# An address is looked up without a thread, during which the clock would jump.


async def test_the_proxy_closes_a_silent_client() -> None:
    async with open_site("127.0.0.1:PORT") as site:
        async with await site.connect() as stream:
            await stream.send_all(b"GET http://loc")

            assert await read_all(stream) == b""
        assert trio.current_time() < proxy_module.IDLE_SECONDS


async def test_the_proxy_closes_a_silent_tunnel() -> None:
    async def be_silent(stream: trio.SocketStream) -> None:
        async with stream:
            await trio.sleep_forever()

    async with open_site("127.0.0.1:PORT", handler=be_silent) as site:
        answer = await site.send(b"CONNECT 127.0.0.1:PORT HTTP/1.1\r\nHost: x\r\n\r\n")

        assert b" 200 " in answer
        assert trio.current_time() >= proxy_module.IDLE_SECONDS
        assert [request.allowed for request in site.requests] == [True]


async def test_the_proxy_limits_concurrent_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_module, "MAX_CONNECTIONS", 1)
    async with open_site("127.0.0.1:PORT") as site:
        async with await site.connect():
            # It is in the backlog until the first one is closed, here for its silence.
            assert b" 200 " in await site.get(f"127.0.0.1:{site.port}")
        assert trio.current_time() >= proxy_module.HEAD_SECONDS


@pytest.mark.realtime
async def test_the_proxy_ends_with_its_nursery_and_reports_open_tunnels() -> None:
    async def be_silent(stream: trio.SocketStream) -> None:
        async with stream:
            await trio.sleep_forever()

    async with open_site("localhost:PORT", handler=be_silent) as site:
        stream = await site.connect()
        await stream.send_all(b"CONNECT localhost:%d HTTP/1.1\r\nHost: x\r\n\r\n" % site.port)
        assert b" 200 " in await stream.receive_some()
        assert not site.requests

    async with stream:
        assert [request.allowed for request in site.requests] == [True]
        with pytest.raises(OSError, match=r"."):
            await site.connect()
