"""Sign-in to the console with an OpenID Connect provider, and the attacks on it."""

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import attrs
import httpx2
import pytest

from orchestrator.agents import Agent, ScriptedModel
from orchestrator.backends import store_at
from orchestrator.ports.errors import ServerSetupError
from orchestrator.products.server.console.oidc import (
    LOOK_AGAIN_SECONDS,
    TICKET_SECONDS,
    OidcSettings,
    OidcSignIn,
    Person,
    parse_groups,
)
from orchestrator.products.server.console.sign_in import HEADER, PERSON_SECONDS, SignIns, key_of
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.keys.store import KeyStore
from orchestrator.products.server.state import Settings
from orchestrator.products.server.transport.errors import HttpError
from tests.console.kit import ConsoleServer, wait
from tests.console.oidc_provider import CLIENT, SECRET, OidcProvider, open_provider
from tests.report.browser import Browser, Page, PageError
from tests.server.kit import TOKEN, Served, serving

pytestmark = pytest.mark.realtime

ORIGIN = "http://127.0.0.1:8642"
GROUPS = {
    "engineers": frozenset({Scope.READ, Scope.RUN}),
    "oncall": frozenset({Scope.APPROVE}),
    "operators": frozenset({Scope.ADMIN}),
}


@pytest.fixture
def provider() -> Iterator[OidcProvider]:
    with open_provider() as opened:
        yield opened


def settings_at(provider: OidcProvider) -> OidcSettings:
    return OidcSettings(
        issuer=provider.issuer, client_id=CLIENT, client_secret=SECRET, groups=GROUPS
    )


@asynccontextmanager
async def browser_at(provider: OidcProvider) -> AsyncGenerator[tuple[Served, httpx2.AsyncClient]]:
    """Serve the console, and yield a browser that is not signed in."""
    worker = Agent("worker", model=ScriptedModel.always("done"))
    settings = Settings(token=TOKEN, oidc=settings_at(provider), hosts=frozenset({"127.0.0.1"}))
    async with serving(worker, settings=settings) as served:
        headers = {"sec-fetch-site": "same-origin", "origin": served.url}
        async with httpx2.AsyncClient(base_url=served.url, headers=headers, timeout=30) as http:
            yield served, http


async def begun(http: httpx2.AsyncClient) -> tuple[str, dict[str, str]]:
    """Begin a sign-in, agree at the provider, and return the ticket and the provider's answer."""
    answer = await http.post("/console/oidc")
    assert answer.status_code == 200, answer.text
    async with httpx2.AsyncClient() as elsewhere:
        sent = await elsewhere.get(answer.json()["location"])
    return answer.json()["ticket"], dict(parse_qsl(urlsplit(sent.headers["location"]).query))


async def finished(
    http: httpx2.AsyncClient, ticket: str, answer: Mapping[str, str]
) -> httpx2.Response:
    sent = await http.post("/console/oidc/finish", json={"ticket": ticket, **answer})
    if sent.status_code == 200:
        http.headers[HEADER] = sent.json()["secret"]
    else:
        assert "set-cookie" not in sent.headers
    return sent


@pytest.mark.parametrize("algorithm", ["ES256", "RS256"])
async def test_a_person_has_the_scopes_of_their_groups(
    provider: OidcProvider, algorithm: str, tmp_path: Path
) -> None:
    provider.algorithm = algorithm
    provider.groups = ["engineers", "oncall", "strangers"]
    async with browser_at(provider) as (served, http):
        sent = await finished(http, *await begun(http))

        assert sent.status_code == 200, sent.text
        flags = sent.headers["set-cookie"].lower()
        assert "httponly" in flags
        assert "samesite=strict" in flags
        me = (await http.get("/console/me")).json()
        name = name_at(provider)
        assert (me["key"], me["owner"], me["shown"]) == (name, name, provider.name)
        assert {*me["scopes"]} == {"read", "run", "approve"}
        assert me["locked"] == []
        body = {"agent": "worker", "input": "go"}
        assert (await http.post("/v1/runs", json=body)).status_code == 202
        verdict = await http.post("/v1/approvals/a_1", json={"answer": "once"})
        assert verdict.status_code == 404
        prune = {"older_than": 0, "dry_run": True}
        assert (await http.post("/v1/runs/prune", json=prune)).status_code == 403
        code = served.server.state.sign_ins.approval_code
        assert (await http.post("/console/unlock", json={"code": code})).status_code == 204
        assert (await http.post("/v1/runs/prune", json=prune)).status_code == 403

        signed_out = await http.post("/console/logout")
        assert signed_out.status_code == 204
        assert "max-age=0" in signed_out.headers["set-cookie"].lower()
        assert (await http.get("/console/me")).status_code == 401


