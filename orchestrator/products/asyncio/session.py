"""A conversation for asyncio: the same as `orchestrator.Session`, in trio's thread."""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Generic, TypeVar

import trio

from orchestrator.agents import Part
from orchestrator.delegation import Reply, SessionId, Tree
from orchestrator.delegation.events.approvals import ApprovalQuestion
from orchestrator.ports.errors import ClosedError
from orchestrator.ports.reads import ReadApi
from orchestrator.ports.sessions import RunEvents
from orchestrator.ports.sessions import session as trio_session
from orchestrator.products.asyncio.live_display import LiveDisplay
from orchestrator.products.asyncio.opened import Opened
from orchestrator.products.asyncio.streamed_run import Events, open_events
from orchestrator.products.asyncio.tree_copy import copied
from orchestrator.products.asyncio.trio_thread import Held, OpenHeld, TrioThread

ItemT = TypeVar("ItemT")


class Received(Generic[ItemT]):
    """The items that one session or all sessions receive, each once: `async for`, or `receive`."""

    def __init__(self, thread: TrioThread[Any], receive: Callable[[], Awaitable[ItemT]]) -> None:
        self._thread = thread
        self._receive = receive
        self._untaken: deque[ItemT] = deque()

    def put_back(self, item: ItemT) -> None:
        """Keep an item that came at the moment when its reader was cancelled."""
        self._untaken.append(item)

    def __aiter__(self) -> "Received[ItemT]":
        return self

    async def __anext__(self) -> ItemT:
        if self._untaken:
            return self._untaken.popleft()  # noqa: ASYNC910 (asyncio needs no checkpoints)
        try:
            return await self._thread.call(self._receive, self.put_back)
        except (trio.EndOfChannel, ClosedError):
            raise StopAsyncIteration from None

    async def receive(self) -> ItemT:
        """Wait for the next item.

        Raises:
            ClosedError: the session is closed, and there are no more items.
        """
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise ClosedError("the session is closed") from None


class Session:
    """A conversation with an agent. `Orchestrator.open_session` opens it."""

    def __init__(
        self,
        thread: TrioThread[Any],
        session: trio_session.Session,
        held: Held[trio_session.Session],
        read: ReadApi,
    ) -> None:
        self.orchestrator: object = None
        """The orchestrator, which stays open as long as this is used."""
        self._thread = thread
        self._session = session
        self._held = held
        self._display = LiveDisplay(thread, read, session.tree, f"<Session {session.id}>")
        self.id: SessionId = session.id
        self.replies = Received(thread, session.replies.receive)
        """The replies of turns that mail started, and that no `ask` waits for."""
        self.questions = Received(thread, session.questions.receive)
        """The approval questions of the session, each once. Answer them with `answer`."""

    def __repr__(self) -> str:
        return f"<Session {self.id}>"

    async def ask(self, text: str, *parts: Part, workspace: str = "") -> Reply:
        """Send a message, and wait for the reply of the turn that reads it.

        If this call is cancelled, the message stays posted, and its reply comes on `replies`.

        Args:
            text: the message.
            parts: images and files for the message.
            workspace: the folder of this message, which tools work in.
        """
        ask = partial(self._session.ask, text, *parts, workspace=workspace)
        return await self._thread.call(ask, self.replies.put_back)

    async def answer(self, approval: str, answer: str, *, reason: str = "", by: str = "") -> None:
        """Answer an approval question of this session, as `Orchestrator.answer` does."""
        answer_ = partial(self._session.answer, approval, answer, reason=reason, by=by)
        await self._thread.call(answer_)

    async def wait_idle(self) -> None:
        """Wait until no turn runs and no work is outstanding."""
        await self._thread.call(self._session.wait_idle)

    def events(self) -> Opened[Events]:
        """Read the text, calls, delegations and results of all tasks, for the duration of the
        block.

        `async with session.events() as events: async for event in events: ...`
        """
        return Opened(lambda: open_events(self._thread, self._open_events))

    async def read_tree(self) -> Tree:
        """Return the current tree of this session's tasks."""
        return await self._thread.call(lambda: copied(self._session.tree))

    async def read_open_questions(self) -> list[ApprovalQuestion]:
        """Return the open approval questions, oldest first."""

        async def read() -> list[ApprovalQuestion]:
            await trio.lowlevel.checkpoint()
            return self._session.open_questions

        return await self._thread.call(read)

    async def aclose(self) -> None:
        """Close the door. Running work continues, and its result waits for the next door."""
        try:
            await self._held.close()
        finally:
            await self._display.close()  # noqa: ASYNC102 (asyncio cancels once)

    def _ipython_display_(self) -> None:
        """Show the tree in a notebook, and follow it while the session is open."""
        self._display.show()

    @asynccontextmanager
    async def _open_events(self) -> AsyncGenerator[RunEvents]:
        await trio.lowlevel.checkpoint()
        with self._session.events() as events:
            yield events


async def open_session(
    thread: TrioThread[Any], open_held: OpenHeld[trio_session.Session], read: ReadApi
) -> Session:
    """Open a conversation in trio's thread."""
    held = Held(thread, open_held)
    return Session(thread, await held.open(), held, read)
