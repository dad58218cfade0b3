"""The inbox, at the width of a phone: approvals, failures and replies, unread and read."""

import pytest

from tests.console.kit import ConsoleServer, show, sign_in, wait
from tests.report.browser import Browser, Page


@pytest.fixture(scope="module")
def page(browser: Browser, server: ConsoleServer) -> Page:
    return sign_in(browser, server, width=390, height=844)


def test_open_approvals_are_counted_everywhere_and_answered_in_the_inbox(
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


def test_the_inbox_count_adds_approvals_and_unread_messages(
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


BADGE = "document.querySelector('.number-badge')?.innerText ?? '0'"


def test_a_failed_run_leads_to_its_task_and_is_read_once(
    page: Page, browser: Browser, server: ConsoleServer
) -> None:
    show(page, "#/inbox")
    handled = server.begin("quick", "ship 4 items")
    with server.http() as http, http.stream("GET", f"/v1/runs/{handled}/events") as events:
        assert any("TurnEnded" in line for line in events.iter_lines())
    run = server.begin("broken", "count the coins")
    entry = f"document.querySelector('.entry[data-run={run}]')"
    wait(page, f"{entry}?.classList.contains('unread')")
    assert "no money" in page.run(f"{entry}.innerText")
    # The agent of the other run has handled the failures of its tasks.
    assert not page.run(f"document.querySelector('.entry[data-run={handled}]')")
    assert page.run(BADGE) == "1"
    other = browser.open(f"{server.url}/#/inbox")
    wait(other, f"{entry}?.classList.contains('unread')")
    path = page.run(f"{entry}.querySelector('li a').innerText")
    assert path == "/broken"

    page.run(f"{entry}.querySelector('li a').click()")

    wait(page, "document.querySelector('.details')?.innerText.includes('no money')")
    assert run in page.run("location.hash")
    for tab in (page, other):
        wait(tab, f"({BADGE}) === '0'")
    wait(other, f"!{entry}.classList.contains('unread')")
    other.close()


def test_replies_are_unread_until_they_are_opened_or_marked(
    page: Page, server: ConsoleServer
) -> None:
    show(page, "#/inbox")
    with server.http() as http:
        session = http.post("/v1/sessions", json={"model": "hostile"}).json()["id"]
        http.post(f"/v1/sessions/{session}/messages", json={"text": "Say something"})
        wait(page, "document.querySelector('[aria-label=Replies] .unread')")
        assert page.run(BADGE) == "1"

        page.click("[aria-label=Replies] .unread button")

        wait(page, f"({BADGE}) === '0'")
        wait(page, f"document.querySelector('.entry a[href=\"#/chat/{session}\"]')")
        assert http.get(f"/v1/sessions/{session}/inbox").json()["data"] == []
    assert page.run("document.querySelectorAll('[aria-label=Replies] .unread').length") == 0


def test_replies_of_one_conversation_are_one_entry_and_are_taken_once(
    page: Page, server: ConsoleServer
) -> None:
    show(page, "#/inbox")
    with server.http() as http:
        made = {"model": "hostile", "metadata": {"title": "The quarrel"}}
        session = http.post("/v1/sessions", json=made).json()["id"]
        for words in ("one", "two"):
            http.post(f"/v1/sessions/{session}/messages", json={"text": words})
            server.wait_for_reply(session, "bold")
    wait(page, "orchestrator.inbox.replies.length === 2")
    entries = "document.querySelectorAll('[aria-label=Replies] .unread')"
    wait(page, f"{entries}.length === 1 && {entries}[0].innerText.includes('2 unread replies')")
    said = page.run(f"{entries}[0].innerText")
    assert "The quarrel" in said
    assert "**" not in said

    page.run(
        "window.sent = []; window.remove = orchestrator.api.remove.bind(orchestrator.api);"
        " orchestrator.api.remove = (path) => { sent.push(path); return remove(path) };"
        f" orchestrator.inbox.take('{session}'); orchestrator.inbox.take('{session}')"
    )
    wait(page, "orchestrator.inbox.replies.length === 0")
    sent = page.run("delete orchestrator.api.remove; sent")
    assert len(sent) == len(set(sent)) == 2