async def test_the_audit_names_the_people_who_sign_in(
    provider: OidcProvider, tmp_path: Path
) -> None:
    worker = Agent("worker", model=ScriptedModel.always("done"))
    settings = Settings(token=TOKEN, oidc=settings_at(provider))
    journal = tmp_path / "journal.db"
    async with serving(worker, settings=settings, journal=journal) as served:
        headers = {"sec-fetch-site": "same-origin", "origin": served.url}
        async with httpx2.AsyncClient(base_url=served.url, headers=headers, timeout=30) as http:
            await finished(http, *await begun(http))
            provider.groups = []
            sent = await finished(http, *await begun(http))
            assert (sent.status_code, sent.json()["error"]["code"]) == (403, "no_group")
            provider.fault = "expired"
            assert (await finished(http, *await begun(http))).status_code == 401
    with store_at(journal).open_reader(verify=False) as reader:
        rows = [it.event for it in reader.audit().rows if it.event.action == "finish_oidc"]
    assert [(it.actor, it.target, it.outcome) for it in rows] == [
        (f"key:{name_at(provider)}", provider.name, "accepted"),
        (f"key:{name_at(provider)}", provider.name, "403"),
        ("unknown", "", "401"),
    ]


@pytest.mark.parametrize("groups", [None, "strangers", ["strangers"], {"engineers": 1}, [["x"], 1]])
async def test_a_person_without_a_mapped_group_is_refused(
    provider: OidcProvider, groups: object
) -> None:
    provider.groups = groups
    async with browser_at(provider) as (_, http):
        assert (await finished(http, *await begun(http))).status_code == 403
        assert (await http.get("/console/me")).status_code == 401


@pytest.mark.parametrize(
    "fault",
    [
        *("issuer", "audience", "shared audience", "authorized party", "nonce", "expired"),
        *("not yet", "subject", "without exp", "without nonce", "without sub", "without aud"),
        *("no signature", "public key as secret", "another key", "unknown key", "no token"),
        *("surrogate nonce", "surrogate subject"),
    ],
)
async def test_a_wrong_id_token_is_refused(provider: OidcProvider, fault: str) -> None:
    provider.fault = fault
    async with browser_at(provider) as (_, http):
        sent = await finished(http, *await begun(http))

        assert (sent.status_code, sent.json()["error"]["code"]) == (401, "cannot_sign_in")
        provider.fault = ""
        assert (await finished(http, *await begun(http))).status_code == 200


async def test_an_answer_that_another_browser_began_is_refused(provider: OidcProvider) -> None:
    async with browser_at(provider) as (_, http):
        ticket, answer = await begun(http)
        other_ticket, other = await begun(http)
        for wrong in (
            {"ticket": ticket, **other},
            {"ticket": other_ticket, **answer},
            {"ticket": "", **answer},
            {"ticket": "a.b.c", **answer},
            {"ticket": f"{ticket}x", **answer},
            {"ticket": ticket, **answer, "state": ""},
            {"ticket": ticket, **answer, "iss": "https://evil.example"},
            # A stolen code in a sign-in of one's own: the provider checks the verifier.
            {"ticket": other_ticket, **other, "code": answer["code"]},
        ):
            sent = await http.post("/console/oidc/finish", json=wrong)
            assert (sent.status_code, sent.json()["error"]["code"]) == (401, "cannot_sign_in")


async def test_an_answer_signs_in_once(provider: OidcProvider) -> None:
    async with browser_at(provider) as (_, http):
        ticket, answer = await begun(http)
        assert (await finished(http, ticket, answer)).status_code == 200
        again = await http.post("/console/oidc/finish", json={"ticket": ticket, **answer})
        assert again.status_code == 401
        assert "already used" in again.json()["error"]["message"]


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "null"},
    ],
)
async def test_another_page_can_neither_begin_nor_finish_a_sign_in(
    provider: OidcProvider, headers: Mapping[str, str]
) -> None:
    async with browser_at(provider) as (_, http):
        ticket, answer = await begun(http)
        refused = await http.post("/console/oidc", headers=headers)
        assert refused.status_code == 403
        body = {"ticket": ticket, **answer}
        refused = await http.post("/console/oidc/finish", json=body, headers=headers)
        assert refused.status_code == 403
        refused = await http.post(
            "/console/oidc", headers={"host": "evil.example", "origin": "http://evil.example"}
        )
        assert refused.status_code == 421


