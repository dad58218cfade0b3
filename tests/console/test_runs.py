"""The list of runs, a new run, and two runs side by side, in a real browser."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.kit import ROOT, TEAM, ConsoleServer, show, sign_in, wait
from tests.report.browser import Browser, Page

ROWS = "[...document.querySelectorAll('.list tbody:not(.grey) tr')]"


OTHER = "openai:gpt-5-mini"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    """A server whose runs may take another model, of a provider that repeats what it reads."""
    folder: Path = tmp_path_factory.mktemp("console")
    folder.chmod(0o700)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.console.echo_provider"],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    ) as provider:
        assert provider.stdout is not None
        url = f"http://127.0.0.1:{provider.stdout.readline().strip()}/v1"
        served = ConsoleServer(
            folder,
            *("--language-model", OTHER),
            OPENAI_API_KEY="sk-1234567890",
            OPENAI_BASE_URL=url,
        )
        served.start()
        yield served
        served.end()
        provider.kill()


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


def test_runs_are_searched_and_filtered_by_the_address(page: Page, runs: list[str]) -> None:
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


def test_a_filtered_list_adds_only_matching_runs(
    page: Page, server: ConsoleServer, runs: list[str]
) -> None:
    show(page, "#/runs?agent=quick")
    wait(page, f"{ROWS}.length === 1")

    other = server.begin("hostile", "not here")
    new = server.begin("quick", "ship 1 items")

    wait(page, f"{ROWS}.some(it => it.dataset.run === '{new}')")
    assert other not in listed(page)
    assert runs[2] in listed(page)


def test_a_run_begins_once_and_its_page_opens(page: Page, server: ConsoleServer) -> None:
    show(page, "#/new?agent=hostile&goal=It%27s%20new")
    wait(page, "document.querySelector('#new-agent').value === 'hostile'")
    commands = page.run("document.querySelector('.same').innerText")
    assert "orchestrator run team.py:hostile 'It'\\''s new'" in commands
    assert "run_sync(hostile" in commands

    page.run(
        "const form = document.querySelector('form'); form.requestSubmit(); form.requestSubmit();"
    )

    wait(page, "location.hash.startsWith('#/runs/r_')")
    with server.http() as http:
        found = http.get("/v1/runs", params={"q": "It's new"}).json()["data"]
    assert len(found) == 1
    page.run("history.back()")
    wait(page, "orchestrator.page.goal?.value === `It's new`")


def test_a_run_ends_at_the_budget_that_it_was_given(page: Page, server: ConsoleServer) -> None:
    show(page, "#/new?agent=hostile&goal=spend%20nothing")
    wait(page, "orchestrator.page.goal?.value === 'spend nothing'")
    page.run(
        "orchestrator.page.show(orchestrator.router.current).then(() => {"
        "orchestrator.page.usd.value = '0'; orchestrator.page.changed()})"
    )
    assert "with budget(usd=0):" in page.run("document.querySelector('.same').textContent")
    page.run("document.querySelector('form').requestSubmit()")

    wait(page, "location.hash.startsWith('#/runs/r_')")
    wait(page, "orchestrator.page.model?.status[0] === 'over_budget'")


GOAL = 'It\'s `new`: $HOME \\ "x"'
BLOCKS = "[...document.querySelectorAll('.same pre')].map(it => it.textContent)"


def test_the_shown_commands_start_the_same_run_as_the_page(
    page: Page, server: ConsoleServer, tmp_path: Path
) -> None:
    """With files, another model, instructions, a budget, and words that shells like to change."""
    show(page, "#/new?agent=writer&goal=x")
    wait(page, "orchestrator.page.model?.options.length === 2")
    page.run(
        f"{{const it = orchestrator.page; it.goal.value = {json.dumps(GOAL)};"
        f" it.extra.value = 'Be brief.'; it.model.value = '{OTHER}'; it.usd.value = '';"
        " it.seconds.value = '60';"
        " it.attached.add([new File(['two roots'], 'my notes.txt')]); it.changed()}"
    )
    wait(page, f"{BLOCKS}[0].includes('--attach')")
    command, curl, code = page.run(BLOCKS)
    (tmp_path / "my notes.txt").write_text("two roots")
    shutil.copy(TEAM, tmp_path)

    page.run("document.querySelector('form').requestSubmit()")
    wait(page, "location.hash.startsWith('#/runs/r_')")
    shown = _heard(server, page.run("location.hash").rpartition("/")[2])
    assert shown["model"] == "gpt-5-mini"
    assert "Be brief." in str(shown)
    assert "two roots" in str(shown)

    def run(*words: str) -> str:
        environ = {**server.environ, "TOKEN": server.token, "ORCHESTRATOR_HOME": "home"}
        done = subprocess.run(words, cwd=tmp_path, env=environ, check=True, stdout=subprocess.PIPE)
        return done.stdout.decode()

    here = f'orchestrator() {{ {sys.executable} -m orchestrator "$@"; }}\n'
    begun = json.loads(run("sh", "-c", curl))["id"]
    assert _heard(server, begun) == shown
    assert json.loads(run("sh", "-c", here + command + " --quiet")) == shown
    assert json.loads(run(sys.executable, "-c", code)) == shown


def _heard(server: ConsoleServer, run: str) -> Any:
    """Return what the model of a run was asked, which is its answer."""
    with server.http() as http:
        http.get(f"/v1/runs/{run}/events")
        shown = http.get(f"/v1/runs/{run}").json()
    assert shown["status"] == "completed", shown["error"]
    return json.loads(shown["output"])


def test_a_simulation_shows_time_price_and_bottleneck_and_starts_no_run(
    page: Page, server: ConsoleServer
) -> None:
    def count() -> int:
        with server.http() as http:
            return len(http.get("/v1/runs?limit=100").json()["data"])

    before = count()
    show(page, "#/new?agent=quick&goal=ship%20it")
    wait(page, "document.querySelector('#new-agent').value === 'quick'")
    page.run("orchestrator.page.simulation.button.click()")
    wait(page, "document.querySelector('.simulated table')")
    text = page.run("document.querySelector('.simulated').innerText")
    for words in ("Median", "Time", "Price", "$", "Limited by the critical path"):
        assert words in text
    assert count() == before

    page.run("orchestrator.page.goal.value = 'y'; orchestrator.page.changed()")
    assert "has changed" in page.run("document.querySelector('.simulated').innerText")
    page.run("orchestrator.page.simulation.button.click()")
    page.run("orchestrator.page.simulation.button.click()")
    wait(page, "orchestrator.page.simulation.abort === null")
    assert page.run("document.querySelector('.simulated').hidden"), "it was stopped"


def test_a_refusal_of_the_server_is_shown_in_the_form(page: Page) -> None:
    show(page, "#/new?agent=hostile&goal=x")
    wait(page, "orchestrator.page.goal?.value === 'x'")
    page.run(
        "orchestrator.page.show(orchestrator.router.current).then(() => {"
        "orchestrator.page.agent.append(new Option('gone', 'gone', true, true));"
        "document.querySelector('form').requestSubmit()})"
    )

    wait(page, "document.querySelector('.problem').innerText.includes('gone')")


def test_two_runs_are_compared_by_cost_time_agents_and_answers(page: Page, runs: list[str]) -> None:
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


def test_a_comparison_marks_kept_and_new_tasks(
    page: Page, server: ConsoleServer, runs: list[str]
) -> None:
    with server.http() as http:
        nodes = http.get(f"/v1/runs/{runs[2]}/tree", params={"format": "json"}).json()["nodes"]
        first = next(it["id"] for it in nodes if it["path"].endswith("[1]"))
        retried = http.post(f"/v1/tasks/{first}/retry").json()["id"]
    show(page, f"#/compare/{runs[2]}/{retried}")
    rows = "[...document.querySelectorAll('.compare article')]"
    wait(page, f"{rows}[1].querySelectorAll('tr.kept').length > 0")
    assert page.run(f"{rows}[0].querySelectorAll('tr.kept, tr.new').length") == 0
    wait(page, f"{rows}[1].querySelectorAll('tr.new .name').length > 0")
    new = page.run(f"[...{rows}[1].querySelectorAll('tr.new .name')].map(it => it.innerText)")
    assert any("[1]" in it for it in new)
    assert "new, " in page.run(f"{rows}[1].querySelector('h3').innerText")


def test_the_whole_row_of_a_run_is_its_link(page: Page, runs: list[str]) -> None:
    show(page, "#/runs?q=another")
    wait(page, f"{ROWS}.length === 1")
    at = page.run(
        "{const box = document.querySelector('.list tbody .time').getBoundingClientRect();"
        " const found = document.elementFromPoint(box.left + 2, box.top + 2);"
        " found.closest('a')?.getAttribute('href')}"
    )
    assert at == f"#/runs/{runs[1]}"


def test_a_list_shows_grey_rows_until_its_runs_are_read(page: Page, runs: list[str]) -> None:
    del runs
    show(page, "#/inbox")
    # A row of the live stream would end the grey rows, too: none comes.
    page.run(
        "orchestrator.pages.clear(); window.answers = [];"
        " orchestrator.live.watch = () => () => {};"
        " orchestrator.api.get = (path) => new Promise(done => {"
        "   if (path.startsWith('v1/runs?')) answers.push(done); else done({data: []})})"
    )
    try:
        show(page, "#/runs")
        wait(page, "answers.length && document.querySelector('.grey')?.hidden === false")
        assert page.run("document.querySelector('.runs > .empty').hidden")
        # The inbox asks for runs, too, at any time.
        page.run("answers.push = (done) => done({data: [], has_more: false})")
        page.run("for (const done of answers) done({data: [], has_more: false})")
        wait(page, "document.querySelector('.grey').hidden")
        wait(page, "!document.querySelector('.runs > .empty').hidden")
    finally:
        page.run("delete orchestrator.api.get; delete orchestrator.live.watch")
        show(page, "#/inbox")
        page.run("orchestrator.pages.clear()")


def test_a_run_is_deleted_after_a_question(
    page: Page, server: ConsoleServer, runs: list[str]
) -> None:
    show(page, "#/runs?q=another")
    wait(page, f"{ROWS}.length === 1")
    page.run(f"document.querySelector('tr[data-run={runs[1]}] .more').click()")
    wait(page, "document.querySelector('.menu [role=menuitem]') === document.activeElement")
    page.run("document.activeElement.click()")
    wait(page, "document.querySelector('dialog')?.open")
    page.run("document.querySelector('dialog .danger').click()")

    wait(page, "document.body.innerText.includes('No run fits.')")
    with server.http() as http:
        assert http.get(f"/v1/runs/{runs[1]}").status_code == 404


def test_old_runs_are_pruned_in_all_tabs_after_a_count(
    page: Page, browser: Browser, server: ConsoleServer
) -> None:
    waiting = server.begin("operator", "clean up")
    show(page, "#/runs")
    other = browser.open(f"{server.url}/#/runs")
    wait(other, f"{ROWS}.length > 3")
    page.run(
        "[...document.querySelectorAll('.title button')].at(-1).click();"
        "{const age = document.querySelector('dialog[open] select'); age.value = '0';"
        " age.dispatchEvent(new Event('change'))}"
    )
    status = "document.querySelector('dialog[open] [role=status]').innerText"
    wait(page, f"{status}.includes('for good')")
    kept = page.run("document.querySelector('dialog[open] .hint').innerText")
    assert "1 run that is under way" in kept

    page.run("document.querySelector('dialog[open] .danger').click()")

    for tab in (page, other):
        wait(tab, f"{ROWS}.length === 1 && {ROWS}[0].dataset.run === '{waiting}'")
    other.close()
    server.cancel(waiting)


JOBS = """
from orchestrator import Agent, ScriptedModel
from orchestrator.schedule import Job

