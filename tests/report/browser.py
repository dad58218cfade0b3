"""A headless Chromium, driven over a pipe by its own protocol: nothing to install but Debian's
package, and no port that another process could open.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

CHROMIUM: Final = ("chromium", "chromium-browser", "google-chrome")
PATIENCE: Final = 30
"""Seconds that a page may take for anything that is asked of it."""
KEYS: Final = {
    "Enter": 13,
    "Escape": 27,
    "Tab": 9,
    " ": 32,
    "PageUp": 33,
    "PageDown": 34,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}


def chromium() -> str | None:
    """Return where Chromium is on this machine."""
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


class PageError(Exception):
    """A request to a page failed in it."""


class Browser:
    """A running Chromium. `open_browser` makes it."""

    def __init__(self, to: int, from_: int) -> None:
        self._to = to
        self._from = from_
        self._last_id = 0
        self._rest = b""
        self._listeners: dict[str, Callable[[str, Any], None]] = {}

    def call(self, method: str, params: Mapping[str, Any] | None = None, session: str = "") -> Any:
        """Send a command, and return its result; meanwhile events go to their listeners."""
        sent = self.send(method, params, session)
        while (message := self.receive()).get("id") != sent:
            pass
        if "error" in message:
            raise PageError(f"{method}: {message['error']['message']}")
        return message["result"]

    def send(self, method: str, params: Mapping[str, Any] | None = None, session: str = "") -> int:
        """Send a command without waiting for what comes of it, and return its number."""
        self._last_id += 1
        command = {"id": self._last_id, "method": method, "params": params or {}}
        if session:
            command["sessionId"] = session
        os.write(self._to, json.dumps(command).encode() + b"\0")
        return self._last_id

    def receive(self) -> Any:
        """Wait for the next message, and give an event to the listener of its page."""
        message = self._next()
        listener = self._listeners.get(message.get("sessionId", ""))
        if listener is not None and "method" in message:
            listener(message["method"], message["params"])
        return message

    def _next(self) -> Any:
        while b"\0" not in self._rest:
            if not select.select([self._from], [], [], PATIENCE)[0]:
                raise PageError(f"Chromium has sent nothing for {PATIENCE} seconds")
            more = os.read(self._from, 1 << 20)
            if not more:
                raise PageError("Chromium is gone")
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(self, where: Path | str, *, width: int = 1440, height: int = 860) -> "Page":
        """Open a file, or a URL, in a window of its own."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        how = {"targetId": target, "flatten": True}
        session = self.call("Target.attachToTarget", how)["sessionId"]
        page = Page(self, session, target)
        self._listeners[session] = page.receive
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.go(where)
        return page


