"""Access: the token, the host, the media type and the size of a request."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from orchestrator.products.server.state import Settings
from orchestrator.products.server.transport.access import accepted_hosts
from tests.kit import worker
from tests.server.kit import TOKEN, Served, serving
from tests.server.raw_http import RawResponse, connected, exchanged, read_answers

pytestmark = pytest.mark.realtime

BEARER = f"Authorization: Bearer {TOKEN}"
JSON = "Content-Type: application/json"


NOT_SHOWN = [
    (),
    ("Authorization: Bearer nonsense",),
    ("Authorization: Bearer",),
    ("Authorization:",),
    (f"Authorization: Basic {TOKEN}",),
    (f"Authorization: {TOKEN}",),
    (f"Authorization: Bearer {TOKEN[:-1]}",),
    (f"Authorization: Bearer {TOKEN}x",),
    (f"Authorization: Bearer {TOKEN} {TOKEN}",),
    ("Authorization: Bearer \xff\xfe",),
    ("Authorization: Bearer nonsense", BEARER),
]

SCHEMES = ["Bearer", "bearer", "BEARER", "Bearer "]

OPEN = ["/health", "/ready"]

SHUT = ["/metrics", "/v1/models/", "/health/", "//health", "/nothing", "/Health"]

FOREIGN = [
    "Host: evil.example",
    "Host: localhost.evil.example",
    "Host: 127.0.0.1.evil.example:80",
    "Host: evil.example:127.0.0.1",
    "Host:",
    "Host: localhost@evil.example",
    "Host: [::1].evil.example",
    "Host: \xff",
    "X-Forwarded-Host: localhost\r\nHost: evil.example",
]

OURS = ["localhost", "LocalHost:8642", "127.0.0.1:1", "[::1]:8642", "robots.EXAMPLE:443"]

KINDS = [
    "Content-Type: text/plain",
    "Content-Type: application/x-www-form-urlencoded",
    "Content-Type: multipart/form-data; boundary=x",
    "Content-Type: application/jsonp",
    "Content-Type: \xff",
    "X-Nothing: at all",
]

METHODS = ["DELETE", "PUT", "PATCH", "TRACE", "BREW"]


@pytest.fixture
async def served() -> AsyncGenerator[Served]:
    settings = Settings(token=TOKEN, hosts=accepted_hosts([], ["Robots.example"]))
    async with serving(worker(), settings=settings) as opened:
        yield opened


async def ask(served: Served, path: str, *headers: str, **given: Any) -> RawResponse:
    """Ask with these headers and no others."""
    method = given.get("method", "GET")
    lines = [f"{method} {path} HTTP/1.1", *headers, "", given.get("body", "")]
    return await exchanged(served.url, "\r\n".join(lines).encode("latin-1"), method)


async def test_an_error_explains_how_to_send_the_token(served: Served) -> None:
    for shown in NOT_SHOWN:
        answer = await ask(served, "/v1/models", "Host: localhost", *shown)

        assert answer.status == 401
        assert answer.error["code"] == "invalid_api_key"
        assert "Authorization: Bearer" in answer.error["message"]
        assert answer.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in str(answer)


async def test_the_token_opens_the_door(served: Served) -> None:
    for scheme in SCHEMES:
        shown = f"Authorization: {scheme} {TOKEN}"

        assert (await ask(served, "/v1/models", "Host: localhost", shown)).status == 200


async def test_the_header_of_anthropic_carries_the_token_as_well(served: Served) -> None:
    shown = f"X-Api-Key: {TOKEN}"

    assert (await ask(served, "/v1/models", "Host: localhost", shown)).status == 200


async def test_health_needs_no_token(served: Served) -> None:
    for path in OPEN:
        assert (await ask(served, path, "Host: localhost")).status == 200


async def test_every_other_path_needs_a_token(served: Served) -> None:
    for path in SHUT:
        assert (await ask(served, path, "Host: localhost")).status == 401


async def test_a_foreign_page_does_not_reach_the_server_under_its_own_name(served: Served) -> None:
    """A name that its owner has resolved to 127.0.0.1."""
    for host in FOREIGN:
        answer = await ask(served, "/v1/models", host, BEARER)

        assert answer.status == 421
        assert answer.error["code"] == "wrong_host"


async def test_the_server_answers_to_its_own_host_names(served: Served) -> None:
    for host in OURS:
        assert (await ask(served, "/v1/models", f"Host: {host}", BEARER)).status == 200


async def test_an_old_client_that_names_no_host_is_refused(served: Served) -> None:
    request = f"GET /v1/models HTTP/1.0\r\n{BEARER}\r\n\r\n".encode()

    answer = await exchanged(served.url, request)

    assert answer.status == 421
    assert answer.error["code"] == "wrong_host"


async def test_content_types_of_forms_are_refused(served: Served) -> None:
    """A foreign page can have a browser send a form without asking."""
    for kind in KINDS:
        headers = ("Host: localhost", BEARER, kind, "Content-Length: 2")

        answer = await ask(served, "/v1/models", *headers, method="POST", body="{}")

        assert answer.status == 415
        assert answer.error["code"] == "unsupported_media_type"


async def test_a_body_with_a_large_content_length_is_not_read() -> None:
    settings = Settings(token=TOKEN, body_limit=1000)
    async with serving(worker(), settings=settings) as served:
        answer = await ask(
            served,
            "/v1/models",
            *("Host: localhost", BEARER, JSON, "Content-Length: 1001"),
            method="POST",
        )

    assert answer.status == 413
    assert answer.error["code"] == "body_too_large"
    assert "1,000" in answer.error["message"]


async def test_a_body_that_turns_out_to_be_too_long_is_not_read_to_its_end() -> None:
    settings = Settings(token=TOKEN, body_limit=1000)
    chunk = "400\r\n" + "x" * 1024 + "\r\n"
    async with serving(worker(), settings=settings) as served:
        answer = await ask(
            served,
            "/v1/models/worker",
            *("Host: localhost", BEARER, JSON, "Transfer-Encoding: chunked"),
            body=chunk * 3,
        )

    assert answer.status == 413
    assert answer.error["code"] == "body_too_large"


async def test_every_answer_has_an_id_and_a_client_may_choose_it(served: Served) -> None:
    own = await ask(served, "/health", "Host: localhost", "X-Request-Id: mine-1")
    made = await ask(served, "/health", "Host: localhost")
    odd = await ask(served, "/health", "Host: localhost", f"X-Request-Id: {'x' * 129}")

    assert own.headers["x-request-id"] == "mine-1"
    assert made.headers["x-request-id"].startswith("req_")
    assert odd.headers["x-request-id"].startswith("req_")


async def test_a_method_that_a_path_does_not_take_is_refused(served: Served) -> None:
    for method in METHODS:
        answer = await ask(served, "/v1/models", "Host: localhost", BEARER, method=method)

        assert answer.status == 405
        assert answer.error["code"] == "method_not_allowed"
        assert answer.headers["allow"]


async def test_a_preflight_request_gets_no_cors_headers(served: Served) -> None:
    """No foreign page may read a response, so there is nothing to allow."""
    preflight = ("Origin: https://evil.example", "Access-Control-Request-Method: POST")

    answer = await ask(served, "/v1/models", "Host: localhost", *preflight, method="OPTIONS")

    assert answer.status == 401
    assert not any(name.startswith("access-control") for name in answer.headers)


async def test_the_head_of_an_answer_may_be_asked_for(served: Served) -> None:
    answer = await ask(served, "/v1/models", "Host: localhost", BEARER, method="HEAD")

    assert answer.status == 200
    assert answer.body == b""


async def test_the_head_of_an_event_stream_is_answered_at_once() -> None:
    async with serving(worker()) as served:
        opened = await served.http.post("/v1/sessions", json={"model": "worker"})
        path = f"/v1/sessions/{opened.json()['id']}/events"
        asked = f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        async with connected(served.url) as stream:
            await stream.send_all(asked.encode() * 2)
            answers = await read_answers(stream, 2, "HEAD")
    assert [it.status for it in answers] == [200, 200]


async def test_every_agent_is_a_model() -> None:
    async with serving(worker("one"), worker("two")) as served:
        models = await served.openai.models.list()

    assert [model.id for model in models.data] == ["one", "two"]


async def test_a_missing_or_wrong_field_is_named() -> None:
    async with serving(worker()) as served:
        missing = await served.http.post("/v1/sessions", json={})
        wrong = await served.http.get("/v1/runs?limit=many")

    assert missing.json()["error"]["param"] == "model"
    assert wrong.json()["error"]["param"] == "limit"
