"""Models for the tests of chat completions, and the least that one has to say to them."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import attrs
import msgspec
import trio

from agents import (
    AssistantMessage,
    ModelError,
    ModelRequest,
    TextDelta,
    ToolCall,
    Usage,
)
from orchestrator.server.app import application
from orchestrator.server.state import ServerState

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
USAGE = Usage(
    calls=1, input_tokens=10, output_tokens=4, cached_tokens=3, reasoning_tokens=2
)

Said: TypeAlias = str | trio.Event | ModelError


class Talking:
    """A model that says one thing after another, and waits or fails where it is told to."""

    name = "talking"

    def __init__(self, *said: Said) -> None:
        self._said = said
        self.was_asked = trio.Event()

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        self.was_asked.set()
        text = ""
        for it in self._said:
            match it:
                case str():
                    text += it
                    request.tell(TextDelta(it))
                    await trio.lowlevel.checkpoint()
                case trio.Event():
                    await it.wait()
                case ModelError():
                    raise it
        return AssistantMessage(text, usage=USAGE, model=self.name)


Answer: TypeAlias = str | Sequence[ToolCall]


class Listening:
    """A model that keeps what it was asked, and answers by that."""

    name = "listening"

    def __init__(self, answer: Callable[[ModelRequest], Answer]) -> None:
        self._answer = answer
        self.heard: list[ModelRequest] = []

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        # A copy: the transcript goes on.
        self.heard.append(attrs.evolve(request, transcript=[*request.transcript]))
        said = self._answer(request)
        if isinstance(said, str):
            return AssistantMessage(said, usage=USAGE, model=self.name)
        return AssistantMessage("", tuple(said), usage=USAGE, model=self.name)


class Client:
    """Whoever asks the application itself, without a socket, and may leave."""

    def __init__(
        self, office: ServerState, body: object, *, reads: bool = True, **headers: str
    ) -> None:
        self._reads = reads
        self._app = application(office)
        self._body = msgspec.json.encode(body)
        self._headers = {
            "host": "localhost",
            "authorization": f"Bearer {office.settings.token}",
            "content-type": "application/json",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        self._is_read = False
        self.left = trio.Event()
        self.sent = b""
        """All that was sent of the body."""
        self.status: int | None = None
        self.answered = trio.Event()
        """Something of the body was sent."""

    async def ask(self) -> None:
        """Return when the application has."""
        await self._app(
            {
                "type": "http",
                "http_version": "1.1",
                "method": "POST",
                "path": "/v1/chat/completions",
                "raw_path": b"/v1/chat/completions",
                "query_string": b"",
                "scheme": "http",
                "headers": [
                    (name.encode(), value.encode())
                    for name, value in self._headers.items()
                ],
                "server": ("localhost", 80),
                "client": ("localhost", 1),
            },
            self._receive,
            self._send,
        )

    async def _receive(self) -> Any:
        await trio.lowlevel.checkpoint()
        if self._is_read:
            await self.left.wait()
            return {"type": "http.disconnect"}
        self._is_read = True
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def _send(self, message: Any) -> None:
        await trio.lowlevel.checkpoint()
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif not self._reads:
            await trio.sleep_forever()
        elif message.get("body"):
            self.sent += message["body"]
            self.answered.set()
