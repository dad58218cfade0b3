"""A run in a notebook: the viewer in a frame, and no text of a model that is markup."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from orchestrator import Run, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel
from tests.kit import hand_on, worker
from tests.report.browser import Browser, Page

HOSTILE = '"></iframe><script>top.taken = 1</script><img src=x onerror="top.taken = 1">\x1b[31m'


def hostile_run() -> Run[str]:
    async def main() -> Run[str]:
        editor = Agent(
            "editor",
            model=ScriptedModel([hand_on(HOSTILE), HOSTILE]),
            delegates=[worker(says=HOSTILE)],
        )
        async with open_orchestrator(":memory:") as orchestrator:
            return await orchestrator.run(editor, HOSTILE)

    return trio.run(main)


def open_in(browser: Browser, folder: Path, html: str) -> Page:
    """Open what a notebook would insert into its own page."""
    file = folder / "notebook.html"
    file.write_text(f"<!doctype html><meta charset=utf-8><body>{html}")
    return browser.open(file)


@pytest.fixture
def notebook(browser: Browser, tmp_path: Path) -> Iterator[Callable[[str], Page]]:
    pages: list[Page] = []

    def open_(html: str) -> Page:
        pages.append(open_in(browser, tmp_path, html))
        return pages[-1]

    yield open_
    for page in pages:
        page.close()


def html_of(run: Run[str]) -> str:
    html = run._repr_html_()
    assert html is not None
    return html


def test_a_run_shows_its_answer_and_the_viewer(
    notebook: Callable[[str], Page], tmp_path: Path
) -> None:
    run = hostile_run()
    page = notebook(html_of(run))
    frame = page.run("document.querySelector('iframe').getAttribute('sandbox')")

    assert frame == "allow-scripts allow-downloads"
    assert page.run("document.querySelectorAll('iframe').length") == 1
    assert page.run("document.querySelectorAll('script, img').length") == 0
    assert page.run("document.body.innerText").startswith('"></iframe><script>top.')
    assert page.run("window.taken") is None
    assert page.requests == [(tmp_path / "notebook.html").as_uri()]


def test_a_frame_is_found_through_its_own_page(notebook: Callable[[str], Page]) -> None:
    """Another page may have one as well: an open one, or one that was closed just now."""
    first, second = (
        notebook(f'<iframe sandbox="allow-scripts" srcdoc="{name}"></iframe>')
        for name in ("first", "second")
    )

    assert first.frame().run("document.body.innerText") == "first"
    assert second.frame().run("document.body.innerText") == "second"


def test_the_viewer_opens_without_an_origin(notebook: Callable[[str], Page]) -> None:
    page = notebook(html_of(hostile_run()))
    frame = page.frame()

    opened = "delegation.opened.then(() => delegation.error?.message ?? 'opened')"
    assert frame.run(opened) == "opened"
    assert frame.run("document.querySelectorAll('[role=row]').length") >= 2
    assert "tool calls" not in frame.run("document.body.innerText")
    assert frame.run("window.origin") == "null"
    assert page.run("window.taken") is None
    assert page.complaints == []


def test_a_failed_run_shows_its_error(notebook: Callable[[str], Page]) -> None:
    async def main() -> Run[str]:
        async with open_orchestrator(":memory:") as orchestrator:
            return await orchestrator.run(Agent("a", model=ScriptedModel([])), "go")

    run = trio.run(main)
    page = notebook(html_of(run))

    assert page.run("document.body.innerText").startswith("failed: ")
    assert repr(run) == f"<Run {run.id} of a: failed, 1 tasks>"


def test_a_tree_is_a_picture_without_markup_of_models() -> None:
    picture = hostile_run().tree._repr_svg_()

    assert picture.startswith("<svg")
    assert "<script" not in picture
    assert "<img" not in picture
