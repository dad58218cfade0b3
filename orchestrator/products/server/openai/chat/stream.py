"""A chat completion as a stream: the agent's text as it comes, then one end.

The response begins with the first text. So an agent that fails before that is answered with the
status of its failure, which every client understands. But clients do not wait for headers for ever:
the official one gives up after ten minutes, and proxies after about one. So a stream begins at the
latest when its first heartbeat is due. Heartbeats are comments, which clients skip.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
import trio
from starlette.responses import Response

from orchestrator.agents import Usage, raising_one_error
from orchestrator.agents.logprobs import TokenLogprob
from orchestrator.delegation import SessionRecord
from orchestrator.ports.sessions import InboundRequest
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.live.agent_stream import (
    AgentText,
    FullText,
    PartialText,
    open_agent_stream,
)
from orchestrator.products.server.live.progress import NextUpdate, open_updates
from orchestrator.products.server.openai.chat import bodies, response
from orchestrator.products.server.openai.choices import (
    begin_choices,
    total_usage,
    wait_for_answers,
    wait_for_turns,
)
from orchestrator.products.server.openai.client_tools import has_functions
from orchestrator.products.server.openai.failures import run_header, session_error
from orchestrator.products.server.openai.logprobs import chat_logprobs
from orchestrator.products.server.openai.public_ids import COMPLETION
from orchestrator.products.server.served_journal import ServedJournal
from orchestrator.products.server.session_status import answers_in_json, refusal_of
from orchestrator.products.server.transport.errors import HttpError
from orchestrator.products.server.transport.sse import EventStream, EventWriter, encode_event

DONE: Final = b"[DONE]"
SEPARATOR: Final = "\n\n"
"""The text between two messages of an agent."""
PLACE: Final = "\x00 the text \x00"
"""Stands for the text in an event that is encoded once: no name or id has these characters."""
FIRST: Final = bodies.Delta(role="assistant", content="")


Encode: TypeAlias = Callable[[bodies.Chunk], bytes | None]
"""Encodes a chunk for a protocol; None leaves it out."""


async def stream_or_wait(
    call: ApiCall,
    inbound: Sequence[InboundRequest],
    request: bodies.SampledRequest,
    *,
    include_reasoning: bool = False,
    encode: Encode = msgspec.json.encode,
) -> Response | list[SessionRecord]:
    """Begin a session for each choice; return their stream, or their sessions with all answers."""
    sessions = await begin_choices(call, inbound)
    wait = wait_for_turns(call, sessions)
    if not request.stream:
        return await wait_for_answers(call, sessions, wait) or sessions
    options = request.stream_options or bodies.StreamOptions()
    send = partial(_send_all, call.journal, sessions, options)
    # No checkpoint before the stream is called, which then owns the turns.
    return EventStream(
        partial(send, include_reasoning=include_reasoning, encode=encode),
        headers=run_header(sessions[0]),
        owned_work=wait,
        error_name="",
        begins_at_first_event=True,
    )


async def _send_all(
    journal: ServedJournal,
    sessions: Sequence[SessionRecord],
    options: bodies.StreamOptions,
    writer: EventWriter,
    *,
    include_reasoning: bool,
    encode: Encode,
) -> None:
    """Send all choices concurrently, then the end."""
    chunks = _Chunks(writer, sessions[0], encode, has_usage=options.include_usage)
    choices = [
        _ChoiceChunks(journal, it, number, chunks, include_reasoning)
        for number, it in enumerate(sessions)
    ]
    if len(choices) == 1:
        await choices[0].send_all()
    else:
        with raising_one_error():
            # Owns the choices: a failure of one ends the stream.
            async with trio.open_nursery() as nursery:
                for choice in choices:
                    nursery.start_soon(choice.send_all)
    await chunks.end(total_usage(sessions))


class _Chunks:
    """Writes the chunks of one completion, which share its id and time."""

    def __init__(
        self, writer: EventWriter, session: SessionRecord, encode: Encode, *, has_usage: bool
    ) -> None:
        self._writer = writer
        self._encode = encode
        self._has_usage = has_usage
        self._around: dict[int, list[bytes]] = {}
        """The event of a text before and after the text, by the number of the choice."""
        self._head: dict[str, Any] = {
            "id": COMPLETION.of(session),
            "created": response.created(session),
            "model": session.root.agent,
            "run_id": session.id,
        }

    async def send(self, choice: bodies.ChunkChoice) -> None:
        await self._write(self._make([choice], None))

    def hold(self, choice: bodies.ChunkChoice) -> None:
        """Send a chunk together with the next one, or when a heartbeat is due."""
        data = self._encode(self._make([choice], None))
        if data is not None:
            self._writer.hold(encode_event(data))

    async def send_text(self, number: int, text: str) -> None:
        """Send the next text of a choice. Only the text differs from one event to the next."""
        if self._encode is not msgspec.json.encode:
            choice = bodies.ChunkChoice(delta=bodies.Delta(content=text), index=number)
            await self.send(choice)
            return
        around = self._around.get(number)
        if around is None:
            choice = bodies.ChunkChoice(delta=bodies.Delta(content=PLACE), index=number)
            event = encode_event(msgspec.json.encode(self._make([choice], None)))
            around = self._around[number] = event.split(msgspec.json.encode(PLACE))
        await self._writer.write(msgspec.json.encode(text).join(around))

    async def end(self, total: Usage) -> None:
        """Send the usage of all choices, if the client asks for it, and the end."""
        if self._has_usage:
            await self._write(self._make([], bodies.chat_usage(total)))
        await self._writer.send_event(DONE)

    async def _write(self, chunk: bodies.Chunk) -> None:
        data = self._encode(chunk)
        if data is None:
            await trio.lowlevel.checkpoint()
        else:
            await self._writer.send_event(data)

    def _make(
        self, choices: list[bodies.ChunkChoice], usage: bodies.ChatUsage | None
    ) -> bodies.Chunk:
        shown = usage if self._has_usage else msgspec.UNSET
        return bodies.Chunk(**self._head, choices=choices, usage=shown)


class SentText:
    """The text of an agent's messages that a stream has sent."""

    def __init__(self, session: SessionRecord) -> None:
        self._session = session
        self._item = -1
        """The number of the agent's message that was sent last."""
        self._pieces: list[str] = []
        """The pieces of that message that were sent."""

    def begins_another(self, update: AgentText) -> bool:
        """Return whether an update begins another message after the first; raise if it may not."""
        is_another = 0 <= self._item < update.item
        if is_another and answers_in_json(self._session):
            raise _repaired()
        return is_another

    def add(self, update: AgentText) -> str:
        """Return the text of an update that was not sent before."""
        if update.item < self._item:
            return ""  # reasoning that was sent before its message, and is durable now
        if update.item != self._item:
            self._item, self._pieces = update.item, []
        text = update.text if isinstance(update, PartialText) else self._rest(update)
        if text:
            self._pieces.append(text)
        return text

    def _rest(self, full: FullText) -> str:
        """Return the part of a message that was not sent while the model wrote it."""
        text, sent = full.message.text, "".join(self._pieces)
        # Sent text cannot be taken back: if the durable message differs, all of it follows.
        return text[len(sent) :] if text.startswith(sent) else f"{SEPARATOR}{text}"


