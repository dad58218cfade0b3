"""Sign-in to the console: a link works once, a sign-in is a key, and no other page can use it."""

import signal
from collections.abc import Mapping
from os import mkfifo
from pathlib import Path

import attrs
import httpx2
import pytest
import trio

from orchestrator.agents import Agent, ScriptedModel
from orchestrator.products.server.console.page import POLICY
from orchestrator.products.server.console.sign_in import (
    HEADER,
    UNLOCKED_SECONDS,
    SignIns,
    halves_of,
)
from orchestrator.products.server.keys.changes import add_key, revoke_key, rotate_key
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.keys.store import KeyStore
from orchestrator.products.server.state import Settings
from tests.console.kit import ConsoleServer
from tests.server.kit import TOKEN, Served, serving

OWN = {"sec-fetch-site": "same-origin"}
pytestmark = pytest.mark.realtime


def worker() -> Agent:
    return Agent("worker", model=ScriptedModel.always("done"))


def client(served: Served) -> httpx2.AsyncClient:
    """Return a browser without a key."""
    return httpx2.AsyncClient(base_url=served.url, headers=OWN, timeout=30)


async def signed_in(http: httpx2.AsyncClient, **shown: str) -> httpx2.Response:
    """Sign in as the page does, which sends its secret with each request."""
    answer = await http.post("/console/login", json=shown)
    assert answer.status_code == 200, answer.text
    http.headers[HEADER] = answer.json()["secret"]
    return answer


async def test_a_link_signs_one_browser_in_once() -> None:
    async with serving(worker()) as served, client(served) as http:
        code = served.server.state.sign_ins.new_link()
        assert (await http.get("/console/me")).status_code == 401

        answer = await signed_in(http, code=code)

        flags = answer.headers["set-cookie"].lower()
        assert "httponly" in flags
        assert "samesite=strict" in flags
        me = (await http.get("/console/me")).json()
        assert me["key"] == "console"
        assert {*me["scopes"]} == {*Scope} - {Scope.APPROVE, Scope.ADMIN}
        assert {*me["locked"]} == {Scope.APPROVE, Scope.ADMIN}
        again = await http.post("/console/login", json={"code": code})
        assert again.status_code == 401
        assert "already used" in again.json()["error"]["message"]


async def test_the_page_and_its_files_need_no_key_and_allow_no_foreign_code() -> None:
    settings = Settings(token=TOKEN, hosts=frozenset({"127.0.0.1"}))
    async with serving(worker(), settings=settings) as served, client(served) as http:
        for path in ("/", "/console/console.js", "/console/worker.js"):
            answer = await http.get(path)
            assert answer.status_code == 200
            assert answer.headers["content-security-policy"] == POLICY
        assert "unsafe" not in POLICY
        wrong = await http.get("/", headers={"host": "evil.example"})
        assert wrong.status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "", "origin": "https://evil.example"},
    ],
)
async def test_another_page_cannot_use_the_cookie(headers: Mapping[str, str]) -> None:
    async with serving(worker()) as served, client(served) as http:
        await signed_in(http, code=served.server.state.sign_ins.new_link())
        answer = await http.post(
            "/v1/runs", json={"agent": "worker", "input": "go"}, headers=headers
        )

        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "cross_site"
        own = await http.post("/v1/runs", json={"agent": "worker", "input": "go"})
        assert own.status_code == 202


async def test_a_changed_cookie_is_rejected() -> None:
    async with serving(worker()) as served, client(served) as http:
        await signed_in(http, code=served.server.state.sign_ins.new_link())
        [(name, value)] = http.cookies.items()
        for wrong in (value[:-1] + "0", "x", "", value.replace("orc_", "")):
            async with client(served) as other:
                headers = {"cookie": f"{name}={wrong}", HEADER: http.headers[HEADER]}
                answer = await other.get("/console/me", headers=headers)
                assert answer.status_code == (200 if wrong == value else 401)


