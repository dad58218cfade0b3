"""A run with a stream of events: `async with orchestrator.stream(agent, goal) as run`.

The block owns the run: leaving it early cancels the tree, and returns when everything has ended.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import trio

from orchestrator.agents import Agent, Part, raising_one_error
from orchestrator.delegation import SessionId, SessionRecord, Tree
from orchestrator.kernel.doors.one_shot import (
    Run,
    ended_run,
    inbound_run,
    open_one_turn,
    take_only_turn,
)
from orchestrator.kernel.doors.run_events import RunEvent, RunEvents, open_events
from orchestrator.kernel.event_loop import require_trio
from orchestrator.kernel.sessions import Sessions

OutputT = TypeVar("OutputT")
OutputT_co = TypeVar("OutputT_co", covariant=True)


class StreamedRun(Generic[OutputT_co]):
    """A live run and its events: `async for event in run`.

    The last event is the `TaskEnded` of its root. `wait` returns the run itself.
    """

    def __init__(
        self,
        sessions: Sessions,
        agent: Agent[OutputT_co],
        session: SessionRecord,
        events: RunEvents,
    ) -> None:
        self._sessions = sessions
        self._agent = agent
        self._session = session
        self.events = events
        self._ended = trio.Event()
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        return f"<StreamedRun {self.id} of {self._agent.name}>"

    @property
    def id(self) -> SessionId:
        """The id of the run."""
        return self._session.id

    @property
    def tree(self) -> Tree:
        """The tree of its tasks; it grows."""
        return self._session.tree

    def _repr_svg_(self) -> str:
        """Return a picture of the tree, for a notebook."""
        return self.tree.to_svg()

    def __aiter__(self) -> "StreamedRun[OutputT_co]":
        return self

    async def __anext__(self) -> RunEvent:
        return await anext(self.events)

    async def wait(self) -> Run[OutputT_co]:
        """Wait until the whole tree is settled, and return the run. Unread events stay."""
        require_trio()
        await self._ended.wait()
        outcome = self._session.last_outcome
        assert outcome is not None, "its turn has ended"
        return ended_run(self._sessions, self._agent, self._session, outcome, self._error)

    async def take_turn(self) -> None:
        """Run it to its end, for the nursery that owns it."""
        try:
            self._error = (await take_only_turn(self._sessions, self._session)).error
        finally:
            self._ended.set()
            self.events.close()


@asynccontextmanager
async def stream_once(
    sessions: Sessions,
    agent: Agent[OutputT],
    goal: Any,
    parts: tuple[Part, ...],
    *,
    attended: bool,
    deps: object = None,
) -> AsyncGenerator[StreamedRun[OutputT]]:
    """Run an agent on a goal as long as the block lasts, and cancel it after that."""
    request = await inbound_run(sessions, agent, goal, parts, attended=attended, deps=deps)
    session = open_one_turn(sessions, request)
    # No checkpoint since the turn was begun: no event is missed.
    with open_events(sessions.read, session.id) as events, raising_one_error():
        # Owns the run.
        async with trio.open_nursery() as nursery:
            run = StreamedRun(sessions, agent, session, events)
            nursery.start_soon(run.take_turn)
            try:
                yield run
            finally:
                nursery.cancel_scope.cancel(reason="its block was left")
