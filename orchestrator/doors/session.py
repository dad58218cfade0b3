"""A conversation in Python that can be told something at any time."""

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import trio

from agents import Agent, Part, UserMessage, well_formed
from delegation import DeliveryCapability, Reply, SessionId, Tree
from delegation.events import DoorClosed, DoorOpened, MessageReceived, SessionOpened
from delegation.events.approvals import ApprovalId, Ask
from delegation.session_context import session_strings
from orchestrator.budget_scope import current_grants
from orchestrator.engine.approvals import answer as answer_ask
from orchestrator.engine.approvals import open_asks
from orchestrator.errors import ClosedError, SessionOpenError, UnknownIdError
from orchestrator.services import House


class Session:
    """Somebody to talk to. `Orchestrator.open_session` opens it."""

    capability = DeliveryCapability.PUSH

    def __init__(self, house: House, id: SessionId) -> None:  # noqa: A002 (the word of the domain)
        self.id = id
        self._house = house
        self._record = house.book.ledger.sessions[id]
        self._questions: dict[int, _Question] = {}
        self.replies = Replies(house)
        """What the session says without having been asked: the replies of woken turns."""
        self.asks = Asks(house, self)
        """What somebody is asked to approve, each once: `answer` it."""

    @property
    def tree(self) -> Tree:
        """The tree of all that this session has delegated; it grows."""
        return self._record.tree

    async def ask(self, text: str, *parts: Part, workspace: str = "") -> Reply:
        """Say something, and wait for the reply of the turn that reads it.

        If this is cancelled the message stays said, and its reply comes on `replies`.

        Args:
            text: what to say.
            parts: images and files that go with it.
            workspace: the folder that this very message is about, and that tools work in; it may
                change from one to the next, so it is said with each.
        """
        book = self._house.book
        self._require_open()
        book.require_taking()
        said = f"[Workspace: {workspace}]\n{text}" if workspace else text
        message = UserMessage(well_formed(said), parts)
        context = session_strings()
        book.post(
            MessageReceived(
                self.id,
                message.text,
                message.parts,
                message.id,
                {**context, "cwd": workspace} if workspace else context,
                current_grants(),
            )
        )
        seq = book.ledger.last_seq
        question = self._questions[seq] = _Question()
        is_taken = False
        try:
            reply = await question.wait_answered()
            is_taken = True
        finally:
            del self._questions[seq]
            if question.reply is not None and not is_taken:
                # Answered in the very moment in which nobody waits any more.
                self.replies.put(question.reply)
        self._house.turns.delivered(reply)
        return reply

    async def answer(
        self, approval: str, answer: str, *, reason: str = "", by: str = ""
    ) -> None:
        """Say whether a call of this session may be run. The first answer holds.

        Args:
            approval: which one: its id.
            answer: `"once"`; `"task"`, for the same in this task and below it; `"session"`, for
                the same in this session; or `"deny"`.
            reason: why, for the agent to read.
            by: who says so.
        """
        self._require_open()
        answer_ask(
            self._house.book,
            approval,
            answer,
            reason=reason,
            by=by,
            session=self.id,
            tell=self._house.acting.show_life,
        )
        await self._house.book.wait_durable()

    @property
    def open_asks(self) -> list[Ask]:
        """What somebody is asked to approve now, oldest first."""
        return open_asks(self._house.book, self.id)

    async def wait_idle(self) -> None:
        """Wait until no turn runs and nothing is outstanding.

        By then every reply of a woken turn is on `replies`.

        Raises:
            ClosedError: the orchestrator stops, and what is left is for the next time.
        """
        await trio.lowlevel.checkpoint()
        book = self._house.book
        while True:
            self._require_open()
            if self._record.idle and self._house.turns.has_handed_all(self._record):
                return
            if book.stopping and not (self._record.idle or book.is_working):
                book.require_taking()
            if book.stopping:
                await book.wait_stirred()
            else:
                await book.wait_stirred_in(self.id)

    async def deliver(self, reply: Reply) -> None:
        asked = [self._questions[seq] for seq in reply.read if seq in self._questions]
        for question in asked:
            question.answer(reply)
        if not asked:
            self.replies.put(reply)
        await trio.lowlevel.checkpoint()

    def hang_up(self) -> None:
        self.replies.close()
        for question in self._questions.values():
            question.give_up()

    def _require_open(self) -> None:
        if self.replies.closed:
            raise ClosedError(f"session {self.id!r} is closed")