async def test_the_provider_sends_people_back_to_the_console_alone(provider: OidcProvider) -> None:
    async with browser_at(provider) as (served, http):
        path = "/console/oidc?redirect_uri=https://evil.example&next=https://evil.example"
        answer = await http.post(path, json={"redirect_uri": "https://evil.example"})
        location: str = answer.json()["location"]
        query = dict(parse_qsl(urlsplit(location).query))
        assert query["redirect_uri"] == f"{served.url}/"
        assert "evil" not in answer.text


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://evil.example/token"},
        {"jwks_uri": "http://evil.example/keys"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"jwks_uri": 1},
    ],
)
async def test_a_wrong_configuration_of_the_provider_is_refused(
    provider: OidcProvider, document: Mapping[str, object]
) -> None:
    provider.document = dict(document)
    async with browser_at(provider) as (_, http):
        answer = await http.post("/console/oidc")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "sign_in_unavailable")


async def test_a_configuration_without_an_end_is_refused(provider: OidcProvider) -> None:
    provider.fault = "deep"
    async with browser_at(provider) as (_, http):
        answer = await http.post("/console/oidc")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "sign_in_unavailable")


async def test_a_name_that_is_no_text_signs_in(provider: OidcProvider) -> None:
    provider.name = "Ann \ud800"
    async with browser_at(provider) as (_, http):
        assert (await finished(http, *await begun(http))).status_code == 200
        assert (await http.get("/console/me")).json()["shown"] == "Ann ?"


async def test_a_server_without_a_provider_has_no_such_sign_in() -> None:
    worker = Agent("worker", model=ScriptedModel.always("done"))
    async with serving(worker) as served, httpx2.AsyncClient(base_url=served.url) as http:
        headers = {"sec-fetch-site": "same-origin", "origin": served.url}
        assert (await http.post("/console/oidc", headers=headers)).status_code == 404
        assert "oidc" not in (await http.get("/")).text


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


CLOCK = Clock()


async def person_at(
    oidc: OidcSignIn, later: OidcSignIn | None = None, seconds: float = 0
) -> Person:
    """Sign a person in, perhaps at another server, and after some time."""
    started = await oidc.begin(ORIGIN)
    async with httpx2.AsyncClient() as elsewhere:
        sent = await elsewhere.get(started.location)
    answer = dict(parse_qsl(urlsplit(sent.headers["location"]).query))
    CLOCK.now += seconds
    return await (later or oidc).finish(ORIGIN, ticket=started.ticket, **answer)


async def test_another_server_with_the_same_secret_finishes_a_sign_in(
    provider: OidcProvider,
) -> None:
    settings = settings_at(provider)
    one, two, stranger = (
        OidcSignIn(settings, secret=secret, clock=CLOCK) for secret in (b"a", b"a", b"b")
    )
    assert (await person_at(one, two)).subject == "00u1"
    with pytest.raises(HttpError, match="too old"):
        await person_at(one, stranger)


async def test_a_sign_in_ends_after_ten_minutes(provider: OidcProvider) -> None:
    oidc = OidcSignIn(settings_at(provider), secret=b"a", clock=CLOCK)
    await person_at(oidc, seconds=TICKET_SECONDS - 1)
    with pytest.raises(HttpError, match="too old"):
        await person_at(oidc, seconds=TICKET_SECONDS + 1)


async def test_a_new_key_of_the_provider_is_read_and_an_unknown_one_not_again_and_again(
    provider: OidcProvider,
) -> None:
    oidc = OidcSignIn(settings_at(provider), secret=b"a", clock=CLOCK)
    await person_at(oidc)
    provider.rotate()
    with pytest.raises(HttpError, match="no key of the provider"):
        await person_at(oidc)
    assert provider.reads == 1
    await person_at(oidc, seconds=LOOK_AGAIN_SECONDS)
    assert provider.reads == 2
    provider.fault = "unknown key"
    for _ in range(3):
        with pytest.raises(HttpError, match="no key of the provider"):
            await person_at(oidc)
    assert provider.reads == 2


async def test_an_absent_provider_is_named(provider: OidcProvider) -> None:
    settings = attrs.evolve(settings_at(provider), issuer="http://127.0.0.1:1")
    with pytest.raises(HttpError, match=r"127\.0\.0\.1 cannot be reached") as caught:
        await OidcSignIn(settings, secret=b"a", clock=CLOCK).begin(ORIGIN)
    assert caught.value.status == 503


def person(
    *groups: str, subject: str = "00u1", issuer: str = "https://login.example.org"
) -> Person:
    scopes = frozenset[Scope]().union(*(GROUPS[it] for it in groups))
    return Person(issuer=issuer, subject=subject, shown="Ann", scopes=scopes)


