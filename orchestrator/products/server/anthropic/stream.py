"""A message as a stream of events: the blocks of its content as they come, then one end.

It begins and fails as the stream of a chat completion does.
"""

from functools import partial

import msgspec
from starlette.responses import Response

from orchestrator.delegation import SessionRecord
from orchestrator.products.server.anthropic import bodies, response
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.live.agent_stream import AgentText, PartialText, open_agent_stream
from orchestrator.products.server.openai.chat.stream import SentText
from orchestrator.products.server.openai.choices import wait_for_turns
from orchestrator.products.server.openai.client_content import TextPart
from orchestrator.products.server.openai.failures import run_header, session_error
from orchestrator.products.server.openai.public_ids import MESSAGE
from orchestrator.products.server.served_journal import ServedJournal
from orchestrator.products.server.transport.errors import HttpError
from orchestrator.products.server.transport.sse import EventStream, EventWriter, encode_event


def message_stream(call: ApiCall, session: SessionRecord) -> Response:
    """Return the stream of a session that was just begun; it owns the turn."""
    return EventStream(
        partial(_send_all, call.journal, session),
        headers=run_header(session),
        owned_work=wait_for_turns(call, [session]),
        encode_error=HttpError.anthropic_body,
        begins_at_first_event=True,
    )


async def _send_all(journal: ServedJournal, session: SessionRecord, writer: EventWriter) -> None:
    """Send the agent's texts, calls and end, or raise an error if there is no answer."""
    events = _Events(writer, session)
    with open_agent_stream(journal, session) as texts:
        events.begin()
        while (update := await texts.next()) is not None:
            await events.send_text(update)
    if (error := session_error(session)) is not None:
        raise error
    await events.end()


class _Events:
    """Sends the events of one message."""

    def __init__(self, writer: EventWriter, session: SessionRecord) -> None:
        self._writer = writer
        self._session = session
        self._sent = SentText(session)
        self._index = -1
        """The number of the last block."""
        self._open: bodies.AnswerBlock | None = None
        """That block, until it ends."""

    def begin(self) -> None:
        """Send the first event with the next one, or when a heartbeat is due."""
        message = bodies.AnswerMessage(
            id=MESSAGE.of(self._session),
            model=self._session.root.agent,
            content=[],
            stop_reason=None,
            usage=bodies.MessageUsage(),
        )
        self._writer.hold(_encoded(bodies.MessageStart(message)))

    async def send_text(self, update: AgentText) -> None:
        is_thought = (
            update.is_reasoning if isinstance(update, PartialText) else update.message.is_reasoning
        )
        if self._sent.begins_another(update):
            await self._stop_block()
        text = self._sent.add(update)
        if not text:
            return  # noqa: ASYNC910 (waiting for updates checkpoints)
        if self._open is None:
            await self._start_block(
                bodies.ThinkingBlock(thinking="") if is_thought else TextPart("")
            )
        await self._change(bodies.ThinkingDelta(text) if is_thought else bodies.TextDelta(text))

    async def end(self) -> None:
        """Send the calls for the client, and the end."""
        await self._stop_block()
        for block in response.end_of(self._session):
            if isinstance(block, bodies.ToolUseBlock):
                await self._start_block(msgspec.structs.replace(block, input={}))
                arguments = msgspec.json.encode(block.input).decode()
                await self._change(bodies.InputDelta(arguments))
            else:
                await self._start_block(TextPart(""))
                await self._change(bodies.TextDelta(block.text))
            await self._stop_block()
        reason = bodies.MessageEnd(stop_reason=response.stop_reason_of(self._session))
        usage = bodies.message_usage(self._session.tree.total)
        await self._send(bodies.MessageChange(delta=reason, usage=usage))
        await self._send(bodies.MessageStop())

    async def _start_block(self, block: bodies.AnswerBlock) -> None:
        self._index += 1
        self._open = block
        await self._send(bodies.BlockStart(self._index, block))

    async def _change(self, delta: bodies.BlockDelta) -> None:
        await self._send(bodies.BlockChange(self._index, delta))

    async def _stop_block(self) -> None:
        if self._open is None:
            return  # noqa: ASYNC910 (sending checkpoints)
        if isinstance(self._open, bodies.ThinkingBlock):
            await self._change(bodies.SignatureDelta(self._session.id))
        self._open = None
        await self._send(bodies.BlockStop(self._index))

    async def _send(self, event: bodies.Event) -> None:
        await self._writer.write(_encoded(event))


def _encoded(event: bodies.Event) -> bytes:
    name = type(event).__struct_config__.tag
    assert isinstance(name, str), "each event has its name as tag"
    return encode_event(msgspec.json.encode(event), name=name)