class _ChoiceChunks:
    """Sends the chunks of one choice."""

    def __init__(
        self,
        journal: ServedJournal,
        session: SessionRecord,
        number: int,
        chunks: _Chunks,
        include_reasoning: bool,
    ) -> None:
        self._journal = journal
        self._session = session
        self._number = number
        self._chunks = chunks
        self._include_reasoning = include_reasoning
        self._sent = SentText(session)

    async def send_all(self) -> None:
        """Send the agent's text and its end, or raise an error if there is no answer."""
        if self._include_reasoning:
            async with open_updates(self._journal, self._session, has_progress=True) as next_update:
                await self._send_updates(next_update)
        else:
            with open_agent_stream(self._journal, self._session) as texts:
                await self._send_updates(texts.next)
        if (error := session_error(self._session)) is not None:
            raise error
        await self._send_end()

    async def _send_updates(self, next_update: NextUpdate) -> None:
        # Sent with the first text, or when a heartbeat is due.
        self._chunks.hold(bodies.ChunkChoice(delta=FIRST, index=self._number))
        while (update := await next_update()) is not None:
            if isinstance(update, list):
                # All pieces so far in one chunk, so that progress stays close to the text.
                thought = "".join(it.text for it in update)
                await self._send_chunk(bodies.Delta(reasoning_content=thought))
            else:
                await self._send_text(update)

    async def _send_text(self, update: AgentText) -> None:
        separator = SEPARATOR if self._sent.begins_another(update) else ""
        if text := self._sent.add(update):
            await self._chunks.send_text(self._number, f"{separator}{text}")
        else:
            await trio.lowlevel.checkpoint()
        if isinstance(update, FullText) and update.message.logprobs:
            await self._send_logprobs(update.message.logprobs)

    async def _send_end(self) -> None:
        if calls := response.calls_of(self._session):
            is_older = has_functions(self._session)
            delta = (
                bodies.Delta(function_call=response.function_of(calls))
                if is_older
                else bodies.Delta(tool_calls=[*map(_call_delta, range(len(calls)), calls)])
            )
            await self._send_chunk(delta)
        if refusal := refusal_of(self._session):
            await self._send_chunk(bodies.Delta(refusal=refusal))
        await self._send_chunk(bodies.Delta(), response.finish_of(self._session))

    async def _send_logprobs(self, tokens: Sequence[TokenLogprob]) -> None:
        await self._chunks.send(
            bodies.ChunkChoice(
                delta=bodies.Delta(content=""), index=self._number, logprobs=chat_logprobs(tokens)
            )
        )

    async def _send_chunk(self, delta: bodies.Delta, finish: bodies.Finish | None = None) -> None:
        await self._chunks.send(
            bodies.ChunkChoice(delta=delta, finish_reason=finish, index=self._number)
        )


def _call_delta(index: int, call: bodies.Call) -> bodies.CallDelta:
    if isinstance(call, bodies.CustomCall):
        return bodies.CallDelta(index=index, id=call.id, type="custom", custom=call.custom)
    return bodies.CallDelta(index=index, id=call.id, type="function", function=call.function)


def _repaired() -> HttpError:
    return HttpError(
        500,
        "the answer did not fit its schema, and was repaired after a part of it had been sent;"
        " the run has the repaired answer; a request without 'stream' would return it",
        code="output_repaired",
    )
