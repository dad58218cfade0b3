"""Models for the tests of chat completions, and the least that one has to say to them."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
import trio

from orchestrator.agents import AssistantMessage, ModelRequest, ToolCall, Usage
from orchestrator.products.server.app import application
from orchestrator.products.server.state import ServerState
from orchestrator.testing import SpyModel, StreamingModel
from orchestrator.testing.models import Piece
from tests.kit import FunctionModel

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
USAGE = Usage(calls=1, input_tokens=10, output_tokens=4, cached_tokens=3, reasoning_tokens=2)

Answer: TypeAlias = str | Sequence[ToolCall]


def streaming(*pieces: Piece) -> StreamingModel:
    """Return a model that streams the same pieces for every call."""
    return StreamingModel.always(*pieces, usage=USAGE)


def answering(answer: Callable[[ModelRequest], Answer]) -> SpyModel:
    """Return a model that answers by the request, and keeps the requests."""

    async def answer_with_usage(request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        result = answer(request)
        text, calls = (result, ()) if isinstance(result, str) else ("", tuple(result))
        return AssistantMessage(text, calls, usage=USAGE)

    return SpyModel(FunctionModel(answer_with_usage))


class Client:
    """A client of the ASGI application, without a socket, which may disconnect."""

    def __init__(
        self, state: ServerState, body: object, *, reads: bool = True, **headers: str
    ) -> None:
        self._reads = reads
        self._app = application(state)
        self._body = msgspec.json.encode(body)
        self._headers = {
            "host": "localhost",
            "authorization": f"Bearer {state.settings.token}",
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
                    (name.encode(), value.encode()) for name, value in self._headers.items()
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
