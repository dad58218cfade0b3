"""Photographs the console: `python -m tests.console.pictures FOLDER`, or `make picture`."""

import sys
import tempfile
from pathlib import Path

from tests.console.kit import ConsoleServer, show, sign_in, wait
from tests.report.browser import open_browser


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as home, open_browser() as browser:
        server = ConsoleServer(Path(home))
        server.start()
        try:
            run = server.begin("planner", "ship the release: 40 items")
            page = sign_in(browser, server)
            page.prefer(prefers_color_scheme="dark")
            show(page, f"#/runs/{run}")
            count = "orchestrator.page.viewer.rollups.groups"
            wait(page, f"{count}.waiting[0] >= 3 && {count}.done[0] > 90")
            page.press("w")
            wait(page, "document.querySelector('.ask')")
            page.settle()
            page.picture(folder / "console.png")
        finally:
            server.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