class Page:
    """One window: what people see, press and type there."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target
        self.requests: list[str] = []
        self.complaints: list[str] = []
        """The warnings and errors in the console."""
        self.is_loaded = False
        self._frames: list[tuple[str, str]] = []
        """The sessions and targets of its frames that are pages of their own."""

    def call(self, method: str, **params: Any) -> Any:
        return self._browser.call(method, params, self._session)

    def receive(self, method: str, params: Any) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self.is_loaded = True
        elif method == "Target.attachedToTarget":
            self._frames.append((params["sessionId"], params["targetInfo"]["targetId"]))
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" or (
            method == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning"}
        ):
            self.complaints.append(str(params))

    def go(self, where: Path | str) -> None:
        self.is_loaded = False
        url = where if isinstance(where, str) else where.as_uri()
        self.call("Page.navigate", url=url)
        while not self.is_loaded:
            self._browser.receive()

    def run(self, code: str) -> Any:
        """Return what an expression gives; a promise is waited for."""
        answer = self.call(
            "Runtime.evaluate",
            expression=code,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
            timeout=1000 * PATIENCE,
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise PageError(details.get("exception", {}).get("description", details))
        return answer["result"].get("value")

    def settle(self) -> None:
        """Wait until the changes are drawn, or the page leads to another one."""
        drawn = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        try:
            self.run(drawn)
        except PageError as exc:
            if "navigated" not in str(exc):
                raise

    def press(self, *keys: str) -> None:
        """Press keys as quickly as a machine can."""
        for key in keys:
            shifted = key.startswith("Shift+")
            name = key.removeprefix("Shift+")
            text = {"Enter": "\r"}.get(name, name if len(name) == 1 else "")
            code = KEYS.get(name, ord(name.upper()) if len(name) == 1 else 0)
            modifiers = 8 if shifted else 0
            how = {"key": name, "windowsVirtualKeyCode": code, "modifiers": modifiers, "text": text}
            self.call("Input.dispatchKeyEvent", type="keyDown", **how)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=name)
        self.settle()

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)
        self.settle()

    def click(self, selector: str) -> None:
        where = self.run(
            f"(() => {{const box = document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]})()"
        )
        self.click_at(*where)

    def click_at(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        steps = [("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)]
        for kind, (x, y) in steps:
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=x,
                y=y,
                button="left",
                buttons=1,
                clickCount=1,
            )
        self.settle()

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, **features: str) -> None:
        """Tell the page what its reader prefers, such as `prefers_color_scheme="dark"`."""
        media = [
            {"name": name.replace("_", "-"), "value": value} for name, value in features.items()
        ]
        self.call("Emulation.setEmulatedMedia", features=media)
        self.settle()

    def picture(self, file: Path) -> None:
        data = self.call("Page.captureScreenshot", format="png")["data"]
        file.write_bytes(base64.b64decode(data))

    def pixel(self, x: float, y: float) -> tuple[int, int, int]:
        """Return the colour of one point of what is on the screen."""
        clip = {"x": int(x), "y": int(y), "width": 1, "height": 1, "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", clip=clip)["data"]
        red, green, blue = self.run(
            "createImageBitmap(new Blob([Uint8Array.from("
            f"atob('{shot}'), it => it.charCodeAt(0))])).then(image => {{"
            "const canvas = new OffscreenCanvas(1, 1);"
            "const pen = canvas.getContext('2d');"
            "pen.drawImage(image, 0, 0);"
            "return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3)})"
        )
        return red, green, blue

    def crash(self) -> None:
        """End its process, as a fault of the browser does."""
        self.call("Inspector.enable")
        self._browser.send("Page.crash", session=self._session)
        crashed = {"method": "Inspector.targetCrashed", "sessionId": self._session}
        # The process of another page may crash as well.
        while not crashed.items() <= self._browser.receive().items():
            pass

    def frame(self) -> "Page":
        """Wait for the frame of this page that has no origin, and so is a page of its own.

        This page announces it. Other pages of the browser may have frames, too, and a closed page
        keeps its frame for a moment.
        """
        how = {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": True}
        self.call("Target.setAutoAttach", **how)
        while not self._frames:
            self._browser.receive()
        [(session, target)] = self._frames
        return Page(self._browser, session, target)

    def close(self) -> None:
        self._browser.call("Target.closeTarget", {"targetId": self._target})


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start a Chromium with nothing in it, and end it."""
    program = chromium()
    assert program is not None, "make test installs it"
    hears, to = os.pipe()
    from_, says = os.pipe()
    options = [
        "--headless=new",
        "--no-sandbox",  # root, in a container; it only ever opens our own files
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--hide-scrollbars=false",
        "--remote-debugging-pipe",
    ]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # Chromium listens at 3 and answers at 4.
        shell = f'exec "$0" "$@" 3<&{hears} 4>&{says}'
        with subprocess.Popen(
            ["bash", "-c", shell, program, *options, f"--user-data-dir={profile}"],
            pass_fds=(hears, says),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            os.close(hears)
            os.close(says)
            browser = Browser(to, from_)
            try:
                yield browser
            finally:
                browser.call("Browser.close")
                process.wait(10)
                os.close(to)
                os.close(from_)
