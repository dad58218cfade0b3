"""A server forwards a request to the writer of its journal, and to no other address."""

import os
import platform
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

import attrs
import httpx2
import pytest
import trio
from starlette.responses import Response

from orchestrator.kernel.journal.store import Writer
from orchestrator.products.cluster.database.address import parse_address
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.cluster.cluster_server import secret_of_database
from orchestrator.products.server.cluster.forwarded_header import (
    HEADER,
    Forwarded,
    StaleHeaderError,
    read_forwarded,
    sign,
)
from orchestrator.products.server.cluster.proxy import (
    ForwardedAnswer,
    may_reach,
    open_proxy,
    url_at,
)
from orchestrator.products.server.keys.changes import revoke_key
from orchestrator.products.server.keys.key import Key, Scope
from orchestrator.products.server.state import Settings
from orchestrator.products.server.transport.errors import HttpError
from orchestrator.products.server.transport.listener import Listening
from tests.kit import worker
from tests.server.cluster_kit import AGENTS
from tests.server.keys_kit import serving_with_keys
from tests.server.kit import TOKEN, serving
from tests.server.raw_http import connected, exchanged, read_answer
from tests.server.server_process import ROOT

WRITER = "http://10.0.0.5:8642"


@pytest.mark.realtime
@pytest.mark.parametrize(
    "target", ["%2Fv1%2Fruns%2Fabc@169.254.169.254:80", "%2Fhealth", "http://localhost/health"]
)
async def test_a_target_that_is_not_a_path_is_refused_before_routing(target: str) -> None:
    async with serving(worker()) as served:
        answer = await exchanged(
            served.url,
            f"GET {target} HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {TOKEN}\r\n\r\n".encode(),
        )
    assert answer.status == 400
    assert answer.error["code"] == "invalid_target"


@pytest.mark.parametrize(
    "target", [b"/v1/runs/a@169.254.169.254:80?x=%2F|", b"//evil.example/x", b"/a:b@c"]
)
def test_every_path_leads_to_the_writer(target: bytes) -> None:
    url = url_at(WRITER, target)
    assert (url.scheme, url.host, url.port) == ("http", "10.0.0.5", 8642)
    assert url.raw_path == target


@pytest.mark.parametrize(
    "target", [b"%2Fv1%2Fruns%2Fabc@169.254.169.254:80", b"@evil.example/", b"", b"/\xff"]
)
def test_an_invalid_target_makes_no_url(target: bytes) -> None:
    with pytest.raises(HttpError) as caught:
        url_at(WRITER, target)
    assert caught.value.problem.code == "invalid_target"


SECRET = b"a random secret of the servers"
ASKED = {"method": "GET", "target": "/v1/runs", "request": "req_1"}


def test_a_forwarded_request_is_believed_for_a_minute_and_as_it_was_signed() -> None:
    header = sign(SECRET, peer="8.8.8.8", now=1000, key=None, **ASKED)
    assert read_forwarded(SECRET, header, now=1060, **ASKED) == Forwarded("8.8.8.8")
    for now in (1061, 939):
        with pytest.raises(StaleHeaderError):
            read_forwarded(SECRET, header, now=now, **ASKED)
    for changed in ("method", "target", "request"):
        other = {**ASKED, changed: "other"}
        assert read_forwarded(SECRET, header, now=1000, **other) is None
    later = header.replace(" 1000 ", " 2000 ")
    assert read_forwarded(SECRET, later, now=2000, **ASKED) is None
    assert read_forwarded(b"another", header, now=1000, **ASKED) is None


def test_the_key_of_a_forwarded_person_is_signed() -> None:
    ann = Key(name="oidc/ann", owner="oidc/ann", scopes=frozenset({Scope.READ}))
    root = attrs.evolve(ann, scopes=frozenset(Scope))
    header, other = (sign(SECRET, peer="::1", now=1, **ASKED, key=it) for it in (ann, root))
    assert read_forwarded(SECRET, header, now=1, **ASKED) == Forwarded("::1", ann)
    forged = " ".join([*header.split(" ")[:3], other.split(" ")[3]])
    assert read_forwarded(SECRET, forged, now=1, **ASKED) is None
    assert read_forwarded(SECRET, header.rpartition(" ")[0], now=1, **ASKED) is None


@pytest.mark.realtime
async def test_the_first_server_of_a_database_makes_its_secret(postgres: str) -> None:
    found: list[str] = []

    async def start() -> None:
        found.append(await secret_of_database(parse_address(postgres)))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(start)
    (secret,) = set(found)
    assert len(secret) == 64


