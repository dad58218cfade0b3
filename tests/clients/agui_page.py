"""`python -m tests.clients.agui_page`: use the example page of AG-UI in Chromium, as a person does.

The page is built from its pinned packages below `.clients`, and opened as a file. With `--picture
FILE` it is also photographed while it asks for an approval.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

import trio

from tests.clients.environments import CACHE, MissingNodeError, node
from tests.report.browser import Page, PageError, open_browser
from tests.server.server_process import ServerProcess, server_process

EXAMPLE: Final = Path(__file__).parent.parent.parent / "examples" / "agui"
ROUNDS: Final = 300
"""The number of looks at the page before a text counts as missing."""


async def build() -> Path:
    """Build the page below `.clients`, and return its folder."""
    folder = CACHE / "agui-page"
    folder.mkdir(parents=True, exist_ok=True)
    for file in EXAMPLE.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    program, npm = node()
    quiet = ("--silent", "--ignore-scripts", "--no-audit", "--no-fund")
    environ = {"PATH": f"{Path(program).parent}:/usr/bin:/bin", "HOME": str(folder)}
    if not (folder / "node_modules").exists():
        await trio.run_process([program, npm, "ci", *quiet], cwd=folder)
    await trio.run_process([program, npm, "run", "--silent", "build"], cwd=folder, env=environ)
    return folder


def wait_for(page: Page, text: str) -> None:
    """Look at the page until it shows a text."""
    for _ in range(ROUNDS):
        if text in page.run("document.body.innerText"):
            return
        page.run("new Promise(done => setTimeout(done, 100))")
    shown = page.run("document.body.innerText")
    raise PageError(f"the page does not show {text!r}: {shown}; {page.complaints}")


def click_button(page: Page, name: str) -> None:
    found = f"[...document.querySelectorAll('button')].find(it => it.innerText === {name!r})"
    page.run(f"{found}.click()")
    page.settle()


def use(file: Path, server: ServerProcess, picture: Path | None) -> None:
    """Ask the team, approve its call, and read its answer."""
    with open_browser() as browser:
        page = browser.open(f"{file.as_uri()}?server={server.url}", width=1000, height=520)
        page.click("input")
        page.type(server.token)
        page.press("Enter")
        page.click("textarea")
        page.type("What are trios?")
        page.press("Enter")
        wait_for(page, "asks to run publish")
        wait_for(page, "waiting")
        if picture is not None:
            page.picture(picture)
        click_button(page, "Approve")
        wait_for(page, "Done: findings is public.")
        shown = page.run("document.body.innerText")
        for text in ("researcher", "succeeded", "Trios are groups of three."):
            assert text in shown, shown
        assert shown.count("I ask the researcher.") == 1, shown
        here = (file.parent.as_uri(), server.url, "data:")
        others = [it for it in page.requests if not it.startswith(here)]
        assert others == [], others


async def main_async(picture: Path | None) -> None:
    folder = await build()
    team = (EXAMPLE / "team.py").read_text()
    with tempfile.TemporaryDirectory(prefix="agui-") as temporary:
        async with server_process(Path(temporary), team, "--allow-origin", "*") as server:
            await trio.to_thread.run_sync(use, folder / "index.html", server, picture)
    print("the example page of AG-UI: 1 passed, 0 failed")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.agui_page", description=__doc__)
    parser.add_argument("--picture", type=Path, help="the file of the photograph")
    asked = parser.parse_args()
    try:
        trio.run(main_async, asked.picture)
    except MissingNodeError as exc:
        parser.exit(2, f"{exc}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
