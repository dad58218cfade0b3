"""One session that an editor has open: prompts, cancellation, questions and later replies.

The editor can be told later: `session/update` may come at any time. So tasks detach, and the reply
of a later turn is an update without a prompt. A prompt is answered after all updates of its turn,
and after every task of a cancelled one has ended.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import attrs
import trio

from orchestrator.agents import Agent, Message, ToolCall, UserMessage, raising_one_error
from orchestrator.delegation import Ending, Reply, SessionId, root_of
from orchestrator.delegation.events import MetadataChanged
from orchestrator.delegation.events.approvals import ApprovalQuestion, ApprovalVerdict
from orchestrator.delegation.session_context import SessionVars, bind_session, door_context
from orchestrator.ports.errors import SessionOpenError, UnknownIdError
from orchestrator.ports.sessions import Orchestrator, RunEvents, Session, open_events
from orchestrator.products.acp import history, schema, tool_calls
from orchestrator.products.acp.connection import FAILED, Connection, RpcError
from orchestrator.products.acp.content import read_prompt
from orchestrator.products.acp.view import View

UPDATE: Final = "session/update"
PLATFORM: Final = "acp"
BY: Final = "the user of the editor"
OPTIONS: Final = (
    schema.PermissionOption(option_id=ApprovalVerdict.ONCE, name="Allow", kind="allow_once"),
    schema.PermissionOption(
        option_id=ApprovalVerdict.SESSION, name="Allow in this session", kind="allow_always"
    ),
    schema.PermissionOption(option_id=ApprovalVerdict.DENY, name="Deny", kind="reject_once"),
)


@attrs.define
class _Prompt:
    """A prompt that is not answered yet."""

    is_cancelled: bool = False
    is_pending: bool = False
    """It is sent, and has no reply yet."""


class Conversation:
    """A session, as long as the editor has it open. `run` owns the nursery of its work."""

    def __init__(
        self,
        connection: Connection,
        orchestrator: Orchestrator,
        session: Session,
        *,
        events: RunEvents,
        view: View,
        cwd: Path,
    ) -> None:
        self.session = session
        self.orchestrator = orchestrator
        self._connection = connection
        self._events = events
        self._view = view
        self._cwd = cwd
        self._record = orchestrator.read.records.sessions[session.id]
        self._prompts: list[_Prompt] = []
        self._cancels = 0
        self._cancelled = trio.Event()
        """Set when the last cancellation has ended."""

    async def run(self) -> None:
        """Show events, take later replies and ask for approvals, until the session is closed."""
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._show_forever)
                nursery.start_soon(self._take_replies)
                async for question in self.session.questions:
                    nursery.start_soon(self._ask_permission, question)
                nursery.cancel_scope.cancel(reason="the session is closed")

    async def _show_forever(self) -> None:
        while some := await self._events.receive_some():
            self._view.show(some)
            await self._connection.wait_writable()

    async def _show_durable(self) -> None:
        """Show all events so far: an answer or a question comes after them."""
        await self.orchestrator.read.wait_durable()
        self._view.show(self._events.take())

    def update(self, update: schema.Update) -> None:
        """Send an update of this session."""
        notification = schema.Notification(session_id=self.session.id, update=update)
        self._connection.notify(UPDATE, notification)

    # Prompts.

    async def prompt(self, blocks: Sequence[schema.ContentBlock]) -> schema.PromptEnded:
        """Take a prompt, and return how its turn ended."""
        text, parts = read_prompt(blocks)
        if not self._record.turns and self._record.turn is None:
            self.update(schema.InfoChanged(title=tool_calls.short_title(text)))
        prompt = _Prompt()
        self._prompts.append(prompt)
        try:
            # A cancellation takes the turns that it meets with it.
            await self._wait_cancelled()
            if prompt.is_cancelled:
                return schema.PromptEnded(stop_reason="cancelled")
            prompt.is_pending = True
            with bind_session(**_context(self._cwd)):
                reply = await self.session.ask(text, *parts)
        finally:
            prompt.is_pending = False
            self._prompts.remove(prompt)
        await self._wait_cancelled()
        await self._show_durable()
        if prompt.is_cancelled:
            return schema.PromptEnded(stop_reason="cancelled")
        return schema.PromptEnded(stop_reason=self._stop_reason(reply))

    async def _wait_cancelled(self) -> None:  # noqa: ASYNC910 (its callers wait for a reply)
        while self._cancels:
            await self._cancelled.wait()

    def _stop_reason(self, reply: Reply) -> schema.StopReason:
        match reply.outcome.ending:
            case Ending.SUCCEEDED:
                return "end_turn"
            case Ending.CANCELLED:
                return "cancelled"
            case Ending.OVER_BUDGET:
                self._say(reply.text)
                return "max_turn_requests" if reply.outcome.kind == "calls" else "max_tokens"
            case Ending.FAILED | Ending.TIMED_OUT | Ending.REFUSED | Ending.LOST:
                raise RpcError(FAILED, reply.text)

    async def _take_replies(self) -> None:
        """Take the replies of later turns. Their texts were shown while they were written."""
        async for reply in self.session.replies:
            if reply.outcome.ending not in {Ending.SUCCEEDED, Ending.CANCELLED}:
                await self._show_durable()
                self._say(reply.text)

    def _say(self, text: str) -> None:
        self.update(schema.MessageChunk(content=schema.Text(text=text)))

    async def cancel(self) -> None:
        """Cancel the turn and all tasks, and return when every one of them has ended."""
        prompts = list(self._prompts)
        for prompt in prompts:
            prompt.is_cancelled = True
        if not self._cancels:
            self._cancelled = trio.Event()
        self._cancels += 1
        try:
            read = self.orchestrator.read
            while True:
                seq = read.last_seq
                await self.orchestrator.cancel(self.session.id, tree=True)
                # The notice of a cancelled task begins a turn: that one is cancelled, too.
                if not (any(it.is_pending for it in prompts) or self._has_notices()):
                    break
                await read.wait_posted(after=seq)
        finally:
            self._cancels -= 1
            if not self._cancels:
                self._cancelled.set()

    def _has_notices(self) -> bool:
        return any(not isinstance(it, UserMessage) for it in self._record.mail.values())

    def change_agent(self, agent: Agent[Any]) -> None:
        """Let another agent take the next turns: the same one, with another model.

        Raises:
            SessionOpenError: a turn is under way.
        """
        if self._record.turn is not None or self._record.mail:
            raise SessionOpenError("the session works: its model can be changed when it has ended")
        self.orchestrator.sessions.registry.register_session(self.session.id, agent)

    # Approvals.

    async def _ask_permission(self, question: ApprovalQuestion) -> None:
        """Ask the editor until the question is answered, here or elsewhere."""
        await self._show_durable()
        calls = self.orchestrator.calls(question.task)
        call = next((it for it in calls if it.id == question.call), None)
        call = call or ToolCall(question.tool, {"call": question.subject}, id=question.call)
        session, shown = self._view.question(question.task, call, question.why)
        verdict, reason = ApprovalVerdict.DENY, ""
        is_answered = False
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_when_closed, question, nursery.cancel_scope)
                ask = schema.AskPermission(session_id=session, tool_call=shown, options=OPTIONS)
                try:
                    answer = await self._connection.ask(
                        "session/request_permission", ask, schema.Permission
                    )
                    if answer.outcome.outcome == "selected":
                        verdict = ApprovalVerdict(answer.outcome.option_id)
                except RpcError as exc:
                    reason = f"the editor could not ask: {exc}"
                except ValueError:
                    reason = "the editor answered with an option that was not offered"
                is_answered = True
                nursery.cancel_scope.cancel(reason="the editor has answered")
        if is_answered:
            try:
                await self.session.answer(question.id, verdict, reason=reason, by=BY)
            except UnknownIdError:
                await trio.lowlevel.checkpoint()  # another person was faster

    async def _end_when_closed(self, question: ApprovalQuestion, scope: trio.CancelScope) -> None:
        read = self.orchestrator.read
        while any(it.id == question.id for it in read.open_questions(self.session.id)):
            await read.wait_session_changed(self.session.id)
        scope.cancel(reason="the question was answered elsewhere")
        await trio.lowlevel.checkpoint()


def _context(cwd: Path) -> SessionVars:
    """Return the variables of the messages of an editor."""
    return cast("SessionVars", door_context(platform=PLATFORM, cwd=str(cwd)))


@asynccontextmanager
async def open_conversation(
    connection: Connection,
    orchestrator: Orchestrator,
    agent: Agent[Any],
    id_: SessionId | None,
    cwd: Path,
    *,
    knows_subagents: bool,
    replays: bool,
) -> AsyncGenerator[Conversation]:
    """Open a new session, or an old one with or without its history."""
    read = orchestrator.read

    def send(session: str, update: schema.Update) -> None:
        connection.notify(UPDATE, schema.Notification(session_id=session, update=update))

    async with AsyncExitStack() as opened:
        earlier: RunEvents | None = None
        messages: Sequence[Message] = ()
        if id_ is not None:
            await orchestrator.facts.load(id_)
            if (record := read.records.sessions.get(id_)) is not None:
                # In one step: each message is either in the history or an event.
                earlier = opened.enter_context(open_events(read, id_))
                messages = tuple(record.root.transcript)
        session = await opened.enter_async_context(orchestrator.open_session(agent, session=id_))
        events = opened.enter_context(session.events()) if earlier is None else earlier
        record = read.records.sessions[session.id]
        if record.metadata.get(history.CWD) != str(cwd):
            metadata = {**record.metadata, history.CWD: str(cwd)}
            orchestrator.facts.post(MetadataChanged(session.id, metadata))
            await orchestrator.facts.wait_durable()
        if replays:
            for update in history.replay(root_of(session.id), messages, cwd):
                send(session.id, update)
                await connection.wait_writable()
        view = View(session.id, session.tree, cwd, send, knows_subagents=knows_subagents)
        if id_ is not None:
            view.show_unfinished()
        yield Conversation(connection, orchestrator, session, events=events, view=view, cwd=cwd)
