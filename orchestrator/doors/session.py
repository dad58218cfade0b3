"""A conversation in Python that can be told something at any time."""

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import trio

from agents import Agent
from delegation import DeliveryCapability, Reply, SessionId, Tree
from delegation.events import DoorClosed, DoorOpened, MessageReceived, SessionOpened
from orchestrator.errors import SessionOpenError, UnknownIdError
from orchestrator.house import House


class Session:
    """Somebody to talk to. `Orchestrator.open_session` opens it."""

    capability = DeliveryCapability.PUSH

    def __init__(self, house: House, id: SessionId) -> None:  # noqa: A002 (the word of the domain)
        self.id = id
        self._house = house
        self._record = house.book.ledger.sessions[id]
        self._questions: dict[int, _Question] = {}
        self._send, self.replies = trio.open_memory_channel[Reply](math.inf)
        """What the session says without having been asked: the replies of woken turns."""

    @property
    def tree(self) -> Tree:
        """The tree of all that this session has delegated; it grows."""
        return self._record.tree

    async def ask(self, text: str) -> Reply:
        """Say something, and wait for the reply of the turn that reads it.

        If this is cancelled the message stays said, and its reply comes on `replies`.
        """
        book = self._house.book
        book.post(MessageReceived(self.id, text))
        seq = book.ledger.last_seq
        question = self._questions[seq] = _Question()
        try:
            await book.wait_durable()
            return await question.wait_answered()
        finally:
            del self._questions[seq]

    async def wait_idle(self) -> None:
        """Wait until no turn runs and nothing is outstanding."""
        book = self._house.book
        await trio.lowlevel.checkpoint()
        while not self._record.idle:
            await book.wait_posted(after=book.ledger.last_seq)

    async def deliver(self, reply: Reply) -> None:
        await trio.lowlevel.checkpoint()
        asked = [self._questions[seq] for seq in reply.read if seq in self._questions]
        for question in asked:
            question.answer(reply)
        if not asked:
            self._send.send_nowait(reply)


class _Question:
    """One `ask` that waits for its reply."""

    def __init__(self) -> None:
        self._answered = trio.Event()
        self._reply: Reply | None = None

    def answer(self, reply: Reply) -> None:
        self._reply = reply
        self._answered.set()

    async def wait_answered(self) -> Reply:
        await self._answered.wait()
        assert self._reply is not None
        return self._reply


@asynccontextmanager
async def open_session(
    house: House,
    agent: Agent[Any],
    id: SessionId | None,  # noqa: A002
) -> AsyncGenerator[Session]:
    """Open a new session, or go on with an old one.

    Leaving only closes the door: a turn or a task that runs goes on, and what comes of it is
    told when the session is opened again.
    """
    book = house.book
    if id is None:
        id = house.new_session_id()  # noqa: A001
        book.post(SessionOpened(id, agent.name))
    record = book.ledger.sessions.get(id)
    if record is None:
        raise UnknownIdError(f"there is no session {id!r}")
    if record.door is not None:
        raise SessionOpenError(f"session {id!r} is open already")
    if record.root.agent != agent.name:
        raise UnknownIdError(
            f"session {id!r} talks to agent {record.root.agent!r}, not to {agent.name!r}"
        )
    house.roster.enter(id, agent)
    session = Session(house, id)
    house.turns.attach(id, session)
    book.post(DoorOpened(id, session.capability))
    try:
        await book.wait_durable()
        await house.turns.deliver(record)
        yield session
    finally:
        house.turns.detach(id)
        with trio.CancelScope(shield=True):
            await book.record(DoorClosed(id))