@pytest.mark.realtime
async def test_a_header_of_another_time_is_refused_and_not_forwarded_again() -> None:
    settings = Settings(token=TOKEN, cluster_secret=SECRET)
    async with serving(worker(), settings=settings) as served:
        header = sign(SECRET, peer="8.8.8.8", now=time.time() - 600, key=None, **ASKED)
        answer = await served.http.get(
            "/v1/runs", headers={HEADER: header, "x-request-id": "req_1"}
        )
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "clocks_differ"


HERE = platform.node()


@pytest.mark.parametrize(
    "address",
    [
        *("http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"),
        *("http://0.0.0.0:1", "http://[::]:1", "http://[::ffff:127.0.0.1]:1"),
    ],
)
async def test_no_key_is_sent_to_the_loopback_address_of_another_machine(address: str) -> None:
    call = cast(ApiCall, None)  # nothing of it is looked at
    elsewhere = Writer(process=1, host=HERE, network=f"not-{HERE}", address=address)
    # Also if this server has the same one.
    for own in ("http://127.0.0.1:2", address):
        async with open_proxy(SECRET, own, time.time) as proxy:
            with pytest.raises(HttpError) as caught:
                await proxy.forward(call, elsewhere, journal="shard-0")
        assert caught.value.status == 503
        assert caught.value.problem.code == "writer_unreachable"
    assert may_reach(address, HERE)
    assert may_reach("https://10.0.0.5:8642", f"not-{HERE}")


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--host", "0.0.0.0", "--insecure"], "give --address"),
        (["--address", "http://0.0.0.0:8642"], "give --address"),
        (["--address", "http://10.0.0.5:8642"], "--insecure"),
    ],
)
async def test_a_server_of_a_database_needs_a_safe_address(
    tmp_path: Path, options: list[str], says: str
) -> None:
    await trio.Path(tmp_path / "agents_file.py").write_text(AGENTS)
    command = [sys.executable, "-m", "orchestrator", "serve", "agents_file.py"]
    ended = await trio.run_process(
        [*command, *options, "--journal", "postgresql://nobody@127.0.0.1:1/none"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "ORCHESTRATOR_API_KEY": TOKEN},
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert says in ended.stderr.decode()


@pytest.mark.realtime
async def test_forwarded_clients_are_not_counted_as_one_peer() -> None:
    """The forwarding server has counted each of them, and all come from its address."""
    settings = Settings(token=TOKEN, may_default_approve=True, cluster_secret=SECRET)
    target = "/v1/models"
    signed = sign(
        SECRET, peer="192.0.2.1", method="GET", target=target, request="request-1", now=time.time()
    )
    request = (
        f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"X-Request-Id: request-1\r\n"
    )
    forwarded = f"{request}{HEADER}: {signed}\r\n\r\n".encode()
    async with (
        serving(
            worker(), settings=settings, listening=Listening(port=0, connections_per_peer=2)
        ) as served,
        AsyncExitStack() as kept,
    ):
        for _ in range(5):
            stream = await kept.enter_async_context(connected(served.url))
            # Twice: a connection is released once.
            for _ in range(2):
                await stream.send_all(forwarded)
                assert (await read_answer(stream)).status == 200
        direct = [await kept.enter_async_context(connected(served.url)) for _ in range(2)]
        for stream in direct:
            await stream.send_all(request.encode())  # without its end: it is not idle
        refused = await kept.enter_async_context(connected(served.url))
        assert (await read_answer(refused)).status == 429
        for stream in direct:
            await stream.send_all(b"\r\n")
            assert (await read_answer(stream)).status == 200


@pytest.mark.realtime
async def test_an_answer_for_a_key_that_was_revoked_meanwhile_is_hung_up_on(tmp_path: Path) -> None:
    closed = trio.Event()

    class Body(httpx2.ByteStream):
        async def aclose(self) -> None:
            await trio.lowlevel.checkpoint()
            closed.set()

    async with (
        serving_with_keys(worker(), folder=tmp_path) as keyed,
        open_proxy(SECRET, WRITER, time.time) as proxy,
    ):
        token = keyed.new_token("bot")

        async def home_of(_: ApiCall) -> Response:
            await trio.lowlevel.checkpoint()
            revoke_key(keyed.file, "bot")
            answer = httpx2.Response(200, stream=Body(b"{}"))
            return ForwardedAnswer(proxy, answer, "shard-0", 1)

        keyed.served.server.state.home_of = home_of
        refused = await keyed.ask(token, "GET", "/v1/runs/r_0123456789abcdef")
        assert refused.status_code == 401
        assert closed.is_set()