def name_at(provider: OidcProvider) -> str:
    """Return the name of the key of the person at a provider."""
    return key_of(person(issuer=provider.issuer)).name


@pytest.mark.parametrize("is_stored", [False, True])
async def test_a_person_shows_their_groups_again_after_twelve_hours(
    is_stored: bool, tmp_path: Path
) -> None:
    clock = Clock()
    file = tmp_path / "keys" / "console" if is_stored else None
    sign_ins = SignIns(KeyStore(clock=clock), file, person_mark="one")
    token = await sign_ins.use_person(key_of(person("engineers", "operators")), "Ann")
    found = sign_ins.find(token)
    assert found is not None
    assert found.key.is_admin
    # A group that was lost is lost in all browsers.
    await sign_ins.use_person(key_of(person("engineers")), "Ann")
    found = sign_ins.find(token)
    assert found is not None
    assert found.key.scopes == GROUPS["engineers"]
    # The other provider or mapping has no say about it.
    if file is not None:
        others = SignIns(KeyStore(clock=clock), file, person_mark="two")
        assert others.find(token) is None
        assert SignIns(KeyStore(clock=clock), file).find(token) is None
    clock.now += PERSON_SECONDS + 1
    assert sign_ins.find(token) is None


def test_the_names_of_people_are_never_those_of_keys_or_of_each_other() -> None:
    subjects = ("ann", "a/b", "a b", "ä" * 99, "default", "a" * 64)
    names = [key_of(person(subject=it)).name for it in subjects]
    assert names[0].endswith("/ann")
    # A subject that looks like the name of another person, and one of another provider.
    names.append(key_of(person(subject=names[1].rpartition("/")[2].removeprefix("~"))).name)
    names.append(key_of(person(subject="ann", issuer="https://other.example.org")).name)
    assert len({*names}) == len(names)
    assert all(it.startswith("oidc/") and it.isascii() and len(it) < 80 for it in names)


def test_groups_are_mapped_to_scopes() -> None:
    found = parse_groups(["engineers=read, run", "a=b=approve", "engineers=steer"])
    assert found == {
        "engineers": frozenset({Scope.READ, Scope.RUN, Scope.STEER}),
        "a=b": frozenset({Scope.APPROVE}),
    }
    for wrong in ("engineers", "engineers=", "=read", "engineers=root"):
        with pytest.raises(ServerSetupError, match="--oidc-group"):
            parse_groups([wrong])


@pytest.mark.parametrize(
    "changes",
    [
        {"issuer": "http://login.example.org"},
        {"issuer": "https://login.example.org/?a=b"},
        {"issuer": "login.example.org"},
        {"client_id": ""},
        {"groups": {}},
    ],
)
def test_settings_that_no_one_could_use_safely_are_refused(changes: dict[str, Any]) -> None:
    given: dict[str, Any] = {
        "issuer": "https://login.example.org",
        "client_id": "a",
        "groups": GROUPS,
        **changes,
    }
    with pytest.raises(ServerSetupError, match="oidc"):
        OidcSettings(**given)


def wait_for(page: Page, condition: str) -> None:
    """Wait until an expression is true, also while the page leads to others."""
    while True:
        try:
            wait(page, condition)
        except PageError as exc:
            if "navigated" not in str(exc):
                raise
        else:
            return


def test_a_browser_signs_in_at_the_provider_and_comes_back(
    browser: Browser, provider: OidcProvider, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    tmp_path.chmod(0o700)
    server = ConsoleServer(
        tmp_path,
        *("--oidc-issuer", provider.issuer, "--oidc-client", CLIENT),
        *("--oidc-group", "engineers=read,run", "--oidc-group", "oncall=approve"),
        ORCHESTRATOR_OIDC_SECRET=f"secret:file:{tmp_path / 'secret'}",
    )
    (tmp_path / "secret").write_text(SECRET)
    server.start()
    request.addfinalizer(server.end)
    page = browser.open(f"{server.url}/#/inbox")
    wait_for(page, "document.querySelector('.provider')")
    page.click(".provider")
    wait_for(page, "document.querySelector('.shell')")
    assert page.run("document.querySelector('.who').innerText") == provider.name
    assert page.run("location.search + location.hash") == "#/inbox"
    assert page.run("sessionStorage.length") == 0
    assert provider.name in page.run("document.body.innerText")

    page.click(".who")
    wait_for(page, "document.querySelector('.provider')")
    provider.fault = "denied"
    page.click(".provider")
    wait_for(page, "document.querySelector('.problem').innerText.includes('You may not.')")
    page.go(f"{server.url}/?code=forged&state=forged")
    wait_for(page, "document.querySelector('.problem').innerText.includes('did not begin')")
    page.close()
