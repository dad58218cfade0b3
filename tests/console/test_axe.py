"""People who use a keyboard, a screen reader, a phone or little light can use every page."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from tests.console.kit import ConsoleServer, show, sign_in, wait
from tests.evaluation.made_sets import make_sets
from tests.report.browser import Browser, Page

AXE = gzip.decompress(
    (Path(__file__).parent.parent / "report" / "axe.min.js.gz").read_bytes()
).decode()
SIZES = {"wide": (1440, 860), "phone": (390, 844)}


@pytest.fixture(scope="module")
def pages(server: ConsoleServer) -> dict[str, str]:
    """Return an address of each kind of page, and what it shows when it is there."""
    run = server.begin("quick", "ship 7 items")
    with server.http() as http:
        session = http.post("/v1/sessions", json={"model": "companion"}).json()["id"]
        http.post(f"/v1/sessions/{session}/messages", json={"text": "Where from?"})
    server.wait_for_reply(session, "The archivist is back")
    with server.http() as http:
        fails = http.post("/v1/sessions", json={"model": "broken"}).json()["id"]
        http.post(f"/v1/sessions/{fails}/messages", json={"text": "try it"})
    asks = server.begin("operator", "clean up")
    draws = server.begin("painter")
    make_sets(server.folder / "evaluations")
    return {
        "#/runs": "document.querySelector('[data-run]')",
        f"#/runs/{run}": "document.querySelector('.messages .message')",
        f"#/runs/{asks}": "document.querySelector('.ask')",
        f"#/runs/{draws}": "Object.assign(document.querySelector('.tool'), {open: true})"
        ".querySelector('img')",
        f"#/chat/{session}": "document.querySelector('.notice')",
        f"#/chat/{fails}": "document.querySelector('.failed-turn')",
        "#/chat?new=1": "document.querySelector('.chat-start textarea')",
        "#/new": "document.querySelector('main form, main h1')",
        f"#/compare/{run}/{asks}": "document.querySelector('main table')",
        "#/evaluations": "document.querySelector('[data-evaluation]')",
        "#/evaluations/shouting": "document.querySelector('.case article')",
        "#/overview": "document.querySelector('.overview .tiles')",
        "#/inbox": "document.querySelector('.inbox .ask')",
        "#/jobs": "document.querySelector('.jobs .empty:not(:empty)')",
    }


@pytest.fixture(scope="module")
def page(browser: Browser, server: ConsoleServer) -> Page:
    page = sign_in(browser, server)
    page.run(f"{AXE}; true")
    return page


def problems(page: Page) -> Any:
    return page.run(
        "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.map("
        "it => `${it.id}: ${it.nodes.map(node => node.html).slice(0, 3).join(' ')}`))"
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_reports_no_problem(page: Page, pages: dict[str, str], size: str, theme: str) -> None:
    page.resize(*SIZES[size])
    page.prefer(prefers_color_scheme=theme, prefers_reduced_motion="reduce")
    found = {}
    for address, is_there in pages.items():
        show(page, address)
        wait(page, is_there)
        page.settle()
        if wrong := problems(page):
            found[address] = wrong
        assert page.run("document.getAnimations().length") == 0
        assert page.run("document.documentElement.scrollWidth") <= SIZES[size][0]
    assert found == {}


def test_seven_tabs_share_one_stream(browser: Browser, server: ConsoleServer, page: Page) -> None:
    """A browser has six connections to a server: a seventh stream would wait for ever."""
    run = server.begin("sleeper")
    show(page, f"#/runs/{run}")
    tabs = [browser.open(f"{server.url}/#/runs/{run}") for _ in range(7)]
    for tab in (page, *tabs):
        wait(tab, "orchestrator.page.seq && orchestrator.live.state === 'live'")

    server.cancel(run)

    for tab in (page, *tabs):
        wait(tab, "!orchestrator.page.isWorking")
    for tab in tabs:
        tab.close()
