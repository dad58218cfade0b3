"""Photographs reports: `python -m tests.report.pictures FOLDER`, or `make picture`."""

import sys
import tempfile
from pathlib import Path

from tests.report.browser import Browser, Page, open_browser
from tests.report.conftest import write
from tests.report.synthetic import run_of


def opened(browser: Browser, file: Path) -> Page:
    page = browser.open(file)
    page.run("delegation.opened")
    return page


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as home, open_browser() as browser:
        many = write(Path(home) / "many.html", run_of(20_000))
        page = opened(browser, many.file)
        page.settle()
        page.picture(folder / "report.png")
        some = write(Path(home) / "some.html", run_of(500, seed=3, asking=0.03, until=75))
        page = opened(browser, some.file)
        page.prefer(prefers_color_scheme="dark")
        page.run("delegation.viewer.grid.focus()")
        page.press("w")
        page.run("delegation.viewer.grid.scroller.scrollTop = 0")
        page.settle()
        page.picture(folder / "report-dark.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
