"""A conversation in Python that can be told something at any time."""

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import trio

from agents import Agent, Part, UserMessage, well_formed
from delegation import DeliveryCapability, Reply, SessionId, Tree
from delegation.events import DoorClosed, DoorOpened, MessageReceived, SessionOpened
from delegation.events.approvals import ApprovalId, ApprovalQuestion
from delegation.session_context import session_strings
from orchestrator.budget_scope import current_grants
from orchestrator.engine.approvals import answer_question as answer_ask
from orchestrator.engine.approvals import open_questions
from orchestrator.errors import ClosedError, SessionOpenError, UnknownIdError
from orchestrator.services import Services


class Session:
    """Somebody to talk to. `Orchestrator.open_session` opens it."""

    capability = DeliveryCapability.PUSH

    def __init__(self, services: Services, id: SessionId) -> None:  # noqa: A002 (the word of the domain)
        self.id = id
        self._services = services
        self._record = services.book.ledger.sessions[id]
        self._pending: dict[int, _PendingReply] = {}
        self.replies = Replies(services)
        """What the session says without having been asked: the replies of woken turns."""
        self.asks = ApprovalQuestions(services, self)
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
        book = self._services.book
        self._require_open()
        book.require_accepting()
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
        question = self._pending[seq] = _PendingReply()
        is_taken = False
        try:
            reply = await question.wait_reply()
            is_taken = True
        finally:
            del self._pending[seq]
            if question.reply is not None and not is_taken:
                # Answered in the very moment in which nobody waits any more.
                self.replies.put(question.reply)
        self._services.turns.mark_delivered(reply)
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
            self._services.book,
            approval,
            answer,
            reason=reason,
            by=by,
            session=self.id,
            on_answered=self._services.executor.note_activity,
        )
        await self._services.book.wait_durable()

    @property
    def open_asks(self) -> list[ApprovalQuestion]:
        """What somebody is asked to approve now, oldest first."""
        return open_questions(self._services.book, self.id)

    async def wait_idle(self) -> None:
        """Wait until no turn runs and nothing is outstanding.

        By then every reply of a woken turn is on `replies`.

        Raises:
            ClosedError: the orchestrator stops, and what is left is for the next time.
        """
        await trio.lowlevel.checkpoint()
        book = self._services.book
        while True:
            self._require_open()
            if (
                self._record.has_nothing_pending
                and self._services.turns.has_delivered_all(self._record)
            ):
                return
            if book.stopping and not (
                self._record.has_nothing_pending or book.has_running_tasks
            ):
                book.require_accepting()
            if book.stopping:
                await book.wait_changed()
            else:
                await book.wait_session_changed(self.id)

    async def deliver(self, reply: Reply) -> None:
        asked = [self._pending[seq] for seq in reply.read if seq in self._pending]
        for question in asked:
            question.set_reply(reply)
        if not asked:
            self.replies.put(reply)
        await trio.lowlevel.checkpoint()

    def disconnect(self) -> None:
        self.replies.close()
        for question in self._pending.values():
            question.close()

    def _require_open(self) -> None:
        if self.replies.closed:
            raise ClosedError(f"session {self.id!r} is closed")


class Replies(trio.abc.ReceiveChannel[Reply]):
    """The replies that nobody asked for, oldest first.

    A reply counts as delivered when it is received here; until then the journal keeps it, and the
    session gives it again when it is opened again.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
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
            if self._services.turns.mark_delivered(reply):
                return reply

    def receive_nowait(self) -> Reply:
        """Return the next reply, or raise `trio.WouldBlock` if there is none yet."""
        while True:
            reply = self._receive.receive_nowait()
            if self._services.turns.mark_delivered(reply):
                return reply

    def close(self) -> None:
        self.closed = True
        self._send.close()
        # What nobody has received is for the next door.
        self._receive.close()

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()


class ApprovalQuestions(trio.abc.ReceiveChannel[ApprovalQuestion]):
    """What somebody is asked to approve in a session, oldest first.

    What was not answered is asked again when the session is opened again.
    """

    def __init__(self, services: Services, session: Session) -> None:
        self._services = services
        self._session = session
        self._seen: set[ApprovalId] = set()

    async def receive(self) -> ApprovalQuestion:
        """Wait for the next question that is still open."""
        await trio.lowlevel.checkpoint()
        while not self._session.replies.closed:
            asks = self._session.open_asks
            self._seen &= {ask.id for ask in asks}
            for ask in asks:
                if ask.id not in self._seen:
                    self._seen.add(ask.id)
                    return ask
            await self._services.book.wait_session_changed(self._session.id)
        raise trio.EndOfChannel

    async def aclose(self) -> None:
        """Do nothing: it ends with its session."""
        await trio.lowlevel.checkpoint()


class _PendingReply:
    """One `ask` that waits for its reply."""

    def __init__(self) -> None:
        self.reply: Reply | None = None
        self._over = trio.Event()

    def set_reply(self, reply: Reply) -> None:
        self.reply = reply
        self._over.set()

    def close(self) -> None:
        self._over.set()

    async def wait_reply(self) -> Reply:
        await self._over.wait()
        if self.reply is None:
            raise ClosedError("the session was closed before it had answered")
        return self.reply


@asynccontextmanager
async def open_session(
    services: Services,
    agent: Agent[Any],
    id: SessionId | None,  # noqa: A002
) -> AsyncGenerator[Session]:
    """Open a new session, or go on with an old one.

    Leaving only closes the door: a turn or a task that runs goes on, and what comes of it is
    told when the session is opened again.
    """
    book = services.book
    book.require_accepting()
    is_new = id is None
    if id is not None:
        await book.load_session(id)
    id = services.new_session_id() if id is None else id  # noqa: A001
    if not is_new:
        _require_openable(services, id, agent)
    # Before the first fact: an agent whose model cannot be had leaves no trace.
    services.registry.register_session(id, agent)
    if is_new:
        book.post(SessionOpened(id, agent.name, agent.budget, current_grants()))
    session = Session(services, id)
    services.turns.attach(id, session)
    book.post(DoorOpened(id, session.capability))
    try:
        await book.wait_durable()
        await services.turns.deliver(book.ledger.sessions[id])
        yield session
    finally:
        session.disconnect()
        services.turns.detach(id)
        if not book.closed:
            book.post(DoorClosed(id))


def _require_openable(services: Services, id: SessionId, agent: Agent[Any]) -> None:  # noqa: A002
    record = services.book.ledger.sessions.get(id)
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
