"""The inbox, at the width of a phone."""

import pytest

from tests.console.kit import ConsoleServer, show, sign_in, wait
from tests.report.browser import Browser, Page


@pytest.fixture(scope="module")
def page(browser: Browser, server: ConsoleServer) -> Page:
    return sign_in(browser, server, width=390, height=844)


def test_what_waits_is_counted_everywhere_and_answered_without_the_tree(
    page: Page, server: ConsoleServer
) -> None:
    runs = [server.begin("operator", f"clean up {it}") for it in range(2)]
    show(page, "#/inbox")
    wait(page, "document.querySelectorAll('.inbox .ask').length === 2")
    assert page.run("document.title") == "(2) Orchestrator"
    assert page.run("document.querySelector('.number-badge').innerText") == "2"
    width = page.run("document.documentElement.scrollWidth")
    assert width <= 390

    page.click(".inbox .ask .approve")

    wait(page, "document.querySelectorAll('.inbox .ask').length === 1")
    page.click(".inbox .ask .deny")
    wait(page, "document.querySelectorAll('.inbox .ask').length === 0")
    assert page.run("document.title") == "Orchestrator"
    assert [server.approvals(run) for run in runs] == [[], []]


def test_the_number_is_what_waits_and_what_was_not_read(
    page: Page, server: ConsoleServer
) -> None:
    run = server.begin("operator", "clean up")
    with server.http() as http:
        session = http.post("/v1/sessions", json={"model": "hostile"}).json()["id"]
        http.post(f"/v1/sessions/{session}/messages", json={"text": "hello"})
    show(page, "#/inbox")
    wait(page, "document.title === '(2) Orchestrator'")
    count = page.run("[orchestrator.inbox.approvals.length, orchestrator.inbox.count]")
    assert count == [1, 2]

    show(page, f"#/chat/{session}")
    wait(page, "document.title === '(1) Orchestrator'")
    server.cancel(run)
    wait(page, "document.title === 'Orchestrator'")
