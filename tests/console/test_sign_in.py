"""Who may use the console: a link works once, a cookie is a key, and no other page can use it."""

from collections.abc import Mapping
from pathlib import Path

import httpx2
import pytest

from agents import Agent, ScriptedModel
from orchestrator.server.console.page import POLICY
from orchestrator.server.keys.changes import add_key
from orchestrator.server.keys.key import Scope
from orchestrator.server.state import Settings
from tests.server.kit import TOKEN, Served, serving

OWN = {"sec-fetch-site": "same-origin"}
pytestmark = pytest.mark.realtime


def worker() -> Agent:
    return Agent("worker", model=ScriptedModel.always("done"))


def client(served: Served) -> httpx2.AsyncClient:
    """Return a browser without a key."""
    return httpx2.AsyncClient(base_url=served.url, headers=OWN, timeout=30)


async def signed_in(http: httpx2.AsyncClient, **shown: str) -> httpx2.Response:
    answer = await http.post("/console/login", json=shown)
    assert answer.status_code == 204, answer.text
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
        assert set(me["scopes"]) == set(Scope)
        again = await http.post("/console/login", json={"code": code})
        assert again.status_code == 401
        assert "used already" in again.json()["error"]["message"]


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
async def test_no_other_page_can_use_the_cookie(headers: Mapping[str, str]) -> None:
    async with serving(worker()) as served, client(served) as http:
        await signed_in(http, code=served.server.state.sign_ins.new_link())
        answer = await http.post(
            "/v1/runs", json={"agent": "worker", "input": "go"}, headers=headers
        )

        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "cross_site"
        own = await http.post("/v1/runs", json={"agent": "worker", "input": "go"})
        assert own.status_code == 202


async def test_a_cookie_is_worth_nothing_where_it_was_changed() -> None:
    async with serving(worker()) as served, client(served) as http:
        await signed_in(http, code=served.server.state.sign_ins.new_link())
        [(name, value)] = http.cookies.items()
        for wrong in (value[:-1] + "0", "x", "", value.replace("orc_", "")):
            async with client(served) as other:
                answer = await other.get(
                    "/console/me", headers={"cookie": f"{name}={wrong}"}
                )
                assert answer.status_code == (200 if wrong == value else 401)


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
        assert (
            await http.post("/console/login", json={"token": "x"})
        ).status_code == 401
        cookies = file.parent.joinpath("console").read_text()
        assert token not in cookies


async def test_people_stay_signed_in_when_the_server_is_started_again(
    tmp_path: Path,
) -> None:
    settings = Settings(token=TOKEN, console_keys=tmp_path / "keys" / "console")
    async with serving(worker(), settings=settings) as served, client(served) as http:
        await signed_in(http, code=served.server.state.sign_ins.new_link())
        [(_, cookie)] = http.cookies.items()
    async with serving(worker(), settings=settings) as served, client(served) as http:
        port = served.url.rpartition(":")[2]
        headers = {"cookie": f"orchestrator_{port}={cookie}"}
        assert (await http.get("/console/me", headers=headers)).status_code == 200


async def test_where_people_may_only_look_the_cookie_changes_nothing() -> None:
    settings = Settings(token=TOKEN, is_view_only=True, may_default_approve=True)
    async with serving(worker(), settings=settings) as served:
        for shown in (
            {"code": served.server.state.sign_ins.new_link()},
            {"token": TOKEN},
        ):
            async with client(served) as http:
                await signed_in(http, **shown)
                assert (await http.get("/console/me")).json()["scopes"] == ["read"]
                for path, body in (
                    ("/v1/runs", {"agent": "worker", "input": "go"}),
                    ("/v1/approvals/a_1", {"answer": "once"}),
                ):
                    assert (await http.post(path, json=body)).status_code == 403
