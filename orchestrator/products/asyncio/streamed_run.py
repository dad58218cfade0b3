"""A run whose events asyncio reads, and the events of runs and sessions."""

from collections import deque
from typing import Any, Generic, TypeVar

from orchestrator.delegation import SessionId, Tree
from orchestrator.ports.reads import ReadApi
from orchestrator.ports.sessions import Run, RunEvent, RunEvents, streamed_run
from orchestrator.products.asyncio.live_display import LiveDisplay
from orchestrator.products.asyncio.tree_copy import copied
from orchestrator.products.asyncio.trio_thread import Held, OpenHeld, TrioThread

OutputT = TypeVar("OutputT")
OutputT_co = TypeVar("OutputT_co", covariant=True)


class Events:
    """The events of a run or a session, each once, in order: `async for event in events`."""

    def __init__(self, thread: TrioThread[Any], events: RunEvents, held: Held[Any]) -> None:
        self._thread = thread
        self._events = events
        self._held = held
        self._taken: deque[RunEvent] = deque()

    def __aiter__(self) -> "Events":
        return self

    async def __anext__(self) -> RunEvent:
        if not self._taken:
            # Take all available events: a change of threads for each piece of text would be slow.
            receive = self._events.receive_some
            self._taken.extend(await self._thread.call(receive, self._taken.extend))
        if not self._taken:
            raise StopAsyncIteration
        return self._taken.popleft()  # noqa: ASYNC910 (asyncio needs no checkpoints)

    async def aclose(self) -> None:
        """Stop receiving events. Events that were already received can still be read."""
        await self._held.close()


class StreamedRun(Generic[OutputT_co]):
    """A run in progress, and its events: `async for event in run`.

    The last event is the `TaskEnded` of its root. `wait` returns the run itself.
    """

    def __init__(
        self,
        thread: TrioThread[Any],
        run: streamed_run.StreamedRun[OutputT_co],
        held: Held[Any],
        read: ReadApi,
    ) -> None:
        self.orchestrator: object = None
        """The orchestrator, which stays open as long as this is used."""
        self._thread = thread
        self._run = run
        self._held = held
        self._events = Events(thread, run.events, held)
        self._display = LiveDisplay(thread, read, run.tree, repr(run))
        self.id: SessionId = run.id

    def __repr__(self) -> str:
        return repr(self._run)

    def __aiter__(self) -> "StreamedRun[OutputT_co]":
        return self

    async def __anext__(self) -> RunEvent:
        return await anext(self._events)

    async def wait(self) -> Run[OutputT_co]:
        """Wait until the whole tree is settled, and return the run. Unread events are kept."""
        return await self._thread.call(self._run.wait)

    async def read_tree(self) -> Tree:
        """Return the current tree of the run."""
        return await self._thread.call(lambda: copied(self._run.tree))

    async def aclose(self) -> None:
        """Cancel the run if it has not ended, and return when its whole tree has ended."""
        try:
            await self._held.close()
        finally:
            await self._display.close()  # noqa: ASYNC102 (asyncio cancels once)

    def show(self) -> None:
        """Show the tree in a notebook, and follow it for the duration of the block."""
        self._display.show()

    _ipython_display_ = show


async def open_stream(
    thread: TrioThread[Any], open_held: OpenHeld[streamed_run.StreamedRun[OutputT]], read: ReadApi
) -> StreamedRun[OutputT]:
    """Begin a run in trio's thread."""
    held = Held(thread, open_held)
    return StreamedRun(thread, await held.open(), held, read)


async def open_events(thread: TrioThread[Any], open_held: OpenHeld[RunEvents]) -> Events:
    """Begin to receive the events of a session in trio's thread."""
    held = Held(thread, open_held)
    return Events(thread, await held.open(), held)
