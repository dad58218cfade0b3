"""Conversations in the page: nothing is lost, whatever happens to the tab or the server."""

from collections.abc import Iterator

import pytest

from tests.console.kit import ConsoleServer, show, sign_in, wait
from tests.report.browser import Browser, Page

BACK = "The archivist is back"


@pytest.fixture(scope="module")
def page(browser: Browser, server: ConsoleServer) -> Iterator[Page]:
    page = sign_in(browser, server)
    yield page
    # While the server is gone, the browser says that it cannot be reached.
    assert [it for it in page.complaints if "ERR_CONNECTION" not in it] == []


def new_chat(page: Page, agent: str) -> str:
    before = page.run("orchestrator.page.session ?? ''")
    show(page, "#/chat")
    wait(page, "orchestrator.page.begin")
    page.run(f"orchestrator.page.agents.value = '{agent}'")
    page.click(".chat-new button")
    wait(page, f"orchestrator.page.session && orchestrator.page.session !== '{before}'")
    session: str = page.run("orchestrator.page.session")
    return session


def say(page: Page, text: str) -> None:
    page.run("orchestrator.page.composer.text.focus()")
    page.type(text)
    page.press("Enter")


def messages(page: Page) -> list[str]:
    found: list[str] = page.run(
        "[...document.querySelectorAll('.messages .message .text')].map(it => it.innerText)"
    )
    return found


def says(page: Page, words: str) -> None:
    wait(page, f"document.querySelector('.messages').innerText.includes({words!r})")


def test_a_task_in_the_background_wakes_the_conversation_while_the_tab_is_closed(
    page: Page, server: ConsoleServer, browser: Browser
) -> None:
    session = new_chat(page, "companion")
    say(page, "Where does it come from?")
    says(page, "I have handed that to the archivist")
    wait(page, "document.querySelectorAll('.child').length === 1")
    page.go("about:blank")
    server.wait_for_reply(session, BACK)

    page.go(f"{server.url}/#/inbox")
    wait(page, "document.querySelectorAll('.reply').length === 1")
    assert page.run("document.title").startswith("(1)")
    page.go("about:blank")
    page.go(f"{server.url}/#/chat/{session}")
    says(page, BACK)

    assert len([it for it in messages(page) if it.startswith(BACK)]) == 1
    wait(page, "orchestrator.inbox.count === 0")
    assert page.run("document.querySelectorAll('.notice').length") == 1


def test_a_server_that_is_killed_in_mid_chat_loses_nothing(
    page: Page, server: ConsoleServer
) -> None:
    new_chat(page, "companion")
    say(page, "First question?")
    says(page, "I have handed that to the archivist")

    server.end()
    wait(page, "orchestrator.live.state === 'lost'")
    say(page, "Is this kept?")
    wait(page, "document.querySelector('.toast')")
    assert page.run("orchestrator.page.composer.text.value") == "Is this kept?"
    server.start()
    wait(page, "orchestrator.live.state === 'live'")

    says(page, BACK)
    page.run("orchestrator.page.composer.text.focus()")
    page.press("Enter")
    says(page, "Is this kept?")
    asked = [it for it in messages(page) if it.endswith("?")]
    assert asked == ["First question?", "Is this kept?"]


def test_stopping_keeps_what_was_said(page: Page, server: ConsoleServer) -> None:
    del server
    new_chat(page, "writer")
    say(page, "write")
    wait(
        page, "document.querySelector('.writing:not([hidden])')?.innerText.length > 40"
    )

    page.click(".composer .danger")

    wait(page, "document.querySelector('.message.assistant:not(.writing) .badge')")
    says(page, "What was found")
    wait(page, "document.querySelector('.composer .danger').hidden")


def test_a_draft_stays_with_its_conversation(page: Page, server: ConsoleServer) -> None:
    del server
    first = new_chat(page, "companion")
    page.run("orchestrator.page.composer.text.focus()")
    page.type("half a thought")
    second = new_chat(page, "companion")
    assert page.run("orchestrator.page.composer.text.value") == ""

    show(page, f"#/chat/{first}")
    wait(page, f"orchestrator.page.session === '{first}'")

    assert page.run("orchestrator.page.composer.text.value") == "half a thought"
    assert second != first
