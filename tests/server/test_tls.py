"""TLS: real handshakes, the protocols that are offered, and a certificate that changes."""

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from orchestrator.kernel.errors import ServerSetupError
from orchestrator.products.server.transport.connections import HANDSHAKE_SECONDS
from orchestrator.products.server.transport.listener import Listening, require_usable
from orchestrator.products.server.transport.tls import load_context
from tests.kit import worker
from tests.server.certificates import FIRST, SECOND
from tests.server.kit import TOKEN, Served, serving
from tests.server.raw_http import connected, until_closed
from tests.server.server_process import server_process

GOOD = f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"


def trusting(certificate: str = FIRST) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=certificate.partition("-----BEGIN PRIV")[0])


@asynccontextmanager
async def serving_tls(folder: Path) -> AsyncGenerator[Served]:
    file = folder / "both.pem"
    file.write_text(FIRST)
    async with serving(worker(), listening=Listening(port=0, certificate=file)) as served:
        yield served


@asynccontextmanager
async def encrypted(
    url: str, context: ssl.SSLContext
) -> AsyncGenerator[trio.SSLStream[trio.SocketStream]]:
    """Connect, and shake hands, as long as the block lasts."""
    async with connected(url) as plain:
        stream = trio.SSLStream(plain, context, server_hostname="127.0.0.1", https_compatible=True)
        await stream.do_handshake()
        yield stream


@pytest.mark.realtime
async def test_a_request_is_answered_over_tls_and_only_http_1_is_offered(tmp_path: Path) -> None:
    context = trusting()
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with serving_tls(tmp_path) as served:
        assert served.url.startswith("https://")
        async with encrypted(served.url, context) as stream:
            await stream.send_all(GOOD.encode())
            answer = await stream.receive_some()

            assert stream.selected_alpn_protocol() == "http/1.1"
            assert stream.version() == "TLSv1.3"
    assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.realtime
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_plain_text_and_old_tls_are_refused_without_harm_to_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = trusting()
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    async with serving_tls(tmp_path) as served:
        with pytest.raises(trio.BrokenResourceError):
            async with encrypted(served.url, old):
                pass
        async with connected(served.url) as stream:
            await stream.send_all(GOOD.encode())
            assert b"HTTP/1.1" not in await until_closed(stream)
        async with encrypted(served.url, trusting()):
            pass
    assert capsys.readouterr().err == ""


def test_every_cipher_has_forward_secrecy(tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    file.write_text(FIRST)
    names = [it["name"] for it in load_context(file, None).get_ciphers()]
    assert [it for it in names if it.startswith("ECDHE-")]
    assert [it for it in names if not it.startswith(("ECDHE-", "TLS_"))] == []


@pytest.mark.realtime
async def test_a_new_certificate_is_used_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One that is broken is told, once, and the one before it goes on."""
    async with serving_tls(tmp_path) as served:
        file = tmp_path / "both.pem"
        for content, trusted in ((FIRST, FIRST), (SECOND, SECOND), ("no", SECOND)):
            new = tmp_path / "new.pem"
            new.write_text(content)
            new.replace(file)
            for _ in range(2):
                async with encrypted(served.url, trusting(trusted)):
                    pass
    assert caplog.text.count("cannot be used") == 1


async def test_a_handshake_that_stops_is_closed(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with serving_tls(tmp_path) as served:
        async with connected(served.url) as stream:
            await stream.send_all(b"\x16\x03\x01\x02\x00")
            begun = trio.current_time()
            assert await until_closed(stream) == b""
            assert trio.current_time() - begun <= HANDSHAKE_SECONDS + 1
        await served.server.connections.wait_empty()


def test_other_machines_need_tls_by_default(tmp_path: Path) -> None:
    file = tmp_path / "both.pem"
    file.write_text(FIRST)
    for host in ("0.0.0.0", "::", "192.0.2.1", "agents.example"):
        with pytest.raises(ServerSetupError, match="--tls-cert"):
            require_usable(Listening(host=host))
        require_usable(Listening(host=host, certificate=file))
        require_usable(Listening(host=host, is_insecure=True))
    for host in ("127.0.0.1", "[::1]", "localhost"):
        require_usable(Listening(host=host))


READER = """
from orchestrator.agents import Agent, ScriptedModel, ToolCall
from orchestrator.agents.tools.files import read_file

look = ToolCall("read_file", {"path": "key.pem"})
reader = Agent(
    "reader",
    model=ScriptedModel([look, lambda transcript: transcript[-1].text]),
    tools=[read_file],
)
"""


@pytest.mark.realtime
async def test_the_command_speaks_tls_with_two_files_and_hides_its_key(tmp_path: Path) -> None:
    certificate, begin, key = FIRST.partition("-----BEGIN PRIV")
    (tmp_path / "cert.pem").write_text(certificate)
    (tmp_path / "key.pem").write_text(begin + key)
    files = ("--tls-cert", "cert.pem", "--tls-key", "key.pem")
    async with server_process(tmp_path, READER, *files) as server:
        async with server.http(verify=trusting()) as http:
            question = [{"role": "user", "content": "Read the key."}]
            answer = await http.post(
                "/v1/chat/completions", json={"model": "reader", "messages": question}
            )
            assert answer.status_code == 200
            assert "is hidden in the sandbox" in answer.text
        assert "--cacert" in server.output
        assert await server.terminate() == 0
    expected = ("sandbox of commands: ", "warning: the journal ")
    assert all(line.startswith(expected) for line in server.errors.splitlines())
