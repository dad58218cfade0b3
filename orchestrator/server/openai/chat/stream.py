"""A chat completion as a stream: what the agent says while it says it, and one end.

The response begins with the first thing that there is to say. So an agent that fails before that
is answered with the status of its failure, which every client understands. But nobody waits for
ever for headers: the official client gives up after ten minutes, and proxies after one or so. So a
stream begins at the latest when it would have to show that somebody is still here. From then on
there are heartbeats, which are comments, and clients skip those.
"""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec
import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agents import raising_one_error
from delegation import DelegationError, SessionRecord
from orchestrator.errors import OrchestratorError
from orchestrator.server.live.agent_stream import (
    AgentStream,
    AgentText,
    FullText,
    PartialText,
    open_agent_stream,
)
from orchestrator.server.openai.chat.bodies import (
    CallDelta,
    ChatUsage,
    Chunk,
    ChunkChoice,
    Delta,
    Finish,
    chat_usage,
)
from orchestrator.server.openai.chat.response import calls_of, completion_id, created
from orchestrator.server.openai.failures import run_header, session_error
from orchestrator.server.state import ServerState
from orchestrator.server.transport.errors import ErrorBody, HttpError, to_http_error
from orchestrator.server.transport.sse import (
    HEADERS,
    HEARTBEAT_SECONDS,
    SSE_MEDIA_TYPE,
    EventWriter,
    cancel_on_disconnect,
)

DONE: Final = b"[DONE]"
PAUSE: Final = "\n\n"
"""Stands between two things that an agent says."""
NOTHING_YET: Final = PartialText(0, 0, "")


class ChatStream(Response):
    """The response to a request that wants a stream. It owns the turn of its session."""

    media_type = SSE_MEDIA_TYPE

    def __init__(
        self,
        server: ServerState,
        session: SessionRecord,
        *,
        is_new: bool,
        include_usage: bool,
    ) -> None:
        """Respond with what a session says.

        Args:
            office: where.
            session: whose.
            is_new: its turn is taken here, and cancelled if the reader leaves.
            tells_usage: the last chunk says what was used.
        """
        super().__init__(headers={**HEADERS, **run_header(session)})
        del self.headers["content-length"]
        self._server = server
        self._session = session
        self._is_new = is_new
        self._include_usage = include_usage
        self._failure: HttpError | None = None
        """What went wrong in the house, and not with the agent."""
        self._item = -1
        """Which of the things that the agent says was told last."""
        self._sent: list[str] = []
        """What was told of it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with (
            # Whoever has stopped reading is let go, as if it had left.
            suppress(trio.TooSlowError),
            open_agent_stream(self._server, self._session) as speech,
            raising_one_error(),
        ):
            # Owns the turn: when this is left, nothing of it runs any more.
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel_on_disconnect, receive, nursery.cancel_scope)
                talking = trio.CancelScope()
                if self._is_new:
                    nursery.start_soon(self._take_turn, talking)
                outlet: EventWriter | None = None
                with talking, self._capture_failure():
                    heard = await _first(speech)
                    while heard is not None:
                        outlet = outlet or await self._begin(send, nursery)
                        await self._send_text(outlet, heard)
                        heard = await speech.next()
                problem = self._failure or session_error(self._session)
                if problem is not None and outlet is None:
                    await problem.response()(scope, receive, send)
                else:
                    outlet = outlet or await self._begin(send, nursery)
                    await self._end(outlet, problem)
                    await send({"type": "http.response.body", "more_body": False})
                nursery.cancel_scope.cancel(reason="all is said")
        # Not before: until its turn is taken, a session has nobody who would end it.
        await trio.lowlevel.checkpoint()

    async def _take_turn(self, send_scope: trio.CancelScope) -> None:
        with self._capture_failure():
            await self._server.door.run_turn(self._session)
        if self._failure is not None:
            # Then the turn has no outcome that would say so.
            send_scope.cancel(reason="the turn could not be taken to its end")
        await trio.lowlevel.checkpoint()

    @contextmanager
    def _capture_failure(self) -> Generator[None]:
        try:
            yield
        except (OrchestratorError, DelegationError) as exc:
            self._failure = to_http_error(exc, is_stopping=self._server.is_stopping)

    async def _begin(self, send: Send, nursery: trio.Nursery) -> EventWriter:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        outlet = EventWriter(send)
        nursery.start_soon(outlet.heartbeat_forever)
        await self._send_chunk(outlet, Delta(role="assistant", content=""))
        return outlet

    async def _send_text(self, writer: EventWriter, update: AgentText) -> None:
        if update.item != self._item:
            pause = PAUSE if 0 <= self._item < update.item else ""
            self._item, self._sent = update.item, []
        else:
            pause = ""
        text = update.text if isinstance(update, PartialText) else self._rest(update)
        if text:
            self._sent.append(text)
            await self._send_chunk(writer, Delta(content=f"{pause}{text}"))
        else:
            await trio.lowlevel.checkpoint()

    def _rest(self, whole: FullText) -> str:
        """Return what is left to be told of something that the agent has said."""
        text, told = whole.message.text, "".join(self._sent)
        # What was told is told. If it was not what is kept, that is told as well.
        return text[len(told) :] if text.startswith(told) else f"{PAUSE}{text}"

    async def _end(self, writer: EventWriter, problem: HttpError | None) -> None:
        """Send the one event that ends every stream, and what belongs to it."""
        if problem is not None:
            await writer.send_event(msgspec.json.encode(ErrorBody(problem.problem)))
            return
        calls = [
            CallDelta(index=index, id=call.id, function=call.function)
            for index, call in enumerate(calls_of(self._session))
        ]
        if calls:
            await self._send_chunk(writer, Delta(tool_calls=calls))
        await self._send_chunk(writer, Delta(), "tool_calls" if calls else "stop")
        if self._include_usage:
            total = chat_usage(self._session.tree.total)
            await writer.send_event(msgspec.json.encode(self._make_chunk([], total)))
        await writer.send_event(DONE)

    async def _send_chunk(
        self, writer: EventWriter, delta: Delta, finish: Finish | None = None
    ) -> None:
        chunk = self._make_chunk([ChunkChoice(delta=delta, finish_reason=finish)])
        await writer.send_event(msgspec.json.encode(chunk))

    def _make_chunk(
        self, choices: list[ChunkChoice], usage: ChatUsage | None = None
    ) -> Chunk:
        return Chunk(
            id=completion_id(self._session),
            created=created(self._session),
            model=self._session.root.agent,
            choices=choices,
            run_id=self._session.id,
            usage=usage if self._include_usage else msgspec.UNSET,
        )


async def _first(agent_stream: AgentStream) -> AgentText | None:
    """Return the first thing to say, and after a while that there is nothing yet."""
    with trio.move_on_after(HEARTBEAT_SECONDS):
        return await agent_stream.next()
    return NOTHING_YET
