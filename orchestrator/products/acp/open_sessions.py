"""The sessions that an editor has open, each in a task of its own."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from orchestrator.agents import Agent
from orchestrator.delegation import SessionId
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.sessions import Orchestrator
from orchestrator.products.acp.connection import Connection
from orchestrator.products.acp.conversation import Conversation, open_conversation


@attrs.define
class OpenSession:
    """A session that the editor has open."""

    conversation: Conversation
    agent: Agent[Any]
    """Its agent, with the servers and the model of the editor."""
    scope: trio.CancelScope
    closed: trio.Event


class OpenSessions:
    """Opens and leaves sessions. The nursery owns them."""

    def __init__(self, connection: Connection, nursery: trio.Nursery) -> None:
        self._connection = connection
        self._nursery = nursery
        self._opened: dict[str, OpenSession] = {}
        self.knows_subagents = False
        """Whether the editor shows the sessions of subagents."""

    def __iter__(self) -> Iterator[OpenSession]:
        return iter(list(self._opened.values()))

    def __contains__(self, session: str) -> bool:
        return session in self._opened

    def __getitem__(self, session: str) -> OpenSession:
        if session not in self._opened:
            raise UnknownIdError(f"session {session!r} is not open: session/load opens it")
        return self._opened[session]

    async def open(
        self,
        orchestrator: Orchestrator,
        agent: Agent[Any],
        id_: SessionId | None,
        cwd: Path,
        *,
        replays: bool,
    ) -> OpenSession:
        """Open a new session, or an old one with or without its history."""
        serve = partial(self.serve, orchestrator, agent, id_, cwd, replays=replays)
        opened: OpenSession = await self._nursery.start(serve)
        return opened

    async def serve(
        self,
        orchestrator: Orchestrator,
        agent: Agent[Any],
        id_: SessionId | None,
        cwd: Path,
        *,
        replays: bool,
        task_status: trio.TaskStatus[OpenSession],
    ) -> None:
        """Have a session open until the editor leaves it."""
        closed = trio.Event()
        try:
            with trio.CancelScope() as scope:
                async with open_conversation(
                    self._connection,
                    orchestrator,
                    agent,
                    id_,
                    cwd,
                    knows_subagents=self.knows_subagents,
                    replays=replays,
                ) as conversation:
                    session = conversation.session.id
                    opened = OpenSession(conversation, agent, scope, closed)
                    self._opened[session] = opened
                    try:
                        task_status.started(opened)
                        await conversation.run()
                    finally:
                        del self._opened[session]
        finally:
            closed.set()

    async def leave(self, session: str) -> None:
        """Close the door of a session, if it is open; its tasks run on."""
        await trio.lowlevel.checkpoint()
        if (opened := self._opened.get(session)) is not None:
            opened.scope.cancel(reason="the editor leaves the session")
            await opened.closed.wait()
