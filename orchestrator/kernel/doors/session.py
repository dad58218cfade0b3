"""The door for Python programs: a conversation that takes messages at any time."""

import math
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from orchestrator.agents import Agent, Part, UserMessage, well_formed
from orchestrator.agents.redaction.long_texts import has_long_text, search_ahead
from orchestrator.delegation import DeliveryCapability, Reply, SessionId, SessionRecord, Tree
from orchestrator.delegation.events import MessageReceived
from orchestrator.delegation.events.approvals import ApprovalQuestion
from orchestrator.delegation.session_context import async_delivery_supported, session_strings
from orchestrator.kernel.budget_scope import current_grants
from orchestrator.kernel.doors import lifecycle
from orchestrator.kernel.doors.approvals import ApprovalQuestions, answer_question
from orchestrator.kernel.doors.inbound import OPENTELEMETRY, search_parts_ahead
from orchestrator.kernel.errors import ClosedError
from orchestrator.kernel.event_loop import require_trio
from orchestrator.kernel.sessions import Sessions

if TYPE_CHECKING:
    from orchestrator.kernel.doors.run_events import RunEvents


class Session:
    """A conversation with an agent. `Orchestrator.open_session` opens it."""

    capability = DeliveryCapability.PUSH

    def __init__(self, sessions: Sessions, record: SessionRecord) -> None:
        self.id = record.id
        self._sessions = sessions
        self._record = record
        self._pending: dict[int, _PendingReply] = {}
        self.replies = Replies(sessions)
        """The replies of turns that mail has woken, and that no `ask` waits for."""
        self.questions = ApprovalQuestions(sessions, self.id, is_closed=lambda: self.replies.closed)
        """The approval questions of the session, each once: `answer` them."""

    @property
    def tree(self) -> Tree:
        """The tree of all that this session has delegated; it grows."""
        return self._record.tree

    def _repr_svg_(self) -> str:
        """Return a picture of the current tree, for a notebook."""
        return self.tree.to_svg(now=self._sessions.read.now())

    def events(self) -> "AbstractContextManager[RunEvents]":
        """Read the text, calls, delegations and results of all tasks, as long as the block lasts.

        `with session.events() as events: async for event in events: ...`
        """
        # Imported late: most conversations are read by their replies.
        from orchestrator.kernel.doors.run_events import open_events

        return open_events(self._sessions.read, self.id)

    async def ask(self, text: str, *parts: Part, workspace: str = "") -> Reply:
        """Send a message, and wait for the reply of the turn that reads it.

        If this is cancelled the message stays posted, and its reply comes on `replies`. Inside
        `bind_session(async_delivery=False)` no result comes after that reply: tasks are joined, and
        commands end with the turn.

        Args:
            text: the message.
            parts: images and files that go with it.
            workspace: the folder of this message, which tools work in; each message may have
                another one.
        """
        require_trio()
        if workspace:
            text = f"[Workspace: {workspace}]\n{text}"
        message = UserMessage(well_formed(text), parts)
        if has_long_text(message.text):
            await search_ahead(self._sessions.read.redactor, [message.text])
        if parts:
            await search_parts_ahead(self._sessions.read.redactor, parts)
        self._require_open()
        self._sessions.facts.require_running()
        context = session_strings()
        if OPENTELEMETRY in sys.modules:
            # Imported late: it needs the library, which the program has imported.
            from orchestrator.kernel.doors.active_span import with_active_span

            context = with_active_span(context)
        self._sessions.facts.post(
            MessageReceived(
                self.id,
                message.text,
                message.parts,
                message.id,
                {**context, "cwd": workspace} if workspace else context,
                current_grants(self._sessions.facts),
                async_delivery=async_delivery_supported(),
            )
        )
        seq = self._sessions.read.records.last_seq
        pending = self._pending[seq] = _PendingReply()
        is_taken = False
        try:
            reply = await pending.wait_reply()
            is_taken = True
        finally:
            del self._pending[seq]
            if pending.reply is not None and not is_taken:
                # The reply came at the moment of the cancellation.
                self.replies.put(pending.reply)
        self._sessions.deliveries.mark_delivered(reply)
        return reply

    async def answer(self, approval: str, answer: str, *, reason: str = "", by: str = "") -> None:
        """Answer an approval question of this session, as `Orchestrator.answer` does."""
        self._require_open()
        await answer_question(
            self._sessions, approval, answer, reason=reason, by=by, session=self.id
        )

    @property
    def open_questions(self) -> list[ApprovalQuestion]:
        """The approval questions that are open now, oldest first."""
        return self._sessions.read.open_questions(self.id)

    async def wait_idle(self) -> None:
        """Wait until no turn runs, and no task or mail is outstanding.

        By then every reply of a woken turn is on `replies`.

        Raises:
            ClosedError: the orchestrator stops, and the next process does the remaining work.
        """
        require_trio()
        await trio.lowlevel.checkpoint()
        while True:
            self._require_open()
            if self._record.has_nothing_pending and self._sessions.deliveries.has_delivered_all(
                self._record
            ):
                return
            if self._sessions.read.is_stopping and not (
                self._record.has_nothing_pending or self._sessions.read.has_running_tasks
            ):
                self._sessions.facts.require_running()
            if self._sessions.read.is_stopping:
                await self._sessions.read.wait_changed()
            else:
                await self._sessions.read.wait_session_changed(self.id)

    async def deliver(self, reply: Reply) -> None:
        pending = [self._pending[seq] for seq in reply.read if seq in self._pending]
        for each in pending:
            each.set_reply(reply)
        if not pending:
            self.replies.put(reply)
        await trio.lowlevel.checkpoint()

    def disconnect(self) -> None:
        self.replies.close()
        for pending in self._pending.values():
            pending.close()

    def _require_open(self) -> None:
        if self.replies.closed:
            raise ClosedError(f"session {self.id!r} is closed")