async def test_neither_half_of_a_sign_in_opens_anything() -> None:
    async with serving(worker()) as served, client(served) as http:
        await signed_in(http, code=served.server.state.sign_ins.new_link())
        [(name, cookie)] = http.cookies.items()
        secret = http.headers[HEADER]
        for half in (
            {"cookie": f"{name}={cookie}"},
            {"cookie": f"{name}={cookie}", HEADER: ""},
            {"cookie": f"{name}={cookie}", HEADER: "0" * len(secret)},
            {HEADER: secret},
            {"cookie": f"{name}=", HEADER: secret},
            {"cookie": f"{name}=", HEADER: f"{cookie}{secret}"},
            {"authorization": f"Bearer {cookie}"},
            {"authorization": f"Bearer {cookie}{secret}"},
        ):
            async with client(served) as thief:
                for path in ("/console/me", "/console/events?watch=1:runs", "/v1/runs"):
                    assert (await thief.get(path, headers=half)).status_code == 401
                begun = {"agent": "worker", "input": "go"}
                answer = await thief.post("/v1/runs", json=begun, headers=half)
                assert answer.status_code == 401


async def test_a_cookie_that_another_port_sets_locks_no_browser_out() -> None:
    async with serving(worker()) as served, client(served) as http:
        await signed_in(http, code=served.server.state.sign_ins.new_link())
        [(name, cookie)] = http.cookies.items()
        both = {"cookie": f"{name}=theirs; {name}={cookie}", HEADER: http.headers[HEADER]}
        async with client(served) as browser:
            assert (await browser.get("/console/me", headers=both)).status_code == 200


async def test_a_link_approves_and_prunes_only_with_the_approval_code() -> None:
    async with serving(worker()) as served, client(served) as http:
        sign_ins = served.server.state.sign_ins
        await signed_in(http, code=sign_ins.new_link())
        prune = {"older_than": 0, "dry_run": True}
        verdict = {"answer": "once"}
        assert (await http.post("/v1/runs/prune", json=prune)).status_code == 403
        refused = await http.post("/v1/approvals/a_1", json=verdict)
        assert refused.json()["error"]["code"] == "missing_scope"
        for wrong in ("", "AAAAA-AAAAA", TOKEN):
            answer = await http.post("/console/unlock", json={"code": wrong})
            assert answer.status_code == 403

        code = sign_ins.approval_code.lower()
        assert (await http.post("/console/unlock", json={"code": f" {code} "})).status_code == 204

        assert (await http.post("/v1/runs/prune", json=prune)).status_code == 200
        assert (await http.post("/v1/approvals/a_1", json=verdict)).status_code == 404
        assert (await http.get("/console/me")).json()["locked"] == []
        async with client(served) as other:
            # The code unlocks one browser, and alone it opens nothing.
            answer = await other.post("/console/unlock", json={"code": code})
            assert answer.status_code == 401
            await signed_in(other, code=sign_ins.new_link())
            assert (await other.post("/v1/runs/prune", json=prune)).status_code == 403


async def test_an_unlocked_sign_in_is_locked_again_after_twelve_hours(tmp_path: Path) -> None:
    file = tmp_path / "keys" / "keys.json"
    _, token = add_key(file, "ann", now=0, scopes={Scope.READ, Scope.APPROVE})
    now = 1000.0
    keys = KeyStore(file, clock=lambda: now)
    sign_ins = SignIns(keys, None)
    shown = await sign_ins.use_token(token, "")
    found = sign_ins.find(shown)
    assert found is not None
    assert not found.locked
    now += UNLOCKED_SECONDS + 1
    found = sign_ins.find(shown)
    assert found is not None
    assert found.key.scopes == {Scope.READ}
    assert found.locked == {Scope.APPROVE}
    # The token of the same key unlocks it, too.
    await sign_ins.unlock(shown, token, "")
    found = sign_ins.find(shown)
    assert found is not None
    assert found.key.scopes == {Scope.READ, Scope.APPROVE}