class Replies(trio.abc.ReceiveChannel[Reply]):
    """The replies that nobody asked for, oldest first.

    A reply counts as delivered when it is received here; until then the journal keeps it, and the
    session gives it again when it is opened again.
    """

    def __init__(self, house: House) -> None:
        self._house = house
        self._send, self._receive = trio.open_memory_channel[Reply](math.inf)
        self.closed = False

    def put(self, reply: Reply) -> None:
        # After the door is closed it stays undelivered, and is for the next one.
        if not self.closed:
            self._send.send_nowait(reply)

    async def receive(self) -> Reply:
        while True:
            try:
                reply = await self._receive.receive()
            except trio.ClosedResourceError:
                raise trio.EndOfChannel from None
            if self._house.turns.delivered(reply):
                return reply

    def receive_nowait(self) -> Reply:
        """Return the next reply, or raise `trio.WouldBlock` if there is none yet."""
        while True:
            reply = self._receive.receive_nowait()
            if self._house.turns.delivered(reply):
                return reply

    def close(self) -> None:
        self.closed = True
        self._send.close()
        # What nobody has received is for the next door.
        self._receive.close()

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()


class Asks(trio.abc.ReceiveChannel[Ask]):
    """What somebody is asked to approve in a session, oldest first.

    What was not answered is asked again when the session is opened again.
    """

    def __init__(self, house: House, session: Session) -> None:
        self._house = house
        self._session = session
        self._seen: set[ApprovalId] = set()

    async def receive(self) -> Ask:
        """Wait for the next question that is still open."""
        await trio.lowlevel.checkpoint()
        while not self._session.replies.closed:
            asks = self._session.open_asks
            self._seen &= {ask.id for ask in asks}
            for ask in asks:
                if ask.id not in self._seen:
                    self._seen.add(ask.id)
                    return ask
            await self._house.book.wait_stirred_in(self._session.id)
        raise trio.EndOfChannel

    async def aclose(self) -> None:
        """Do nothing: it ends with its session."""
        await trio.lowlevel.checkpoint()


class _Question:
    """One `ask` that waits for its reply."""

    def __init__(self) -> None:
        self.reply: Reply | None = None
        self._over = trio.Event()

    def answer(self, reply: Reply) -> None:
        self.reply = reply
        self._over.set()

    def give_up(self) -> None:
        self._over.set()

    async def wait_answered(self) -> Reply:
        await self._over.wait()
        if self.reply is None:
            raise ClosedError("the session was closed before it had answered")
        return self.reply


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
    book.require_taking()
    is_new = id is None
    if id is not None:
        await book.recall(id)
    id = house.new_session_id() if id is None else id  # noqa: A001
    if not is_new:
        _require_openable(house, id, agent)
    # Before the first fact: an agent whose model cannot be had leaves no trace.
    house.roster.enter(id, agent)
    if is_new:
        book.post(SessionOpened(id, agent.name, agent.budget, current_grants()))
    session = Session(house, id)
    house.turns.attach(id, session)
    book.post(DoorOpened(id, session.capability))
    try:
        await book.wait_durable()
        await house.turns.deliver(book.ledger.sessions[id])
        yield session
    finally:
        session.hang_up()
        house.turns.detach(id)
        if not book.closed:
            book.post(DoorClosed(id))


def _require_openable(house: House, id: SessionId, agent: Agent[Any]) -> None:  # noqa: A002
    record = house.book.ledger.sessions.get(id)
    if record is None:
        raise UnknownIdError(f"there is no session {id!r}")
    if record.closed:
        raise ClosedError(f"session {id!r} was closed for good")
    if record.door is not None:
        raise SessionOpenError(f"session {id!r} is open already")
    if record.turn is not None and record.turn.capability is DeliveryCapability.NONE:
        raise SessionOpenError(f"run {id!r} is under way, and whoever began it waits")
    if record.root.agent != agent.name:
        raise UnknownIdError(
            f"session {id!r} talks to agent {record.root.agent!r}, not to {agent.name!r}"
        )
