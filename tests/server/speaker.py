"""A model that speaks piece by piece, when a test lets it, and remembers what it was asked."""

from typing import TypeAlias

import attrs
import trio

from agents import (
    AssistantMessage,
    CallId,
    ModelRequest,
    ScriptExhaustedError,
    TextDelta,
    ToolCall,
    Usage,
)


@attrs.frozen(eq=False)
class Lingering:
    """Works until it is cancelled, and then still has something to do."""

    cancelled: trio.Event = attrs.Factory(trio.Event)
    may_end: trio.Event = attrs.Factory(trio.Event)

    async def work(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled.set()
            with trio.move_on_after(10, shield=True):
                await self.may_end.wait()


Piece: TypeAlias = str | trio.Event | Lingering | ToolCall | Exception
"""Something it says, waits for, or calls, or how it fails."""


@attrs.define
class Speaker:
    """Gives one answer after the other, each in pieces."""

    answers: list[tuple[Piece, ...]]
    name: str = "speaker"
    requests: list[ModelRequest] = attrs.Factory(list[ModelRequest])
    _news: trio.Event = attrs.Factory(trio.Event)

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        # The transcript grows while it speaks.
        self.requests.append(attrs.evolve(request, transcript=list(request.transcript)))
        self._news.set()
        self._news = trio.Event()
        if len(self.requests) > len(self.answers):
            raise ScriptExhaustedError(len(self.answers))
        text = ""
        calls: list[ToolCall] = []
        for piece in self.answers[len(self.requests) - 1]:
            match piece:
                case str():
                    text += piece
                    request.tell(TextDelta(piece))
                case trio.Event():
                    await piece.wait()
                case Lingering():
                    await piece.work()
                case ToolCall():
                    place = CallId(f"call_{len(request.transcript)}_{len(calls)}")
                    calls.append(attrs.evolve(piece, id=piece.id or place))
                case Exception():
                    raise piece
        await trio.lowlevel.checkpoint()
        used = Usage(calls=1, input_tokens=10, output_tokens=1)
        return AssistantMessage(text, tuple(calls), used, self.name)

    async def wait_asked(self, times: int) -> None:
        """Wait until it was asked so often."""
        await trio.lowlevel.checkpoint()
        while len(self.requests) < times:
            await self._news.wait()

    @property
    def heard(self) -> list[str]:
        """What it was told when it was last asked, and what it had said."""
        return [said.text for said in self.requests[-1].transcript]


def speaker(*answers: Piece | tuple[Piece, ...]) -> Speaker:
    return Speaker([it if isinstance(it, tuple) else (it,) for it in answers])
