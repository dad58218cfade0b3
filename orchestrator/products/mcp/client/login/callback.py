"""Where the browser comes back to: a page on this machine that takes the code, once.

It listens on loopback alone. It takes what belongs to the link that was shown, by its `state`: a
page of others that guesses the address can neither bring a code nor end the wait.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from secrets import compare_digest
from typing import Final
from urllib.parse import parse_qs, urlsplit

import h11
import trio
from mcp.shared.auth import AuthorizationCodeResult

from orchestrator.agents import raising_one_error
from orchestrator.agents.redaction.redactor import redacted
from orchestrator.delegation import printable
from orchestrator.ports.errors import LoginError

HOST: Final = "127.0.0.1"
PATH: Final = "/callback"
READ_SECONDS: Final = 10.0
"""How long a browser may take for its request."""
MOST_BYTES: Final = 16_384
_PAGE: Final = (
    "<!doctype html><meta charset=utf-8><title>{title}</title>"
    "<body style='font:16px system-ui;margin:15vh auto;max-width:30em'><h1>{title}</h1><p>{text}"
)


class Callback:
    """Waits for a browser, for one link after the other."""

    def __init__(self, port: int) -> None:
        self.url = f"http://{HOST}:{port}{PATH}"
        self.port = port
        self._state = ""
        self._query: dict[str, str] | None = None
        self._arrived = trio.Event()

    def expect(self, link: str) -> None:
        """Wait for the answer to this link from now on, and for no other."""
        self._state = _query_of(link).get("state", "")
        self._query = None
        self._arrived = trio.Event()

    async def wait(self) -> AuthorizationCodeResult:
        """Wait until a person has agreed, and return the code; raise `LoginError` if refused."""
        await self._arrived.wait()
        query = self._query or {}
        if error := query.get("error"):
            about = query.get("error_description", "")
            said = printable(redacted(f"{error}{f' ({about})' if about else ''}"))[:300]
            raise LoginError(f"the authorization server refused the login: {said}")
        return AuthorizationCodeResult(
            code=query.get("code", ""), state=query.get("state"), iss=query.get("iss")
        )

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer one connection of a browser."""
        with trio.move_on_after(READ_SECONDS):
            async with stream:
                try:
                    await self._answer(stream)
                except (trio.BrokenResourceError, h11.RemoteProtocolError):
                    await trio.lowlevel.checkpoint()

    async def _answer(self, stream: trio.SocketStream) -> None:
        await trio.lowlevel.checkpoint()
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_BYTES)
        while (event := connection.next_event()) is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(MOST_BYTES))
        if not isinstance(event, h11.Request):
            return
        target = urlsplit(event.target.decode("ascii", "replace"))
        query = _query_of(target.query)
        is_ours = target.path == PATH and bool({"code", "error"} & query.keys())
        is_right = compare_digest(query.get("state", "").encode(), self._state.encode()) and bool(
            self._state
        )
        if event.method != b"GET" or not is_ours or not is_right:
            status, title, text = 404, "Not found", "This page waits for a login."
        else:
            if self._query is None:
                self._query = query
                self._arrived.set()
            status, title = 200, "Thank you"
            text = "The orchestrator goes on. You can close this window."
        body = _PAGE.format(title=title, text=text).encode()
        headers = [
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Length", str(len(body))),
            # The code is in the address.
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
        ]
        head = connection.send(h11.Response(status_code=status, headers=headers))
        await stream.send_all((head or b"") + (connection.send(h11.Data(data=body)) or b""))


def _query_of(link: str) -> dict[str, str]:
    found = parse_qs(urlsplit(link).query if "://" in link else link)
    return {name: values[0] for name, values in found.items()}


@asynccontextmanager
async def open_callback(port: int = 0, *, or_another: bool = False) -> AsyncGenerator[Callback]:
    """Listen for a browser in the block, at a port or another one, or raise `LoginError`."""
    try:
        listeners = await trio.open_tcp_listeners(port, host=HOST)
    except OSError as exc:
        if not or_another:
            raise LoginError(
                f"port {port} cannot be listened on ({exc.strerror}): say another one with --port"
            ) from exc
        listeners = await trio.open_tcp_listeners(0, host=HOST)
    callback = Callback(listeners[0].socket.getsockname()[1])
    with raising_one_error():
        async with trio.open_nursery() as connections:
            await connections.start(trio.serve_listeners, callback.serve, listeners)
            yield callback
            connections.cancel_scope.cancel(reason="the login has ended")
