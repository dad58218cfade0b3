"""The evaluations of a server's folder, in a real browser."""

from collections.abc import Iterator

import httpx2
import pytest

from orchestrator.products.server.keys.changes import add_key
from orchestrator.products.server.keys.file import FILE as KEYS
from tests.console.kit import PATIENCE, ConsoleServer, show, sign_in, wait
from tests.evaluation.made_sets import make_sets
from tests.report.browser import Browser, Page

CASES = "[...document.querySelectorAll('[data-case]')]"
SIDES = "[...document.querySelectorAll('.case article')]"


@pytest.fixture(scope="module")
def page(browser: Browser, server: ConsoleServer) -> Iterator[Page]:
    make_sets(server.folder / "evaluations")
    page = sign_in(browser, server)
    yield page
    assert page.complaints == []


def test_the_page_says_which_version_is_better_and_shows_a_case_beside_its_baseline(
    page: Page,
) -> None:
    show(page, "#/evaluations")
    wait(page, "document.querySelector('[data-evaluation] a')")
    page.run("document.querySelector('[data-evaluation] a').click()")
    wait(page, f"{SIDES}.length === 2")
    assert page.run("location.hash") == "#/evaluations/shouting"
    assert "b is better (+0.86" in page.run("document.querySelector('.sentence').innerText")
    assert page.run(f"{CASES}.length") == 7
    assert page.run("document.querySelectorAll('.front').length") == 1
    assert page.run("document.querySelectorAll('.distributions svg').length") == 2

    page.press("]")
    wait(page, f"{CASES}[1].matches('[aria-current]')")
    wait(page, f"{SIDES}.length === 2")
    trees = page.run(f"{SIDES}.map(it => it.querySelector('.tree').innerText)")
    assert all("└─ ✓ writer[1]" in it for it in trees)
    assert "It whispers." in page.run(f"{SIDES}[0].innerText")
    assert page.run(f"{SIDES}[1].querySelector('ins').innerText").strip().isupper()


def test_another_baseline_and_score_are_in_the_address(page: Page) -> None:
    show(page, "#/evaluations/shouting?baseline=b&score=correct")
    wait(page, "document.querySelector('.sentence').innerText.includes('a is worse')")
    choose = (
        "{const it = document.querySelector('[aria-label=Score]'); it.value = 'quick';"
        " it.dispatchEvent(new Event('change'))}"
    )
    page.run(choose)
    wait(page, "document.querySelector('.sentence').innerText.includes('no difference seen')")
    assert page.run("location.hash").endswith("?baseline=b&score=quick")


def test_keys_of_other_owners_see_no_evaluation(server: ConsoleServer, page: Page) -> None:
    _, token = add_key(server.folder / KEYS, "ann", owner="ann", now=0)
    with httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:
        assert http.get("/console/evaluations").status_code == 401
        http.headers["authorization"] = f"Bearer {token}"
        assert http.get("/console/evaluations").json() == {"data": [], "unreadable": []}
        hidden = http.get("/console/evaluations", params={"dataset": "shouting"})
        assert hidden.status_code == 404
    with server.http() as http:
        [found] = http.get("/console/evaluations").json()["data"]
        assert found["name"] == "shouting"
