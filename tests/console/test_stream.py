"""The page is never wrong: what it shows at a number is what the server has at that number."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.console.kit import ConsoleServer, pressed, show, sign_in, wait
from tests.report.browser import Browser, Page

FIELDS = (
    *("parent", "agent", "goal", "label", "path", "mode", "reason", "status"),
    *("requested", "started", "ended", "error"),
)


@pytest.fixture(scope="module")
def page(browser: Browser, server: ConsoleServer) -> Page:
    return sign_in(browser, server)


def opened_run(page: Page, run: str) -> None:
    show(page, f"#/runs/{run}")
    wait(page, f"orchestrator.page.run === '{run}' && orchestrator.page.seq")


def shown(page: Page) -> dict[str, Any]:
    tasks = page.run(
        "(() => {const {model} = orchestrator.page;"
        " return model.ids.map((_, number) => model.task(number))})()"
    )
    return {task["id"]: task for task in tasks}


def in_journal(server: ConsoleServer, run: str) -> dict[str, Any]:
    with server.http() as http:
        tree = http.get(f"/v1/runs/{run}/tree").json()
    return {node["id"]: node for node in tree["nodes"]}


def assert_equal(page: Page, server: ConsoleServer, run: str) -> None:
    """Compare the page with the server, when nothing goes on any more."""
    truth = in_journal(server, run)
    mine = shown(page)
    assert mine.keys() == truth.keys()
    for id_, task in truth.items():
        for field in FIELDS:
            assert mine[id_][field] == task[field], (id_, field)
        # The server leaves the savings out where no cache was used.
        for sums in ("usage", "total"):
            assert mine[id_][sums] == {"saved_micro_usd": 0, **task[sums]}, id_


def ended(page: Page) -> None:
    wait(page, "orchestrator.page.seq && !orchestrator.page.isWorking")


def test_a_page_that_saw_it_all_equals_the_server_and_a_page_that_comes_later(
    page: Page, server: ConsoleServer
) -> None:
    run = server.begin("quick", "ship 6 items")
    opened_run(page, run)
    ended(page)
    assert_equal(page, server, run)
    before = shown(page)

    page.call("Page.reload")
    wait(page, "!globalThis.orchestrator?.page?.seq")
    wait(page, "orchestrator.page.seq")

    assert shown(page) == before


def test_a_stream_that_is_dropped_goes_on_where_it_was(page: Page, server: ConsoleServer) -> None:
    run = server.begin("quick", "ship 5 items")
    opened_run(page, run)
    for _ in range(3):
        seq = page.run("orchestrator.page.seq")
        page.run("orchestrator.live.retry()")
        wait(page, f"orchestrator.page.seq > {seq} || !orchestrator.page.isWorking")
    ended(page)

    assert_equal(page, server, run)


def test_a_server_that_is_killed_and_started_again_is_met_again(
    page: Page, server: ConsoleServer
) -> None:
    run = server.begin("sleeper")
    opened_run(page, run)
    wait(page, "orchestrator.page.model.status[0] === 'running'")

    server.end()
    wait(page, "orchestrator.live.state === 'lost'")
    server.start()
    wait(page, "orchestrator.live.state === 'live'")

    wait(page, "orchestrator.page.model.status[0] === 'running'")
    server.cancel(run)
    ended(page)
    assert_equal(page, server, run)


def test_a_run_that_is_not_in_memory_any_more_is_shown_as_it_was(
    page: Page, server: ConsoleServer
) -> None:
    run = server.begin("quick", "ship 3 items")
    opened_run(page, run)
    ended(page)
    before = shown(page)
    show(page, "#/runs")

    server.end()
    server.start()
    opened_run(page, run)

    assert shown(page) == before
    assert_equal(page, server, run)


def test_a_run_that_a_crash_interrupted_is_resumed(page: Page, server: ConsoleServer) -> None:
    """A client waited for its answer, and is gone with the server."""
    body = {"model": "pair", "messages": [{"role": "user", "content": "go"}]}
    with server.http() as http, ThreadPoolExecutor() as pool:
        asked = pool.submit(http.post, "/v1/chat/completions", json=body)
        show(page, "#/runs")
        found = (
            "[...orchestrator.page.runs.values()]"
            ".find(it => it.kind === 'chat_completion' && it.tasks.running === 3)"
        )
        wait(page, found)
        run = page.run(f"{found}.id")
        server.end()
        assert asked.exception() is not None
    server.start()
    opened_run(page, run)
    wait(page, "orchestrator.page.model.status[0] === 'interrupted'")

    pressed(page, "Resume run")
    wait(page, "document.querySelector('dialog.action').innerText.includes('died')")
    page.click("dialog .primary")

    wait(page, "orchestrator.page.isWorking")
    wait(page, "orchestrator.page.model.status.every(it => it === 'running')")
    server.cancel(run)
    wait(page, "!orchestrator.page.isWorking")
