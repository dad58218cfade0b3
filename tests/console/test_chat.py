"""Conversations in the page: nothing is lost, whatever happens to the tab or the server."""

import re
from base64 import b64encode
from collections.abc import Iterator

import pytest

from tests.console.kit import ConsoleServer, pressed, show, sign_in, wait
from tests.console.team import PNG
from tests.report.browser import Browser, Page

BACK = "The archivist is back"


@pytest.fixture(scope="module")
def page(browser: Browser, server: ConsoleServer) -> Iterator[Page]:
    page = sign_in(browser, server)
    yield page
    # While the server is gone, the browser says that it cannot be reached.
    # A page that was loaded again may take a reply that its last request takes: a 404, which it
    # expects, and which the browser logs.
    expected = re.compile(r"ERR_CONNECTION|/v1/sessions/r_\w+/inbox/\d+'")
    assert [it for it in page.complaints if not expected.search(it)] == []


def new_chat(page: Page, agent: str) -> str:
    session: str = page.run(
        f"orchestrator.api.post('v1/sessions', {{model: '{agent}'}}).then(it => it.id)"
    )
    show(page, f"#/chat/{session}")
    wait(page, f"orchestrator.page.session === '{session}'")
    # From here on the page is told what happens in it.
    says(page, "Nothing was said yet")
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
    wait(page, f"document.querySelector('.inbox').innerText.includes('{BACK}')")
    assert page.run("document.title").startswith("(")
    page.go("about:blank")
    page.go(f"{server.url}/#/chat/{session}")
    says(page, BACK)

    assert len([it for it in messages(page) if it.startswith(BACK)]) == 1
    wait(page, "orchestrator.inbox.count === 0")
    assert page.run("document.querySelectorAll('.notice').length") == 1


def test_killing_the_server_in_mid_chat_loses_no_message(page: Page, server: ConsoleServer) -> None:
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


def test_a_server_that_is_killed_while_it_answers_ends_the_answer_after_its_start(
    page: Page, server: ConsoleServer
) -> None:
    new_chat(page, "writer")
    say(page, "write")
    wait(page, "document.querySelector('.writing:not([hidden])')")
    say(page, "Is this queued?")
    wait(page, "document.querySelector('.pending .text')")

    server.end()
    wait(page, "orchestrator.live.state === 'lost'")
    server.start()
    wait(page, "document.querySelectorAll('.message.assistant .cost').length === 2")

    answers = page.run(
        "[...document.querySelectorAll('.message.assistant h4')].map(it => it.innerText)"
    )
    assert answers == ["What was found"] * 2
    assert [it for it in messages(page) if "\n" not in it] == ["write", "Is this queued?"]
    assert page.run("document.querySelectorAll('.pending').length") == 0


def test_a_message_with_a_lost_receipt_is_sent_once(page: Page, server: ConsoleServer) -> None:
    del server
    new_chat(page, "hostile")
    page.run(
        "globalThis.realFetch = fetch; globalThis.fetch = async (path, sent) => {"
        "  const answer = await realFetch(path, sent);"
        "  if (sent.method !== 'POST') return answer;"
        "  globalThis.fetch = realFetch; throw new TypeError('cut'); }"
    )
    say(page, "Only once")
    wait(page, "fetch === realFetch && !orchestrator.page.composer.text.readOnly")
    assert page.run("orchestrator.page.composer.text.value") == "Only once"

    page.press("Enter")
    wait(page, "orchestrator.page.composer.text.value === ''")
    wait(page, "document.querySelectorAll('.message.assistant .text').length === 1")

    assert messages(page).count("Only once") == 1