class Replies(trio.abc.ReceiveChannel[Reply]):
    """The replies that no `ask` waits for, oldest first.

    A reply counts as delivered when it is received here. Until then it stays undelivered, and comes
    again when the session is opened again.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._send, self._receive = trio.open_memory_channel[Reply](math.inf)
        self.closed = False

    def put(self, reply: Reply) -> None:
        # After the door is closed the reply stays undelivered, and goes to the next one.
        if not self.closed:
            self._send.send_nowait(reply)

    async def receive(self) -> Reply:
        require_trio()
        while True:
            try:
                reply = await self._receive.receive()
            except trio.ClosedResourceError:
                raise trio.EndOfChannel from None
            if self._sessions.deliveries.mark_delivered(reply):
                return reply

    def receive_nowait(self) -> Reply:
        """Return the next reply, or raise `trio.WouldBlock` if there is none yet."""
        while True:
            reply = self._receive.receive_nowait()
            if self._sessions.deliveries.mark_delivered(reply):
                return reply

    def close(self) -> None:
        self.closed = True
        self._send.close()
        # Replies that were not received go to the next door.
        self._receive.close()

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()


class _PendingReply:
    """One `ask` that waits for its reply."""

    def __init__(self) -> None:
        self.reply: Reply | None = None
        self._done = trio.Event()

    def set_reply(self, reply: Reply) -> None:
        self.reply = reply
        self._done.set()

    def close(self) -> None:
        self._done.set()

    async def wait_reply(self) -> Reply:
        await self._done.wait()
        if self.reply is None:
            raise ClosedError("the session was closed before it had answered")
        return self.reply


@asynccontextmanager
async def open_session(
    sessions: Sessions, agent: Agent[Any], id_: SessionId | None, *, deps: object = None
) -> AsyncGenerator[Session]:
    """Open a new session, or continue an old one.

    Leaving only closes the door: a running turn or task goes on, and its result is delivered when
    the session is opened again.
    """
    if id_ is None:
        record = lifecycle.open_new_session(sessions, agent, deps=deps)
    else:
        record = await lifecycle.reopen_session(sessions, agent, id_)
    session = Session(sessions, record)
    lifecycle.connect_door(sessions, record, agent, session, deps=deps)
    try:
        await sessions.facts.wait_durable()
        await sessions.deliveries.deliver(record)
        yield session
    finally:
        lifecycle.disconnect_door(sessions, record, session)
