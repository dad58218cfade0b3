"""Photographs the console: `python -m tests.console.pictures FOLDER`, or `make picture`."""

import sys
import tempfile
from pathlib import Path

from tests.console.kit import ConsoleServer, show, sign_in, wait
from tests.report.browser import Page, open_browser


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as home, open_browser() as browser:
        server = ConsoleServer(Path(home), "--language-model", "local:smollm2")
        server.start()
        try:
            run = server.begin("planner", "ship the release: 40 items")
            page = sign_in(browser, server)
            page.prefer(prefers_color_scheme="dark")
            photograph_run(page, run, folder / "console.png")
            photograph_chat(page, server, folder / "console-chat.png")
            photograph_script(page, server, folder / "console-script.png")
            page.prefer(prefers_color_scheme="light")
            photograph_new_run(page, folder / "console-new-run.png")
            page.resize(390, 844)
            show(page, "#/inbox")
            wait(page, "document.querySelectorAll('.entry').length >= 2")
            page.run("document.querySelector('[aria-label=Failures]').scrollIntoView()")
            page.settle()
            page.picture(folder / "console-inbox.png")
        finally:
            server.end()


def photograph_run(page: Page, run: str, file: Path) -> None:
    show(page, f"#/runs/{run}")
    count = "orchestrator.page.viewer.rollups.groups"
    wait(page, f"{count}.waiting[0] >= 3 && {count}.done[0] > 90")
    page.press("w")
    wait(page, "document.querySelector('.ask')")
    page.settle()
    page.picture(file)


def photograph_chat(page: Page, server: ConsoleServer, file: Path) -> None:
    with server.http() as http:
        session = http.post("/v1/sessions", json={"model": "companion"}).json()["id"]
        http.post(f"/v1/sessions/{session}/messages", json={"text": "Where from?"})
        server.wait_for_reply(session, "The archivist is back")
        ask = {"text": "And who wrote the first of them?"}
        http.post(f"/v1/sessions/{session}/messages", json=ask)
    show(page, f"#/chat/{session}")
    wait(page, "document.querySelectorAll('.children .child').length === 2")
    page.settle()
    page.picture(file)


def photograph_script(page: Page, server: ConsoleServer, file: Path) -> None:
    show(page, f"#/runs/{server.begin('surveyor', 'What is new in the town?')}?view=script")
    wait(page, "document.querySelector('.line.now .tag.waiting')")
    page.run("[...document.querySelectorAll('.tag.waiting')].at(-1).click()")
    wait(page, "document.querySelector('.details .ask .subject')")
    page.settle()
    page.picture(file)


def photograph_new_run(page: Page, file: Path) -> None:
    show(page, "#/new?agent=planner&goal=ship%20the%20release%3A%2012%20items")
    wait(page, "orchestrator.page.agents?.size")
    page.run(
        "{const it = orchestrator.page; it.usd.value = '0.50'; it.extra.value = '';"
        " it.attached.add([new File(['- more roots'], 'notes.md', {type: 'text/markdown'})]);"
        " it.simulation.button.click()}"
    )
    wait(page, "document.querySelector('.simulated table')")
    page.run("document.querySelector('.page').scrollTop = 90")
    page.settle()
    page.picture(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