def test_files_are_sent_with_the_message_and_stay_if_they_are_not(
    page: Page, server: ConsoleServer
) -> None:
    session = new_chat(page, "hostile")
    page.run(
        "{ const dropped = new DataTransfer();"
        " dropped.items.add(new File(['print(1)'], 'one.py'));"
        " const pasted = new DataTransfer();"
        f" const text = atob('{b64encode(PNG).decode()}');"
        " const image = Uint8Array.from(text, it => it.charCodeAt(0));"
        " pasted.items.add(new File([image], 'two.png', {type: 'image/png'}));"
        " orchestrator.page.scroller.dispatchEvent("
        "   new DragEvent('drop', {dataTransfer: dropped, bubbles: true, cancelable: true}));"
        " orchestrator.page.composer.text.dispatchEvent("
        "   new ClipboardEvent('paste', {clipboardData: pasted, cancelable: true})); }"
    )
    new_chat(page, "hostile")
    assert page.run("document.querySelectorAll('.chosen button').length") == 0
    show(page, f"#/chat/{session}")
    wait(page, "document.querySelectorAll('.chosen button').length === 2")

    say(page, "Look")
    wait(page, "document.querySelectorAll('.message.user .attachment').length === 2")

    with server.http() as http:
        told = http.get(f"/v1/sessions/{session}/messages").json()["data"][0]
    assert [(it["name"], it["media_type"]) for it in told["parts"]] == [
        ("one.py", "text/plain"),
        ("two.png", "image/png"),
    ]
    assert page.run("document.querySelectorAll('.chosen button').length") == 0
    wait(page, "document.querySelector('.attachment img')?.naturalWidth === 8")
    saved = page.run(
        "new Promise(done => { const make = URL.createObjectURL; let text;"
        " URL.createObjectURL = it => { text = it.text(); return make(it); };"
        " HTMLAnchorElement.prototype.click = async function () {"
        "   delete HTMLAnchorElement.prototype.click; URL.createObjectURL = make;"
        "   done([await text, this.download]); };"
        " document.querySelector('.attachment a[download]').dispatchEvent("
        "   new MouseEvent('click', {bubbles: true, cancelable: true})); })"
    )
    assert saved == ["print(1)", "one.py"]


def test_a_conversation_is_renamed_found_and_deleted(page: Page, server: ConsoleServer) -> None:
    session = new_chat(page, "hostile")
    page.click(".chat-menu summary")
    pressed(page, "Rename")
    page.run("document.querySelector('.rename input').select()")
    page.type("Tea & <b>biscuits</b>")
    page.press("Enter")
    wait(page, "document.querySelector('.chat-head h1')?.innerText.startsWith('Tea &')")
    page.run("orchestrator.page.list.search.focus()")
    page.type("biscuits tea")
    wait(page, "document.querySelectorAll('.sessions a').length === 1")
    with server.http() as http:
        kept = http.get(f"/v1/sessions/{session}").json()["metadata"]

    page.click(".chat-menu summary")
    page.click(".chat-menu .danger")
    page.click("dialog .danger")
    wait(page, "location.hash === '#/chat'")
    wait(page, "document.querySelectorAll('.sessions a').length === 0")
    page.run("orchestrator.page.list.search.value = ''; orchestrator.page.list.draw()")
    assert kept == {"title": "Tea & <b>biscuits</b>"}


def test_provider_failures_are_shown_where_they_happened(page: Page, server: ConsoleServer) -> None:
    del server
    new_chat(page, "troubled")
    say(page, "try it " * 250)
    says(page, "The other model says it")
    events = "[...document.querySelectorAll('.messages .event')].map(it => it.innerText)"
    wait(page, f"{events}.length === 2")
    retried, switched = page.run(events)
    assert retried.endswith("503: come back later. It was asked again.")
    assert switched.endswith("503: come back later. The model other was asked instead.")
    answer = "document.querySelector('.message.assistant')"
    assert page.run(f"{answer}.previousElementSibling.innerText") == switched

    say(page, "again " * 250)
    wait(page, "document.querySelector('.messages [data-kind=shortened]')")
    assert "did not read all of it" in page.run(f"{events}.at(-1)")
    before = page.run(events)
    page.call("Page.reload")
    wait(page, f"{events}.length === {len(before)}")
    assert page.run(events) == before

    new_chat(page, "broken")
    say(page, "try it")
    wait(page, "document.querySelector('.turn-card').innerText.includes('no money')")


def test_a_waiting_call_shows_its_time(page: Page, server: ConsoleServer) -> None:
    del server
    new_chat(page, "stubborn")
    say(page, "try it")
    notice = "document.querySelector('.conversation > .event:not([hidden])')"
    wait(page, f"{notice}?.innerText.includes('It is asked again in 3')")
    assert "429: not now. It was asked again." in page.run(
        "document.querySelector('.messages .event').innerText"
    )

    page.click(".composer .danger")

    wait(page, f"!{notice}")


def test_reasoning_is_folded_and_survives_a_reload(page: Page, server: ConsoleServer) -> None:
    del server
    new_chat(page, "thinker")
    say(page, "think")
    wait(page, "document.querySelector('.writing .reasoning:not([open])')")
    thought = "document.querySelector('.message:not(.writing) .reasoning')"
    wait(page, thought)
    page.call("Page.reload")
    wait(page, thought)

    assert not page.run(f"{thought}.open")
    page.click(".message .reasoning summary")
    assert "Let me see <b>this</b>." in page.run(f"{thought}.innerText")