quick = Agent("quick", model=ScriptedModel.always("Happy new year!"))
schedule = [
    Job("0 8 1 1 *", quick, "Wish a happy <b>new</b> year.", name="wishes", zone="UTC")
]
"""


@pytest.fixture
def jobs_server(tmp_path: Path) -> Iterator[ConsoleServer]:
    tmp_path.chmod(0o700)
    (tmp_path / "jobs.py").write_text(JOBS)
    served = ConsoleServer(tmp_path, team=tmp_path / "jobs.py")
    served.start()
    yield served
    served.end()


def test_jobs_are_seen_as_they_are_now_paused_and_run(
    browser: Browser, jobs_server: ConsoleServer
) -> None:
    server = jobs_server
    page = sign_in(browser, server)
    show(page, "#/jobs")
    wait(page, f"{ROWS}.length === 1")
    row = "document.querySelector('[data-job=wishes]')"
    assert "Wish a happy <b>new</b> year." in page.run(f"{row}.innerText")
    page.run(f"{row}.querySelector('[data-do=pause]').click()")
    wait(page, f"{row}.innerText.includes('paused')")
    # Another terminal lets it go on.
    command = [sys.executable, "-m", "orchestrator", "jobs", "resume", "wishes"]
    subprocess.run([*command, "--journal", str(server.journal)], env=server.environ, check=True)
    wait(page, f"!{row}.innerText.includes('paused')")
    page.run(f"{row}.querySelector('[data-do=run]').click()")
    wait(page, "location.hash.startsWith('#/runs/r_')")
    show(page, "#/jobs")
    wait(page, f"{row}.querySelector('a[href^=\"#/runs/r_\"]')")
    assert page.complaints == []
    page.close()
