"""The list of runs, a new run, and two runs side by side, in a real browser."""

from collections.abc import Iterator

import pytest

from tests.console.kit import ConsoleServer, show, sign_in, wait
from tests.report.browser import Browser, Page

ROWS = "[...document.querySelectorAll('.list tbody tr')]"


@pytest.fixture(scope="module")
def page(browser: Browser, server: ConsoleServer) -> Iterator[Page]:
    page = sign_in(browser, server)
    yield page
    # The browser says of each request that was refused that it was.
    assert [it for it in page.complaints if "Failed to load resource" not in it] == []


@pytest.fixture(scope="module")
def runs(page: Page, server: ConsoleServer) -> list[str]:
    """Three runs that have ended, oldest first."""
    begun = [
        server.begin("hostile", "say something <b>bold</b>"),
        server.begin("hostile", "say another thing"),
        server.begin("quick", "ship 2 items"),
    ]
    show(page, "#/runs")
    wait(page, f"{ROWS}.length === 3 && {ROWS}.every(it => it.innerText.includes('✓'))")
    return begun


def listed(page: Page) -> list[str]:
    found: list[str] = page.run(f"{ROWS}.map(it => it.dataset.run)")
    return found


def test_runs_are_searched_and_filtered_and_the_address_says_so(
    page: Page, runs: list[str]
) -> None:
    assert listed(page) == runs[::-1]

    show(page, "#/runs?q=ANOTHER%20say")
    wait(page, f"{ROWS}.length === 1")
    assert listed(page) == [runs[1]]
    show(page, "#/runs?agent=quick&since=day&status=completed")
    wait(page, f"{ROWS}[0]?.dataset.run === '{runs[2]}'")
    assert page.run("document.querySelector('[aria-label=Agent]').value") == "quick"
    show(page, "#/runs?cost=1000")
    wait(page, "document.body.innerText.includes('No run fits.')")

    page.run("document.querySelector('[type=number]').value = ''")
    page.run("document.querySelector('[type=search]').focus()")
    page.type("something")
    wait(page, f"{ROWS}.length === 1")
    assert page.run("location.hash") == "#/runs?q=something"
    assert "<b>bold</b>" in page.run(f"{ROWS}[0].innerText"), "text is text"


def test_a_filtered_list_takes_up_what_fits_and_nothing_else(
    page: Page, server: ConsoleServer, runs: list[str]
) -> None:
    show(page, "#/runs?agent=quick")
    wait(page, f"{ROWS}.length === 1")

    other = server.begin("hostile", "not here")
    new = server.begin("quick", "ship 1 items")

    wait(page, f"{ROWS}.some(it => it.dataset.run === '{new}')")
    assert other not in listed(page)
    assert runs[2] in listed(page)


def test_a_run_begins_once_and_its_page_opens(
    page: Page, server: ConsoleServer
) -> None:
    show(page, "#/new?agent=hostile&goal=It%27s%20new")
    wait(page, "document.querySelector('#new-agent').value === 'hostile'")
    commands = page.run("document.querySelector('.same').innerText")
    assert "orchestrator run FILE:hostile 'It'\\''s new'" in commands
    assert "run_sync(hostile" in commands

    page.run(
        "const form = document.querySelector('form'); form.requestSubmit();"
        " form.requestSubmit();"
    )

    wait(page, "location.hash.startsWith('#/runs/r_')")
    with server.http() as http:
        found = http.get("/v1/runs", params={"q": "It's new"}).json()["data"]
    assert len(found) == 1


def test_a_run_ends_at_the_budget_that_it_was_given(
    page: Page, server: ConsoleServer
) -> None:
    show(page, "#/new?agent=hostile&goal=spend%20nothing")
    wait(page, "orchestrator.page.goal?.value === 'spend nothing'")
    page.run(
        "orchestrator.page.show(orchestrator.router.current).then(() => {"
        "orchestrator.page.usd.value = '0'; orchestrator.page.draw()})"
    )
    assert "with budget(usd=0):" in page.run(
        "document.querySelector('.same').textContent"
    )
    page.run("document.querySelector('form').requestSubmit()")

    wait(page, "location.hash.startsWith('#/runs/r_')")
    wait(page, "orchestrator.page.model?.status[0] === 'over_budget'")


def test_what_the_server_refuses_is_said_in_the_form(page: Page) -> None:
    show(page, "#/new?agent=hostile&goal=x")
    wait(page, "orchestrator.page.goal?.value === 'x'")
    page.run(
        "orchestrator.page.show(orchestrator.router.current).then(() => {"
        "orchestrator.page.agent.append(new Option('gone', 'gone', true, true));"
        "document.querySelector('form').requestSubmit()})"
    )

    wait(page, "document.querySelector('.problem').innerText.includes('gone')")


def test_two_runs_are_compared_by_cost_time_agents_and_answers(
    page: Page, runs: list[str]
) -> None:
    show(page, "#/runs")
    for run in (runs[0], runs[2]):
        box = f"document.querySelector('tr[data-run={run}] input')"
        wait(page, box)
        page.run(f"{box}.click()")
    wait(page, "!orchestrator.page.compare.disabled")
    page.run("orchestrator.page.compare.click()")

    wait(page, "document.body.innerText.includes('By agent')")
    text = page.run("document.body.innerText")
    for words in ("hostile", "researcher", "What was found", "onerror=", "%"):
        assert words in text
    assert page.run("document.title") != "owned"
    show(page, f"#/compare/{runs[0]}/r_nowhere")
    wait(page, "document.body.innerText.includes('r_nowhere')")


def test_a_run_is_deleted_after_a_question(
    page: Page, server: ConsoleServer, runs: list[str]
) -> None:
    show(page, "#/runs?q=another")
    wait(page, f"{ROWS}.length === 1")
    page.run(f"document.querySelector('tr[data-run={runs[1]}] button').click()")
    wait(page, "document.querySelector('dialog')?.open")
    page.run("document.querySelector('dialog .danger').click()")

    wait(page, "document.body.innerText.includes('No run fits.')")
    with server.http() as http:
        assert http.get(f"/v1/runs/{runs[1]}").status_code == 404