def test_the_end_is_followed_until_the_reader_scrolls_up(page: Page, server: ConsoleServer) -> None:
    del server
    page.resize(900, 360)
    new_chat(page, "talker")
    say(page, "talk")
    scroller = "orchestrator.page.scroller"
    left = f"({scroller}.scrollHeight - {scroller}.scrollTop - {scroller}.clientHeight)"
    wait(page, f"{scroller}.scrollTop > 200 && {left} < 2")

    page.run(f"{scroller}.scrollTop = 0")
    wait(page, "!document.querySelector('.jump').hidden")
    assert page.run(f"{scroller}.scrollTop") == 0

    page.click(".jump")
    length = page.run(f"{scroller}.scrollHeight")
    wait(page, f"{scroller}.scrollHeight > {length} + 100")
    assert page.run(left) < 2
    page.click(".composer .danger")
    wait(page, "document.querySelector('.message.assistant:not(.writing) .badge')")
    page.resize(1440, 860)


def test_a_reply_that_comes_while_the_tab_is_hidden_stays_unread(
    page: Page, server: ConsoleServer
) -> None:
    del server
    session = new_chat(page, "hostile")
    page.run(
        "globalThis.isAway = true;"
        " Object.defineProperty(document, 'hidden', {get: () => isAway, configurable: true})"
    )
    say(page, "hello")
    mine = f"orchestrator.inbox.replies.filter(it => it.session === '{session}').length"
    wait(page, f"{mine} === 1")
    page.run(
        "isAway = false; document.dispatchEvent(new Event('visibilitychange'));"
        " delete document.hidden"
    )
    wait(page, f"{mine} === 0")


def test_stopping_keeps_the_partial_answer(page: Page, server: ConsoleServer) -> None:
    del server
    new_chat(page, "writer")
    say(page, "write")
    wait(page, "document.querySelector('.writing:not([hidden])')?.innerText.length > 40")

    page.click(".composer .danger")

    wait(page, "document.querySelector('.message.assistant:not(.writing) .badge')")
    says(page, "What was found")
    wait(page, "document.querySelector('.composer .danger').hidden")
    wait(page, "document.querySelector('.turn-card.stopped')")
    page.call("Page.reload")
    wait(page, "document.querySelector('.turn-card.stopped')")
    says(page, "What was found")


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


CARDS = "[...document.querySelectorAll('.turn-card')].map(it => it.innerText)"


def answers(page: Page, words: str) -> None:
    """Wait until the last message is a finished answer with these words."""
    last = "[...document.querySelectorAll('.message.assistant:not(.writing)')].at(-1)"
    wait(page, f"{last}?.innerText.includes({words!r})")


def test_failed_turns_stay_in_their_places_beside_tasks_later_messages_and_reloads(
    page: Page, server: ConsoleServer
) -> None:
    del server
    new_chat(page, "fickle")
    say(page, "delegate")
    answers(page, "Answer to delegate")
    say(page, "fail beside a task")
    wait(page, f"{CARDS}.length === 1")
    say(page, "later")
    answers(page, "Answer to later")
    say(page, "fail again")
    wait(page, f"{CARDS}.length === 2")
    before = page.run(CARDS)
    page.call("Page.reload")
    wait(page, f"{CARDS}.length === 2")

    assert page.run(CARDS) == before
    assert all("no money" in it for it in before)
    assert ["Retry" in it for it in before] == [False, True]
    first = "document.querySelector('.turn-card')"
    assert page.run(f"{first}.previousElementSibling.innerText").count("fail beside a task") == 1
    assert "later" in page.run(f"{first}.nextElementSibling.innerText")

    pressed(page, "Retry")
    answers(page, "Answer to fail again")

    assert len(page.run(CARDS)) == 2
    assert messages(page).count("fail again") == 1
    page.run("orchestrator.api.post(`v1/runs/${orchestrator.page.session}/cancel`)")