async def test_a_token_signs_in_with_the_scopes_of_its_key(tmp_path: Path) -> None:
    file = tmp_path / "keys" / "keys.json"
    _, token = add_key(file, "ann", now=0, scopes={Scope.READ})
    settings = Settings(token=TOKEN, keys=file, console_keys=file.parent / "console")
    async with serving(worker(), settings=settings) as served, client(served) as http:
        await signed_in(http, token=token)
        me = (await http.get("/console/me")).json()
        assert (me["key"], me["owner"], me["scopes"]) == ("ann", "ann", ["read"])
        refused = await http.post("/v1/runs", json={"agent": "worker", "input": "go"})
        assert refused.status_code == 403

        await http.post("/console/logout")
        assert (await http.get("/console/me")).status_code == 401
        assert (await http.post("/console/login", json={"token": "x"})).status_code == 401
        cookies = file.parent.joinpath("console").read_text()
        assert token not in cookies


async def test_people_stay_signed_in_when_the_server_is_started_again(tmp_path: Path) -> None:
    settings = Settings(token=TOKEN, console_keys=tmp_path / "keys" / "console")
    async with serving(worker(), settings=settings) as served, client(served) as http:
        await signed_in(http, code=served.server.state.sign_ins.new_link())
        [(_, cookie)] = http.cookies.items()
        token = cookie + http.headers[HEADER]
    async with serving(worker(), settings=settings) as served:
        assert await look(served, token) == 200


def headers_of(served: Served, token: str) -> dict[str, str]:
    """Return the headers of a page that is signed in."""
    port = served.url.rpartition(":")[2]
    cookie, secret = halves_of(token)
    return {"cookie": f"orchestrator_{port}={cookie}", HEADER: secret}


async def look(served: Served, token: str) -> int:
    """Return the status for a request of a page that is signed in."""
    async with client(served) as http:
        return (await http.get("/console/me", headers=headers_of(served, token))).status_code


async def cookie_for(served: Served, **shown: str) -> str:
    """Return both halves of a new sign-in."""
    async with client(served) as http:
        await signed_in(http, **shown)
        [(_, cookie)] = http.cookies.items()
        return cookie + http.headers[HEADER]


async def test_a_cookie_ends_with_the_token_that_was_shown_and_not_with_its_name(
    tmp_path: Path,
) -> None:
    file = tmp_path / "keys" / "keys.json"
    _, stolen = add_key(file, "ann", now=0)
    settings = Settings(token=TOKEN, keys=file, console_keys=file.parent / "console")
    async with serving(worker(), settings=settings) as served:
        first = await cookie_for(served, token=stolen)
        assert await look(served, first) == 200
        _, token = rotate_key(file, "ann", now=0, grace=0)
        assert await look(served, first) == 401

        second = await cookie_for(served, token=token)
        revoke_key(file, "ann")
        add_key(file, "ann", now=0, owner="bob", scopes={Scope.ADMIN})
        assert await look(served, second) == 401


async def test_a_cookie_of_the_default_key_ends_with_its_token(tmp_path: Path) -> None:
    settings = Settings(token=TOKEN, console_keys=tmp_path / "keys" / "console")
    async with serving(worker(), settings=settings) as served:
        cookie = await cookie_for(served, token=TOKEN)
    async with serving(worker(), settings=settings) as served:
        assert await look(served, cookie) == 200
    settings = attrs.evolve(settings, token="another-token-of-the-server")
    async with serving(worker(), settings=settings) as served:
        assert await look(served, cookie) == 401


async def test_two_servers_of_a_folder_share_sign_ins_and_sign_outs(tmp_path: Path) -> None:
    settings = Settings(token=TOKEN, console_keys=tmp_path / "keys" / "console")
    async with (
        serving(worker(), settings=settings) as one,
        serving(worker(), settings=settings) as other,
    ):
        ann = await cookie_for(one, code=one.server.state.sign_ins.new_link())
        assert await look(other, ann) == 200
        # Who signs in at the other one signs out no one, and in neither.
        bob = await cookie_for(other, token=TOKEN)
        assert await look(one, ann) == await look(one, bob) == 200

        await one.server.state.sign_ins.sign_out(ann)
        assert await look(other, ann) == await look(one, ann) == 401
        await cookie_for(other, token=TOKEN)
        assert await look(one, ann) == 401
        assert await look(one, bob) == 200


