"""A server process, and a browser that is signed in to its console."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import httpx2

from orchestrator.products.server.keys.changes import add_key
from orchestrator.products.server.keys.file import FILE as KEYS
from orchestrator.products.server.keys.key import ORDINARY, Scope
from tests.report.browser import Browser, Page

ROOT: Final = Path(__file__).parent.parent.parent
TEAM: Final = ROOT / "tests" / "console" / "team.py"
PATIENCE: Final = 30


class ConsoleServer:
    """`orchestrator serve`, which can be killed and started again at the same address."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        command: str = "serve",
        team: Path = TEAM,
        **environ: str,
    ) -> None:
        self.folder = folder
        self.journal = folder / "journal.db"
        self.port = 0
        self.link = ""
        """Signs one browser in, once."""
        self.approval_code = ""
        """Lets a browser that is signed in approve."""
        self.token = ""
        """The token of a key of another person."""
        self._arguments = arguments
        self._command = command
        self._team = team
        kept = ("PATH", "HOME", "LANG", "TMPDIR")
        self.environ = {
            **{name: os.environ[name] for name in kept if name in os.environ},
            "PYTHONPATH": str(ROOT),
            **environ,
        }
        """The environment of the server and of commands beside it."""
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and return when it has printed its link."""
        if not self.token:
            file = self.folder / KEYS
            scopes = {*ORDINARY, Scope.APPROVE}
            _, self.token = add_key(file, "other", owner="default", now=0, scopes=scopes)
        with (self.folder / "stderr.txt").open("ab") as errors:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "orchestrator", self._command),
                    str(self._team),
                    *("--port", str(self.port), "--journal", str(self.journal)),
                    *self._arguments,
                ],
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=self.folder,
                env=self.environ,
                text=True,
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("approval code: "):
                self.approval_code = line.split()[2]
            if line.startswith("console: "):
                self.link = line.split()[1]
                break
        else:
            raise AssertionError((self.folder / "stderr.txt").read_text())
        self.port = int(self.link.split("/")[2].rpartition(":")[2])

    def end(self, number: int = signal.SIGKILL) -> None:
        """End it as a crash does."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    def http(self) -> httpx2.Client:
        headers = {"authorization": f"Bearer {self.token}"}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=PATIENCE)

    def begin(self, agent: str, goal: str = "go") -> str:
        """Begin a run, and return its id."""
        with self.http() as http:
            answer = http.post("/v1/runs", json={"agent": agent, "input": goal})
        assert answer.status_code == 202, answer.text
        id_: str = answer.json()["id"]
        return id_

    def cancel(self, run: str) -> None:
        with self.http() as http:
            assert http.post(f"/v1/runs/{run}/cancel").status_code == 200

    def wait_for_reply(self, session: str, words: str) -> None:
        """Wait until a reply with these words is in the inbox of a conversation."""
        with self.http() as http, http.stream("GET", f"/v1/sessions/{session}/events") as events:
            for line in events.iter_lines():
                if line.startswith("data: ") and "TurnEnded" in line and words in line:
                    return

    def approvals(self, run: str) -> list[str]:
        """Return the ids of what waits for an answer."""
        with self.http() as http:
            found = http.get("/v1/approvals").json()["data"]
        return [it["id"] for it in found if it["run"] == run]

    def answer(self, approval: str, verdict: str) -> httpx2.Response:
        """Answer as another person."""
        with self.http() as http:
            return http.post(f"/v1/approvals/{approval}", json={"answer": verdict})


def wait(page: Page, condition: str) -> None:
    """Wait until an expression is true in a page."""
    page.run(
        "new Promise((done, fail) => {const begun = performance.now();"
        f"const look = () => {{let found; try {{ found = ({condition}); }} catch {{}}"
        " if (found) done(true);"
        f" else if (performance.now() - begun > {PATIENCE * 900}) "
        "fail(new Error('it never became true; the page says: '"
        " + document.body.innerText.slice(0, 2000)));"
        " else setTimeout(look, 20)};"
        " look()})"
    )


def pressed(page: Page, words: str) -> None:
    """Press the first button with these words that can be pressed."""
    found = (
        "[...document.querySelectorAll('button')]"
        f".find(it => it.innerText === {words!r} && !it.disabled)"
    )
    wait(page, found)
    page.run(f"({found}).click()")


def look(browser: Browser, server: ConsoleServer, **size: int) -> Page:
    """Open the console by the one-time link: the page can look and run."""
    page = browser.open(server.link, **size)
    wait(page, "document.querySelector('.shell')")
    return page


def sign_in(browser: Browser, server: ConsoleServer, **size: int) -> Page:
    """Open the console by the one-time link, and unlock approvals."""
    page = look(browser, server, **size)
    page.run("document.querySelector('.lock').click()")
    enter_code(page, server.approval_code)
    wait(page, "!document.querySelector('.lock, dialog')")
    return page


def enter_code(page: Page, code: str) -> None:
    wait(page, "document.querySelector('#approval-code')")
    page.run(f"document.querySelector('#approval-code').value = {code!r}")
    pressed(page, "Unlock")


def show(page: Page, address: str) -> None:
    page.run(f"location.hash = {address!r}")
    page.settle()
