"""A browser for all tests, and reports of three sizes."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import attrs
import pytest

from orchestrator.delegation import SessionId, Tree
from orchestrator.delegation.events import Entry
from orchestrator.kernel.journal.run_history import RunHistory, read_history
from orchestrator.products.history.report import Transcripts, build_report
from tests.report.browser import Browser, Page, chromium, open_browser
from tests.report.synthetic import SESSION, run_of

Opened: TypeAlias = Callable[..., Page]


@attrs.frozen
class Written:
    """A report, and the run that it is of."""

    file: Path
    history: RunHistory

    @property
    def tree(self) -> Tree:
        return self.history.tree


def write(
    file: Path,
    entries: Sequence[Entry],
    *,
    run: SessionId = SESSION,
    transcripts: Transcripts = Transcripts.ALL,
    is_written: bool = True,
) -> Written:
    history = read_history(run, entries, has_writer=is_written, wants_transcript=transcripts.wants)
    report = build_report(history, version="0.1.0", transcripts=transcripts)
    file.write_text(report.html, encoding="utf-8")
    return Written(file, history)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if chromium() is None:
        pytest.fail("the viewer's tests need Chromium: apt-get install chromium")
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="session")
def few(folder: Path) -> Written:
    """Five agents, all done."""
    return write(folder / "few.html", run_of(5))


@pytest.fixture(scope="session")
def some(folder: Path) -> Written:
    """Some hundred agents, broken off in the midst of it: some run, some wait."""
    entries = run_of(500, seed=3, asking=0.03, until=75)
    return write(folder / "some.html", entries)


@pytest.fixture(scope="session")
def many(folder: Path) -> Written:
    """Twenty thousand."""
    return write(folder / "many.html", run_of(20_000), transcripts=Transcripts.NONE)


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    """Open reports, and close them at the end."""
    pages: list[Page] = []

    def open_(report: Written, *, width: int = 1440, height: int = 860) -> Page:
        page = browser.open(report.file, width=width, height=height)
        pages.append(page)
        page.run("delegation.opened")
        page.settle()
        return page

    yield open_
    for page in pages:
        page.close()