def test_the_empty_page_begins_a_conversation_with_the_agent_that_leads(
    page: Page, server: ConsoleServer
) -> None:
    del server
    show(page, "#/chat")
    wait(page, "document.querySelector('.chat-start h1').innerText.includes('planner')")
    page.run("orchestrator.page.start.choose('fickle')")
    wait(page, "orchestrator.page.composer.text.placeholder === 'Message fickle'")
    say(page, "list")
    wait(page, "orchestrator.page.session")
    answers(page, "open")
    page.run("localStorage.removeItem('orchestrator chat agent')")

    assert messages(page)[0] == "list"
    shown = page.run(
        "[...document.querySelectorAll('.task-item input')].map(it => it.checked)"
        ".concat(document.querySelector('.of-keyword').innerText,"
        " document.querySelector('.of-comment').innerText)"
    )
    assert shown == [True, False, "def", "# always"]
    wait(page, "document.querySelector('.message.assistant time').dateTime")
    assert page.run("document.querySelector('.message.assistant h3 span').innerText") == "fickle"
    wait(page, "document.querySelector('.chat-head meter').max === 20000")
    page.run("navigator.clipboard.writeText = async text => { globalThis.copied = text; }")
    page.run("document.querySelector('.code-head .copy').click()")
    wait(page, "globalThis.copied?.startsWith('def answer')")


def test_an_edited_message_is_a_branch_beside_the_first_one(
    page: Page, server: ConsoleServer
) -> None:
    del server
    first = new_chat(page, "fickle")
    say(page, "one")
    answers(page, "Answer to one")
    say(page, "two")
    answers(page, "Answer to two")
    page.press("ArrowUp")
    wait(page, "document.querySelector('.edit textarea').value === 'two'")
    page.run("document.querySelector('.edit textarea').select()")
    page.type("three")
    page.press("Enter")
    wait(page, f"orchestrator.page.session !== '{first}'")
    answers(page, "Answer to three")

    assert [it for it in messages(page) if it.startswith("Answer")] == [
        "Answer to one",
        "Answer to three",
    ]
    wait(page, "document.querySelector('.branches')?.innerText.includes('2/2')")
    assert page.run("document.querySelectorAll('.sessions a[aria-current]').length") == 1
    page.click(".branches a[aria-label='Previous branch']")
    wait(page, f"orchestrator.page.session === '{first}'")
    answers(page, "Answer to two")
    page.run(
        "[...document.querySelectorAll('.message-actions button')]"
        ".filter(it => it.innerText === 'Regenerate').at(-1).click()"
    )
    wait(page, "document.querySelector('.branches')?.innerText.includes('3/3')")
    answers(page, "Answer to two")


def test_commands_of_the_composer_and_the_search(page: Page, server: ConsoleServer) -> None:
    session = new_chat(page, "fickle")
    say(page, "apples and pears")
    answers(page, "Answer to apples and pears")
    page.type("/fi")
    wait(page, "document.querySelectorAll('.slash-menu [role=option]').length === 1")
    page.press("Enter")
    wait(page, "document.activeElement === orchestrator.page.find.input")
    page.type("PEARS")
    wait(page, "document.querySelector('.find-bar [role=status]').innerText === '2 of 2'")
    page.press("Enter")
    assert page.run("document.querySelector('.find-bar [role=status]').innerText") == "1 of 2"
    page.press("Escape")
    wait(page, "!document.querySelector('.find-bar')")

    page.run("orchestrator.page.composer.text.focus()")
    page.type("/rename Fruit")
    page.press("Enter")
    wait(page, "document.querySelector('.chat-head h1').innerText === 'Fruit'")
    page.run("orchestrator.page.chooseModel()")
    page.run("document.querySelector('#chat-style').value = 'Answer in as few words as possible.'")
    page.run("document.querySelector('#chat-style').dispatchEvent(new Event('change'))")
    pressed(page, "Keep")
    wait(page, "!document.querySelector('dialog')")
    with server.http() as http:
        kept = http.get(f"/v1/sessions/{session}").json()
    assert kept["instructions"] == "Answer in as few words as possible."
    assert messages(page) == ["apples and pears", "Answer to apples and pears"]


def test_text_does_not_move_when_its_message_is_finished(page: Page, server: ConsoleServer) -> None:
    del server
    new_chat(page, "writer")
    say(page, "write")
    top = "document.querySelector('.message.assistant{} h4')?.getBoundingClientRect().top"
    wait(page, top.format(".writing:not([hidden])"))
    writing = page.run(top.format(".writing"))
    wait(page, top.format(":not(.writing)"))

    assert abs(page.run(top.format(":not(.writing)")) - writing) < 1
