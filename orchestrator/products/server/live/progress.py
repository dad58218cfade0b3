"""The reasoning and the delegations of a session's agent, as lines of text while it works.

A client that asks for progress sees a joined team work before there is an answer. Reasoning is
redacted as it comes, like the text of an answer; a delegation is shown when its fact is durable.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from typing import Final, TypeAlias

import msgspec
import trio

from orchestrator.agents import ModelEvent, ReasoningDelta, TextDelta, raising_one_error
from orchestrator.agents.redaction.streamed_text import StreamRedactor
from orchestrator.delegation import Encoded, SessionRecord, TaskId, TaskRequest
from orchestrator.delegation.events import Entry, TaskRequested, TaskSettled
from orchestrator.products.server.live.agent_stream import AgentText, open_agent_stream
from orchestrator.products.server.served_journal import ServedJournal

MAX_BUFFERED: Final = 1_000
"""The most pieces that wait for a slow reader before it misses some."""
LONGEST_GOAL: Final = 200


class ProgressText(msgspec.Struct, frozen=True, gc=False):
    """A piece of progress: text besides the answer."""

    text: str
    is_fact: bool
    """It comes from a fact, and is shown when the fact is durable."""


class Progress:
    """The progress of one session, until it ends."""

    def __init__(self, journal: ServedJournal, session: SessionRecord) -> None:
        self._read = journal.read
        self._session = session
        self._send, self._receive = trio.open_memory_channel[ProgressText](MAX_BUFFERED)
        self._redactor = StreamRedactor(self._read.redactor)

    async def next(self) -> list[ProgressText]:
        """Wait for progress, and return all pieces so far; an empty list at the end."""
        try:
            told = [await self._receive.receive()]
        except trio.EndOfChannel:
            await trio.lowlevel.checkpoint()
            return []
        waiting = self._receive.statistics().current_buffer_used
        return told + [self._receive.receive_nowait() for _ in range(waiting)]

    def close(self) -> None:
        self._send.close()
        self._receive.close()

    def end(self) -> None:
        """Add no more progress. Earlier pieces are still received."""
        self._send.close()

    def receive_model_event(self, task: TaskId, event: ModelEvent) -> None:
        if task != self._session.root.id:
            return
        match event:
            case ReasoningDelta(text):
                if shown := self._redactor.add(text):
                    self._put(shown)
            case TextDelta():
                # The next thought is another text.
                self._redactor = StreamRedactor(self._read.redactor)
            case _:
                pass

    def receive_fact(self, entry: Entry, encoded: Encoded) -> None:
        del encoded
        match entry.event:
            case TaskRequested(request):
                self._put_begin(request)
            case TaskSettled(task, outcome):
                self._put_line(task, str(outcome.ending))
            case _:
                pass

    def add_begun(self) -> None:
        """Add the tasks that are under way already: the run may be ahead of its stream."""
        tasks = [*self._session.root.children.unsettled.values()]
        for task in tasks:
            if task.request is not None:
                self._put_begin(task.request)
            tasks += task.children.unsettled.values()

    def _put_begin(self, request: TaskRequest) -> None:
        goal = " ".join(request.goal.split())[:LONGEST_GOAL]
        self._put_line(request.id, f"begins: {goal}")

    def _put_line(self, task: TaskId, text: str) -> None:
        path = self._read.records.tasks[task].path
        self._put(f"\n{path} {text}\n", is_fact=True)

    def _put(self, text: str, *, is_fact: bool = False) -> None:
        # A reader that is behind misses some progress: the facts have all of it.
        with suppress(trio.WouldBlock, trio.ClosedResourceError):
            self._send.send_nowait(ProgressText(text, is_fact))


@contextmanager
def open_progress(journal: ServedJournal, session: SessionRecord) -> Generator[Progress]:
    """Receive the reasoning and delegations of a session's agent, as long as the block lasts."""
    progress = Progress(journal, session)
    with (
        closing(progress),
        journal.read.subscribe(progress.receive_fact, session=session.id),
        journal.read.subscribe_model_events(progress.receive_model_event),
    ):
        progress.add_begun()
        yield progress


Update: TypeAlias = AgentText | list[ProgressText]
NextUpdate: TypeAlias = Callable[[], Awaitable[Update | None]]


@asynccontextmanager
async def open_updates(
    journal: ServedJournal, session: SessionRecord, *, has_progress: bool
) -> AsyncGenerator[NextUpdate]:
    """Yield a function that returns the agent's next text, or its progress; None is the end."""
    if not has_progress:
        with open_agent_stream(journal, session) as texts:
            yield texts.next
        return
    send, receive = trio.open_memory_channel[Update](0)
    with raising_one_error(), receive, open_progress(journal, session) as progress:
        # Owns the readers of texts and of progress. They share one channel, which keeps the order.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_forward_texts, journal, session, progress, send.clone())
            nursery.start_soon(_forward_progress, journal, progress, send)
            yield partial(_next_update, receive)


async def _next_update(receive: "trio.MemoryReceiveChannel[Update]") -> Update | None:
    try:
        return await receive.receive()
    except trio.EndOfChannel:
        await trio.lowlevel.checkpoint()
        return None


async def _forward_texts(
    journal: ServedJournal,
    session: SessionRecord,
    progress: Progress,
    send: "trio.MemorySendChannel[Update]",
) -> None:
    with send, open_agent_stream(journal, session) as texts:
        while (update := await texts.next()) is not None:
            await send.send(update)
    progress.end()


async def _forward_progress(
    journal: ServedJournal, progress: Progress, send: "trio.MemorySendChannel[Update]"
) -> None:
    with send:
        while told := await progress.next():
            if any(it.is_fact for it in told):
                await journal.read.wait_durable()
            await send.send(told)
