"""Web pages of other origins, the log of requests, and bodies that are encoded."""

import gzip
import json

import pytest

from orchestrator.agents import Agent
from orchestrator.products.server.state import Settings
from tests.server.chat_kit import HELLO
from tests.server.kit import TOKEN, serving
from tests.server.streaming_kit import speaker

pytestmark = pytest.mark.realtime

PAGE = "https://chat.example.org"
CHAT = "/v1/chat/completions"
BODY = {"model": "a", "messages": HELLO}
PREFLIGHT = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-os",
}


def with_origins(*origins: str) -> Settings:
    return Settings(token=TOKEN, origins=frozenset(origins))


@pytest.mark.parametrize("origins", [(PAGE, "https://other.example.org"), ("*",)])
async def test_a_page_of_a_named_origin_may_ask(origins: tuple[str, ...]) -> None:
    agent = Agent("a", model=speaker("42"))
    allowed = "*" if "*" in origins else PAGE
    async with serving(agent, settings=with_origins(*origins)) as served:
        del served.http.headers["authorization"]
        asked = await served.http.options(CHAT, headers={"origin": PAGE, **PREFLIGHT})
        answer = await served.http.post(
            CHAT, json=BODY, headers={"origin": PAGE, "authorization": f"Bearer {TOKEN}"}
        )
        refused = await served.http.post(CHAT, json=BODY, headers={"origin": PAGE})

    assert asked.status_code == 204
    assert asked.headers["access-control-allow-origin"] == allowed
    assert asked.headers["access-control-allow-headers"].endswith("x-stainless-os")
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == allowed
    assert "x-run-id" in answer.headers["access-control-expose-headers"]
    # A page can read why it is refused.
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == allowed


@pytest.mark.parametrize("origins", [(), ("https://other.example.org",)])
async def test_other_origins_get_no_cors_headers(origins: tuple[str, ...]) -> None:
    agent = Agent("a", model=speaker("42"))
    async with serving(agent, settings=with_origins(*origins)) as served:
        asked = await served.http.options(CHAT, headers={"origin": PAGE, **PREFLIGHT})
        answer = await served.http.get("/health", headers={"origin": PAGE})

    assert asked.status_code == 405
    for each in (asked, answer):
        assert not [name for name in each.headers if name.startswith("access-control")]


async def test_a_line_is_logged_for_each_request(caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(token=TOKEN, logs_access=True)
    async with serving(Agent("a", model=speaker("42")), settings=settings) as served:
        answer = await served.http.post(CHAT, json=BODY)
        await served.http.get("/v1/runs/none?q=a-question")
        await served.http.get("/health/%0Aforged", headers={"authorization": "x y"})
    chat, missing, wrong = caplog.messages
    assert {it.name for it in caplog.records} == {"orchestrator.server.access"}

    run = answer.headers["x-run-id"]
    request = answer.headers["x-request-id"]
    _, peer, key, *rest, seconds, logged_run, logged_id = chat.split(" ")
    assert (peer, key, logged_run, logged_id) == ("127.0.0.1", "default", run, request)
    assert rest == ["POST", CHAT, "200"]
    assert seconds.endswith("s")
    assert " default GET /v1/runs/none 404 " in missing
    assert " - GET /health/%0Aforged 401 " in wrong
    assert "question" not in missing


async def test_the_server_logs_no_line_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(Agent("a", model=speaker("42"))) as served:
        await served.http.post(CHAT, json=BODY)

    assert capsys.readouterr().err == ""


async def test_an_encoded_body_is_refused_as_such() -> None:
    async with serving(Agent("a", model=speaker("42"))) as served:
        answer = await served.http.post(
            CHAT,
            content=gzip.compress(json.dumps(BODY).encode()),
            headers={"content-type": "application/json", "content-encoding": "gzip"},
        )

    assert answer.status_code == 415
    assert answer.json()["error"]["code"] == "unsupported_content_encoding"
    assert answer.headers["accept-encoding"] == "identity"


async def test_the_created_time_of_a_model_is_the_start_of_the_server() -> None:
    async with serving(Agent("a", model=speaker("42"))) as served:
        models = await served.openai.models.list()
        model = await served.openai.models.retrieve("a")

    assert models.data[0].created == model.created == served.server.state.started > 0