async def test_signing_out_ends_the_stream_that_is_open_at_every_server(tmp_path: Path) -> None:
    settings = Settings(token=TOKEN, console_keys=tmp_path / "keys" / "console")
    async with (
        serving(worker(), settings=settings) as one,
        serving(worker(), settings=settings) as other,
    ):
        ann = await cookie_for(one, token=TOKEN)
        bob = await cookie_for(one, token=TOKEN)
        ended: list[str] = []

        async def read(served: Served, name: str, cookie: str) -> None:
            headers = headers_of(served, cookie)
            async with (
                client(served) as http,
                http.stream("GET", "/console/events?watch=1:runs", headers=headers) as events,
            ):
                async for line in events.aiter_lines():
                    if "open" in line:
                        opened.release()
                    if "invalid_api_key" in line:
                        ended.append(name)
                        left.release()

        opened, left = trio.Semaphore(0), trio.Semaphore(0)
        async with trio.open_nursery() as nursery:
            for served, name, cookie in (
                (one, "ann here", ann),
                (other, "ann there", ann),
                (one, "bob here", bob),
            ):
                nursery.start_soon(read, served, name, cookie)
            for _ in range(3):
                await opened.acquire()

            await one.server.state.sign_ins.sign_out(ann)
            # The other server sees it with the next request of anyone.
            assert await look(other, bob) == 200

            with trio.fail_after(10):
                await left.acquire()
                await left.acquire()
            nursery.cancel_scope.cancel()

    assert sorted(ended) == ["ann here", "ann there"]


async def test_the_first_sign_in_after_a_restart_keeps_other_sign_ins(tmp_path: Path) -> None:
    settings = Settings(token=TOKEN, console_keys=tmp_path / "keys" / "console")
    async with serving(worker(), settings=settings) as served:
        ann = await cookie_for(served, token=TOKEN)
    async with serving(worker(), settings=settings) as served:
        await cookie_for(served, token=TOKEN)
        assert await look(served, ann) == 200


VERBS = ("pause", "unpause", "retry", "fork", "cancel")


async def test_the_cookie_of_a_view_only_server_may_only_read() -> None:
    settings = Settings(token=TOKEN, is_view_only=True, may_default_approve=True)
    async with serving(worker(), settings=settings) as served:
        for shown in ({"code": served.server.state.sign_ins.new_link()}, {"token": TOKEN}):
            async with client(served) as http:
                await signed_in(http, **shown)
                assert (await http.get("/console/me")).json()["scopes"] == ["read"]
                for path, body in (
                    ("/v1/runs", {"agent": "worker", "input": "go"}),
                    ("/v1/approvals/a_1", {"answer": "once"}),
                    ("/v1/runs/r_1/resume", None),
                    *((f"/v1/tasks/t_1/{verb}", None) for verb in VERBS),
                ):
                    assert (await http.post(path, json=body)).status_code == 403


def test_the_link_is_in_no_list_of_processes(tmp_path: Path) -> None:
    """`ui` gives a browser a file that only this user can read, which leads to the link."""
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    mkfifo(seen)
    browser.write_text(
        "#!/bin/sh\n"
        'file="${1#file://}"\n'
        f'{{ echo "$1"; stat -c %a "$file"; cat "$file"; }} > {seen}\n'
    )
    browser.chmod(0o700)
    server = ConsoleServer(tmp_path, command="ui", BROWSER=f"{browser} %s")
    server.start()
    try:
        address, mode, *lines = seen.read_text().splitlines()
        code = server.link.rpartition("/")[2]
        with httpx2.Client(base_url=server.url, headers=OWN) as http:
            answer = http.post("/console/login", json={"code": code})
    finally:
        server.end(signal.SIGTERM)

    assert code not in address
    assert mode == "600"
    assert any(f'href="{server.link}"' in line for line in lines)
    assert answer.status_code == 200
    assert not Path(address.removeprefix("file://")).exists()
