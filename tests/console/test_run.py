"""A run, live: what people see of it in a real browser, and what they do to it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.kit import ConsoleServer, pressed, show, sign_in, wait
from tests.report.browser import Browser, Page, open_browser


@pytest.fixture(scope="module")
def page(browser: Browser, server: ConsoleServer) -> Iterator[Page]:
    page = sign_in(browser, server)
    yield page
    assert page.complaints == []


def opened(page: Page, run: str, task: str = "") -> None:
    show(page, f"#/runs/{run}" + (f"/tasks/{task}" if task else ""))
    wait(page, f"orchestrator.page.run === '{run}' && orchestrator.page.viewer")


def status(page: Page, agent: str) -> Any:
    return page.run(
        "(() => {const {model} = orchestrator.page;"
        f" return model.status[model.agent.indexOf('{agent}')]}})()"
    )


def says(page: Page, words: str) -> None:
    wait(page, f"document.body.innerText.includes({words!r})")


def test_people_approve_by_keyboard_and_a_second_answer_is_refused(
    page: Page, server: ConsoleServer
) -> None:
    run = server.begin("operator", "clean up")
    opened(page, run)
    wait(page, "document.querySelector('.ask .subject')?.innerText === 'rm -r build/'")
    [approval] = server.approvals(run)

    page.press("w", "a")

    says(page, "Approved: rm -r build/")
    wait(page, "!document.querySelector('.ask')")
    wait(page, "orchestrator.page.model.status[0] === 'succeeded'")
    second = server.answer(approval, "deny")
    assert second.status_code == 409
    assert "answered already, by key console" in second.json()["error"]["message"]


def test_a_denial_carries_its_reason_to_the_agent(page: Page, server: ConsoleServer) -> None:
    run = server.begin("operator", "clean up")
    opened(page, run)
    wait(page, "document.querySelector('.ask input')")
    page.run("document.querySelector('.ask input').focus()")
    page.type("not on a Friday")
    page.run("orchestrator.page.viewer.grid.focus()")

    page.press("d")

    wait(page, "!document.querySelector('.ask')")
    says(page, "not on a Friday")


def test_details_show_the_evidence_of_a_task_beside_its_claim(
    page: Page, server: ConsoleServer
) -> None:
    opened(page, server.begin("foreman"))
    wait(page, "orchestrator.page.model.status[0] === 'succeeded'")
    page.run("orchestrator.page.viewer.grid.focus()")
    page.press("ArrowDown")
    wait(page, "document.querySelectorAll('.evidence li').length === 5")

    shown = "[...document.querySelectorAll('.evidence li')].map(it => it.innerText)"
    file, test, failed, denied, child = page.run(shown)
    assert file == "created sum.py +1 line -0"
    assert test == "ran tests exit 1 # pytest <b>: exit code 1"
    assert failed.startswith("read_file failed: ")
    assert denied.startswith("terminal was denied: ")
    assert "not here" in denied
    assert child == "/foreman/builder[1]/broken[1] ended as failed"
    assert page.run("document.querySelectorAll('.evidence li.failed').length") == 4
    says(page, "Tool calls: write_file 1, terminal 2, read_file 1")


def test_board_follows_the_claims_of_tasks_and_frees_them_at_their_end(
    page: Page, server: ConsoleServer
) -> None:
    run = server.begin("caretaker")
    opened(page, run)
    wait(page, "document.querySelector('.board li:nth-child(2).claimed')")
    shown = "[...document.querySelectorAll('.board li')].map(it => it.innerText)"
    first, second, third = page.run(shown)
    assert "sweep the hall finished by /caretaker/sharer[1]" in first
    assert "<b>swept</b>" in first
    assert "mop the stairs claimed by /caretaker/sharer[1]" in second
    assert "water the plants free" in third
    says(page, "1 of 3 finished")

    [approval] = server.approvals(run)
    server.answer(approval, "once")

    wait(page, "document.querySelector('.board li:nth-child(2).free')")


def test_a_message_to_a_task_has_a_receipt_and_stays_text(
    page: Page, server: ConsoleServer
) -> None:
    run = server.begin("operator", "clean up")
    opened(page, run)
    wait(page, "document.querySelector('.ask')")
    page.run("orchestrator.page.viewer.grid.focus()")
    page.press("m")
    page.type("<b>careful</b> <img src=x onerror=\"document.title='owned'\">")
    page.click("dialog .primary")
    wait(page, "document.querySelector('.receipt').dataset.state === 'waiting'")

    [approval] = server.approvals(run)
    server.answer(approval, "once")

    wait(page, "document.querySelector('.receipt').dataset.state === 'seen'")
    page.press("Escape")
    says(page, "<b>careful</b>")
    assert page.run("document.querySelectorAll('.conversation b, .conversation img').length") == 0
    assert page.run("document.title") != "owned"


def test_cancelling_a_subtree_names_its_tasks_and_leaves_its_sibling(
    page: Page, server: ConsoleServer
) -> None:
    run = server.begin("pair")
    opened(page, run)
    wait(page, "orchestrator.page.model.status.filter(it => it === 'running').length === 3")
    page.run("orchestrator.page.viewer.grid.focus()")
    page.press("ArrowDown", "x")
    says(page, "1 of 1 agent is active and will stop.")

    page.click("dialog .danger")

    says(page, "All of them have ended.")
    page.press("Escape")
    wait(page, "orchestrator.page.model.status[1] === 'cancelled'")
    assert page.run("orchestrator.page.model.status[2]") == "running"
    server.cancel(run)
    wait(page, "!orchestrator.page.isWorking")


def test_streamed_text_is_shown_and_becomes_the_message(page: Page, server: ConsoleServer) -> None:
    run = server.begin("writer")
    opened(page, run)
    wait(page, "document.querySelector('.writing:not([hidden]) .text')?.innerText.length > 20")
    wait(page, "document.querySelector('.message.assistant:not(.writing) table')")

    assert page.run("document.querySelector('.writing').hidden")
    shape = page.run(
        "['h4.heading-2', 'ol li', 'pre.code', 'table tr', 'strong', 'a']"
        ".map(it => document.querySelectorAll(`.message.assistant .text ${it}`).length)"
    )
    assert shape == [1, 3, 1, 3, 1, 1]
    says(page, "<script>alert(1)</script>")


def test_the_text_of_a_model_is_never_markup(page: Page, server: ConsoleServer) -> None:
    run = server.begin("hostile")
    opened(page, run)
    wait(page, "document.querySelector('.message.assistant strong')")

    assert page.run("document.querySelectorAll('.message img, .message a').length") == 0
    assert page.run("document.title") != "owned"


def test_the_text_of_a_model_never_stops_the_page(page: Page, server: ConsoleServer) -> None:
    ticks = "".join(f"{'`' * it}a" for it in range(1, 200))
    deep = (">" * 12_000, "- " * 6_000 + "a", "**a _b " * 2_000, "[a](" * 4_000)
    text = "\n\n".join((ticks, *deep, "This is the end."))
    for hostile in (text, "`a` " * 24_000 + "This is the end."):
        opened(page, server.begin("hostile", hostile))
        wait(page, "document.querySelector('.message.assistant strong')")
        shown = page.run("document.querySelector('.message .text').innerText")
        assert "This is the end." in shown


def test_every_task_and_view_has_an_address(page: Page, server: ConsoleServer) -> None:
    run = server.begin("pair")
    opened(page, run)
    wait(page, "orchestrator.page.model.size === 3")
    page.run("orchestrator.page.viewer.grid.focus()")
    page.press("ArrowDown")
    page.run("orchestrator.page.viewer.showTab('flame')")
    page.settle()
    address = page.run("location.hash")
    task = page.run("orchestrator.page.model.ids[1]")

    assert address == f"#/runs/{run}/tasks/{task}?view=flame"
    show(page, "#/runs")
    show(page, address)
    wait(page, "orchestrator.page.viewer?.tab === 'flame'")
    assert page.run("orchestrator.page.viewer.active") == task
    server.cancel(run)


def test_failures_are_grouped_by_their_errors(page: Page, server: ConsoleServer) -> None:
    run = server.begin("quick", "ship 6 items")
    opened(page, run)
    wait(page, "!orchestrator.page.isWorking")
    page.run("orchestrator.page.viewer.showTab('failures')")
    page.settle()

    found = page.run(
        "[...document.querySelectorAll('.failure')].map(it => [it.querySelector('b').innerText,"
        " it.querySelectorAll('li').length])"
    )
    failed = page.run("orchestrator.page.model.status.filter(it => it === 'failed').length")
    assert found == [[f"✗ {failed}", failed]]


def test_the_selection_stays_while_the_run_grows(page: Page, server: ConsoleServer) -> None:
    """The survey goes on by itself until it ends: it waits for no person."""
    run = server.begin("survey", "40")
    opened(page, run)
    wait(page, "orchestrator.page.model.size > 12")
    page.run("orchestrator.page.viewer.grid.focus()")
    page.press("End", "ArrowUp")
    chosen = page.run("orchestrator.page.viewer.active")

    for _ in range(5):
        seq = page.run("orchestrator.page.seq")
        wait(page, f"orchestrator.page.seq > {seq} || !orchestrator.page.isWorking")

    assert page.run("orchestrator.page.viewer.active") == chosen


def test_the_selection_stays_when_its_task_is_no_longer_important(
    page: Page, server: ConsoleServer
) -> None:
    """A group shows the tasks that wait, and then others: the run does not grow any more."""
    run = server.begin("quick", "ship 30 items")
    opened(page, run)
    groups = "orchestrator.page.viewer.rollups.groups"
    wait(page, f"{groups}.waiting[0] === 3 && {groups}.running[0] === 4")
    chosen = page.run(
        "(() => {const {model, viewer} = orchestrator.page;"
        " const number = model.goal.findIndex(it => it === 'item #28');"
        " viewer.reveal(number); return viewer.active})()"
    )
    for approval in server.approvals(run):
        server.answer(approval, "once")

    wait(page, "!orchestrator.page.isWorking")
    assert page.run("orchestrator.page.viewer.active") == chosen


def test_a_closed_tab_ends_no_run_and_the_report_shows_the_same(
    page: Page, server: ConsoleServer, browser: Browser, tmp_path: Path
) -> None:
    run = server.begin("quick", "ship 5 items")
    other = browser.open(f"{server.url}/#/runs/{run}")
    wait(other, "orchestrator.page.seq")
    other.close()
    opened(page, run)
    wait(page, "!orchestrator.page.isWorking")
    tasks = "model.ids.map((id, n) => [id, model.status[n], model.tokens(n), model.path[n]])"
    live = page.run(f"(() => {{const {{model}} = orchestrator.page; return {tasks}}})()")

    file = tmp_path / "report.html"
    with server.http() as http:
        file.write_text(http.get(f"/v1/runs/{run}/tree?format=html").text)
    report = browser.open(file)
    report.run("delegation.opened")

    saved = report.run(f"(() => {{const {{model}} = delegation.viewer; return {tasks}}})()")
    assert saved == live
    report.close()


def test_a_sequential_fan_out_shows_its_progress(page: Page, server: ConsoleServer) -> None:
    """Two at a time: the tree has few of its twelve tasks, and the page knows of all."""
    run = server.begin("survey", "12")
    opened(page, run)
    words = "document.querySelector('.progress')?.innerText"
    wait(page, f"/^[3-9] of 13 · about .* left$/.test({words})")
    assert page.run("orchestrator.page.model.size") < 14

    wait(page, "!orchestrator.page.isWorking")
    assert page.run(words) == "13 of 13"


def test_the_critical_path_grows_with_the_run_and_equals_the_report(
    page: Page, server: ConsoleServer, browser: Browser, tmp_path: Path
) -> None:
    run = server.begin("pair")
    opened(page, run)
    wait(page, "orchestrator.page.viewer.critical.size === 1")
    assert page.run("[...orchestrator.page.viewer.critical]") == [2]
    says(page, "line over a bar: critical path")
    server.cancel(run)
    done = server.begin("quick", "ship 5 items")
    opened(page, done)
    wait(page, "!orchestrator.page.isWorking")
    live = page.run("[...orchestrator.page.viewer.critical]")

    file = tmp_path / "report.html"
    with server.http() as http:
        # What the button saves.
        link = page.run("document.querySelector('a[download]').getAttribute('href')")
        file.write_text(http.get(f"/{link}").text)
    report = browser.open(file)
    report.run("delegation.opened")

    assert live
    assert report.run("[...delegation.viewer.critical]") == live
    report.close()


def test_a_budget_and_the_agents_at_work_are_in_sight(page: Page, server: ConsoleServer) -> None:
    body = {"agent": "pair", "input": "go", "budget": {"calls": 10}}
    with server.http() as http:
        run = http.post("/v1/runs", json=body).json()["id"]
    opened(page, run)
    wait(page, "document.querySelector('.gauge')?.innerText === '1 of 10'")
    says(page, "agents at work, at most 2")
    strip = page.run(
        "(() => {const it = document.querySelector('.strip');"
        " const {x, y, width, height} = it.getBoundingClientRect();"
        " return [x + width - 3, y + height - 12]})()"
    )
    red, _, blue = page.pixel(*strip)
    assert blue > red + 60, "the colour of what runs"
    server.cancel(run)


def test_a_picture_of_a_tool_and_an_answer_of_a_type_are_readable(
    page: Page, server: ConsoleServer
) -> None:
    opened(page, server.begin("painter"))
    wait(page, "document.querySelector('.tool .state.done')")
    page.click(".tool summary")
    wait(page, "document.querySelector('.tool img')?.naturalWidth === 8")

    answers = "document.querySelectorAll('.message.assistant:not(.writing)')"
    wait(page, f"{answers}.length === 2")
    shown = page.run("[...document.querySelectorAll('pre.code')].at(-1).innerText")
    assert shown == '{\n  "drawn": [\n    "a square"\n  ]\n}'


@pytest.mark.parametrize("width", [800, 390])
def test_a_narrow_screen_keeps_the_tree_the_progress_and_the_conversation(
    page: Page, server: ConsoleServer, width: int
) -> None:
    run = server.begin("pair")
    page.resize(width, 844)
    opened(page, run)
    wait(page, "document.querySelectorAll('.row').length === 3")
    shown = page.run(
        "['.row', '.progress', '.details', '.conversation'].map(it =>"
        " document.querySelector(it).getBoundingClientRect().width > 20)"
    )
    assert shown == [True] * 4
    assert page.run("document.documentElement.scrollWidth") <= width
    page.resize(1440, 860)
    server.cancel(run)


def test_while_a_run_is_paused_no_new_task_starts(page: Page, server: ConsoleServer) -> None:
    run = server.begin("manager")
    opened(page, run)
    wait(page, "orchestrator.page.approvals.length === 1")

    pressed(page, "Pause starts")
    says(page, "Paused: no new task starts below manager")
    states = "[...document.querySelectorAll('.top .state')].map(it => it.innerText)"
    wait(page, f"({states}).join() === '! waiting for you,‖ paused'")
    assert page.run("orchestrator.page.hasPace") is False
    assert "left" not in page.run("document.querySelector('.progress').innerText")
    [approval] = server.approvals(run)
    server.answer(approval, "once")
    wait(page, "orchestrator.page.model.agent.includes('look')")
    assert status(page, "look") == "queued"

    pressed(page, "Unpause")
    wait(page, "orchestrator.page.model.status[0] === 'succeeded'")
    assert status(page, "look") == "succeeded"


def test_a_failed_task_is_retried_and_the_rest_is_kept(page: Page, server: ConsoleServer) -> None:
    run = server.begin("combiner")
    opened(page, run)
    wait(page, "orchestrator.page.model.status[0] === 'succeeded'")
    (server.folder / "mended").touch()
    opened(page, run, page.run("orchestrator.page.model.ids[2]"))

    pressed(page, "Retry")
    says(page, "A new run begins; this one stays as it is. The task begins anew")
    says(page, "All else is kept, and is not paid again.")
    page.click("dialog .primary")

    wait(page, f"orchestrator.page.run !== '{run}' && orchestrator.page.model")
    wait(page, "orchestrator.page.model.status.every(it => it === 'succeeded')")
    says(page, "2 of 2 are done.")
    again = page.run("orchestrator.page.run")
    page.click(f"a[href^='#/runs/{run}/tasks/']")
    wait(page, f"orchestrator.page.run === '{run}' && orchestrator.page.viewer?.selected === 2")
    opened(page, again)
    pressed(page, "Fork from here")
    says(page, "All of it is done again, and is paid again.")
    page.press("Escape")


def test_a_crashed_page_ends_no_run(server: ConsoleServer) -> None:
    run = server.begin("sleeper")
    # A browser of its own: pages of one server may share a process.
    with open_browser() as browser:
        page = browser.open(f"{server.url}/#/runs/{run}")
        page.run(f"orchestrator.login.signIn({{token: {server.token!r}}})")
        wait(page, "orchestrator.page.seq")

        page.crash()

        after = browser.open(f"{server.url}/#/runs/{run}")
        wait(after, "orchestrator.page.model?.status[0] === 'running'")
    server.cancel(run)


def lines(page: Page, selector: str) -> list[int]:
    """Return the numbers of the lines of a script that a selector finds."""
    found: list[int] = page.run(
        f"[...document.querySelectorAll('#panel-script .line{selector}')]"
        ".map(it => Number(it.dataset.line))"
    )
    return found


def test_the_source_of_a_script_shows_the_tasks_of_its_lines_live(
    page: Page, server: ConsoleServer
) -> None:
    run = server.begin("surveyor")
    opened(page, run)
    show(page, f"#/runs/{run}?view=script")
    wait(page, "document.querySelector('.line[data-line=\"11\"] .tag.waiting')")

    assert lines(page, ".now") == [11]
    assert lines(page, ".later") == [12]
    assert lines(page, ":has(.tag)") == [3, 5, 11]
    assert "3/3" in page.run("document.querySelector('.line .tag').innerText")
    assert page.run("document.querySelector('.tag.failed').closest('.line').dataset.line") == "5"

    page.run("[...document.querySelectorAll('.tag.waiting')].at(-1).click()")
    wait(page, "document.querySelector('.details .ask .subject')")
    assert lines(page, "[aria-current]") == [11]
    page.run("document.querySelector('.source').focus()")
    page.press("a")

    wait(page, "orchestrator.page.model.status[0] === 'succeeded'")
    wait(page, "!document.querySelector('.line.now, .line.later')")
    assert lines(page, ":has(.tag)") == [3, 5, 11, 12]


def test_a_run_without_scripts_has_no_tab_for_them(page: Page, server: ConsoleServer) -> None:
    opened(page, server.begin("hostile"))
    wait(page, "document.querySelector('#tab-script').hidden")
