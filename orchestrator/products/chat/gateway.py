"""The gateway: it brings messages from chat platforms to sessions, and replies back to people.

A message is acknowledged when it is durable, and heard once. Its reply goes to the address of the
message. After a restart, the gateway continues the work of earlier processes.
"""

import datetime as dt
import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, assert_never

import trio
from msgspec.structs import replace

from orchestrator.agents import (
    Agent,
    Budget,
    DefinitionError,
    MessageId,
    UserMessage,
    raising_one_error,
    well_formed,
)
from orchestrator.delegation import Encoded, Grant, SessionRecord
from orchestrator.delegation.events import Entry, TurnResumed, TurnStarted, change_state
from orchestrator.delegation.session_context import door_context
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.errors import ClosedError, JournalError, OrchestratorError, error_text
from orchestrator.ports.sessions import (
    DoorState,
    InboundRequest,
    KeptDoor,
    Orchestrator,
    search_request_ahead,
    use_grants,
    with_language_model,
)
from orchestrator.ports.settings import require_trio
from orchestrator.products.chat.access import MINUTE, Access, Rates, user_key
from orchestrator.products.chat.approval_buttons import ApprovalButtons
from orchestrator.products.chat.attachments import receive_files, with_file_tool
from orchestrator.products.chat.chat_address import ChatAddress, parse_chat_address
from orchestrator.products.chat.chat_state import ChatState
from orchestrator.products.chat.commands import Call, Commands, parse_command
from orchestrator.products.chat.conversations import Conversations, address_of
from orchestrator.products.chat.errors import RevokedError
from orchestrator.products.chat.pairing_codes import PairingCodes
from orchestrator.products.chat.platform import (
    ButtonPress,
    ChatEvent,
    ChatMoved,
    IncomingMessage,
    Platform,
    Webhook,
)
from orchestrator.products.chat.recent_messages import RecentMessages
from orchestrator.products.chat.replies import Replies
from orchestrator.products.chat.settings import NO_SETTINGS, GatewaySettings, Profile
from orchestrator.products.schedule.ports import (
    NO_TARGETS,
    Delivery,
    Job,
    Scheduler,
    Target,
    UnpaidError,
)

TYPING_SECONDS: Final = 4.0
"""The seconds between two typing signals to a platform."""
_BEGINS_TURN: Final = (TurnStarted, TurnResumed)


def ignore(line: str) -> None:
    """Ignore a line."""
    del line


class Gateway:
    """One agent on several chat platforms. `open_gateway` opens it."""

    def __init__(
        self,
        orchestrator: Orchestrator,
        agent: Agent[Any],
        platforms: Sequence[Platform],
        nursery: trio.Nursery,
        *,
        jobs: Sequence[Job],
        targets: Mapping[str, Target],
        settings: GatewaySettings,
        workspace: Path,
        clock: Callable[[], float],
        report: Callable[[str], None],
    ) -> None:
        sessions = orchestrator.sessions
        self._facts = orchestrator.facts
        self._read = orchestrator.read
        self._agent = agent
        self._platforms: Mapping[str, Platform] = {it.name: it for it in platforms}
        for platform in platforms:
            redactor = sessions.read.redactor
            redactor.learn(platform.secrets, source=f"platform {platform.name}")
        self._nursery = nursery
        self._settings = settings
        self._workspace = workspace
        self._clock = clock
        self._report = report
        self._replies = Replies(self._facts, self._read, self._platforms, report)
        agents = {it.name: it for it in (*(job.agent for job in jobs), agent)}
        self.scheduler: Final = Scheduler(
            sessions, agents, targets={**targets, **self.targets}, clock=clock, charge=self._charge
        )
        self._door = KeptDoor(
            sessions,
            agents,
            nursery,
            restore=self._restored,
            kinds={
                SessionKind.CHAT: self._replies.deliver,
                SessionKind.JOB_RUN: self.scheduler.deliver,
            },
        )
        self._conversations = Conversations(self._facts, self._read, self._door, agent)
        self.pairing: Final = PairingCodes(self._facts, self._read, self._door, clock)
        self._access = Access(settings, self.pairing)
        self._rates = Rates(clock)
        self._recent = RecentMessages()
        self._approvals = ApprovalButtons(sessions, self._replies, nursery, report)
        self._commands = Commands(
            orchestrator,
            door=self._door,
            conversations=self._conversations,
            approvals=self._approvals,
            access=self._access,
            pairing=self.pairing,
            settings=settings,
            clock=clock,
        )

    @property
    def webhooks(self) -> Mapping[str, Webhook]:
        """The handlers of the platforms' HTTP requests, by their paths."""
        return {
            path: webhook
            for platform in self._platforms.values()
            for path, webhook in platform.webhooks(self).items()
        }

    @property
    def targets(self) -> Mapping[str, Target]:
        """The chats as targets for jobs: `telegram:CHAT`, `telegram:CHAT:THREAD` and the like."""
        return {name: self._target(name) for name in self._platforms}

    def report(self, line: str) -> None:
        """Tell the operator a line."""
        self._report(line)

    async def receive(self, event: ChatEvent) -> None:
        """Take an event of a platform, and return when it is durable."""
        try:
            await self._take(event)
        except ClosedError:
            if not self._read.is_stopping:
                raise
            # Not acknowledged: the next process hears it again.
            await trio.sleep_forever()
        except JournalError:
            raise
        except (OrchestratorError, DefinitionError) as exc:
            self.report(f"{_where(event)}: {error_text(exc)}")
            if isinstance(event, IncomingMessage):
                self._say(event, f"That could not be taken: {error_text(exc)}")
        await trio.lowlevel.checkpoint()

    async def last_anchors(self) -> Mapping[ChatAddress, str]:
        """Return the last message that was read at each address with a session."""
        return await self._conversations.last_anchors()

    async def _take(self, event: ChatEvent) -> None:
        await trio.lowlevel.checkpoint()
        match event:
            case IncomingMessage():
                await self._receive_message(event)
            case ButtonPress():
                if self._access.allows(user_key(event.address, event.user)):
                    await self._approvals.press(event)
            case ChatMoved():
                session = await self._conversations.find(event.old)
                if session is not None:
                    await self._conversations.link(event.new, session)
            case _:
                assert_never(event)

    async def _receive_message(self, message: IncomingMessage) -> None:
        await trio.lowlevel.checkpoint()
        user = user_key(message.address, message.user)
        id_ = message_id(message)
        platform = self._platforms[message.address.platform]
        call = parse_command(message, user, id_, prefix=platform.command_prefix)
        if not self._access.allows(user):
            may_pair = message.is_private and not self._access.blocks(user)
            if call is not None and call.name == "pair" and may_pair:
                await self._pair(message, call)
            return
        if not message.is_addressed and not await self._is_held(message.address):
            return

        async def take() -> None:
            await self._take_message(message, call, id_, user)

        await self._recent.take(id_, take)

    async def _take_message(
        self, message: IncomingMessage, call: Call | None, id_: MessageId, user: str
    ) -> None:
        self._replies.reached(message.address)
        if await self._conversations.has_heard(message.address, id_):
            await self._facts.wait_durable()
            return
        limits = self._settings.limits_of(user)
        if seconds := self._rates.take(user, limits.messages_per_minute):
            self._say(message, f"Too many messages. Write again in {seconds:.0f} s.")
            return
        if call is not None:
            await self._run_command(message, call)
        elif message.text.strip() or message.attachments:
            await self._converse(message, id_, user)

    async def _is_held(self, address: ChatAddress) -> bool:
        """Return whether a thread has a conversation, so that all its messages are for the bot."""
        await trio.lowlevel.checkpoint()
        return bool(address.thread) and await self._conversations.find(address) is not None

    async def _converse(self, message: IncomingMessage, id_: MessageId, user: str) -> None:
        profile = self._settings.profile_of(user)
        platform = self._platforms[message.address.platform]
        workspace = (self._workspace / profile.workspace).absolute()
        own = self._agent.workspace
        folder = workspace / own if isinstance(own, Path) else workspace
        received = await receive_files(platform, message, folder)
        text = well_formed(message.text.strip())
        if not message.is_private:
            # Several people talk in one conversation.
            text = f"{well_formed(message.user.name or message.user.id)}: {text}"
        text = "\n".join((text, *received.lines)).strip()
        grants = self._grants(user)
        request = InboundRequest(
            agent=self._agent_for(profile),
            message=UserMessage(text, received.parts, id=id_),
            context=_context(message, workspace),
        )
        await search_request_ahead(self._read.redactor, request)
        session = await self._conversations.take(message.address)
        # No checkpoint until the message is posted, so that the session stays the current one.
        if told := session.state(ChatState).told:
            text = f"[This chat was told meanwhile:\n{told}]\n\n{text}"
        request = replace(
            request,
            message=UserMessage(text, received.parts, id=id_),
            context={**request.context, "session_key": session.id},
            instructions=self._instructions(session, profile),
        )
        with use_grants(grants):
            self._door.receive(session, request)
        if told:
            self._facts.post(change_state(session.id, ChatState, told=""))
        if session.state(DoorState).language_model != profile.model:
            new = change_state(session.id, DoorState, language_model=profile.model)
            self._facts.post(new)
        await self._facts.wait_durable()

    async def _run_command(self, message: IncomingMessage, call: Call) -> None:
        answer = await self._commands.run(call)
        if isinstance(answer, str):
            self._say(message, answer)
            return

        async def finish() -> None:
            await trio.lowlevel.checkpoint()
            with suppress(ClosedError):
                if text := await answer():
                    self._say(message, text)

        self._nursery.start_soon(finish)

    async def _pair(self, message: IncomingMessage, call: Call) -> None:
        if await self.pairing.pair(call.user, call.argument, call.by):
            self.report(f"{call.user} ({call.by}) was paired")
            self._say(message, f"You may talk to me now. {call.prefix}help says how.")

    def _say(self, message: IncomingMessage, text: str) -> None:
        """Send a note without waiting for it."""

        async def say() -> None:
            await trio.lowlevel.checkpoint()
            with suppress(OrchestratorError):
                await self._replies.note(message.address, text, anchor=message.anchor)

        self._nursery.start_soon(say)

    def _instructions(self, session: SessionRecord, profile: Profile) -> str:
        name = session.state(ChatState).personality or profile.personality
        return self._settings.personalities.get(name, "")

    def _agent_for(self, profile: Profile) -> Agent[Any]:
        """Return the agent with the profile of a person applied."""
        agent = with_language_model(self._agent, profile.model)
        return with_file_tool(agent, list(self._platforms.values()))

    def _restored(self, session: SessionRecord, agent: Agent[Any]) -> Agent[Any]:
        if not _is_chat(session):
            return agent
        return with_file_tool(agent, list(self._platforms.values()))

    def _grants(self, user: str) -> tuple[Grant, ...]:
        """Return the budget of a person for this day."""
        limits = self._settings.limits_of(user)
        usd, tokens = limits.usd_per_day, limits.tokens_per_day
        if usd is None and tokens is None:
            return ()
        today = dt.datetime.fromtimestamp(self._clock(), dt.UTC).date()
        budget = Budget(usd=usd, tokens=tokens, name=f"of {user} on {today}")
        return (Grant.standing(f"chat:{user}:{today}", budget),)

    @contextmanager
    def _charge(self, session: SessionRecord, goes_on: bool) -> Generator[None]:
        """Charge the work of a conversation's job to the person who last talked there."""
        del goes_on
        context = session.root.context
        if not _is_chat(session) or "user_id" not in context:
            yield
            return
        user = f"{context['platform']}:{context['user_id']}"
        if not self._access.allows(user):
            raise UnpaidError(f"{user} may not talk any more")
        with use_grants(self._grants(user)):
            yield

    def _target(self, platform: str) -> Target:
        async def deliver(delivery: Delivery) -> str:
            address = parse_chat_address(f"{platform}:{delivery.address}")
            first = await self._replies.send_parts(
                delivery.reply, address, delivery.text, of=f"{address}#"
            )
            # So that people can reply to it.
            told = f"Job {delivery.job}, due {delivery.due}: {delivery.text}"
            message, _, _ = first.partition(" ")
            answers = self._platforms[platform].address_of_answers(address, message)
            await self._conversations.tell(answers, told)
            return first

        return deliver

    @asynccontextmanager
    async def open(self, jobs: Sequence[Job] | None) -> AsyncGenerator[None]:
        """Hear the platforms and begin jobs for the duration of the block.

        Args:
            jobs: the jobs of the program; None leaves the jobs of earlier processes unchanged.
        """
        with self._read.subscribe(self._follow_turns, kinds=_BEGINS_TURN):
            await self.pairing.load()
            async with self.scheduler.open(self._door, jobs):
                await self._resume()
                for platform in self._platforms.values():
                    self._nursery.start_soon(self._hear, platform)
                yield

    async def _resume(self) -> None:
        """Continue the work of earlier processes."""
        await self._conversations.close_superseded()
        for kind in (SessionKind.CHAT, SessionKind.JOB_RUN):
            for session in await self._door.resume_sessions(kind=kind):
                self.report(
                    f"session {session.id} waits for agent {session.root.agent!r}, which is not"
                    " here"
                )
        chats = [it for it in self._read.records.sessions.values() if _is_chat(it)]
        self._approvals.close_answered(chats)
        self._nursery.start_soon(self._approvals.ask_forever)
        for session in chats:
            if session.turn is not None and session.root.is_running:
                self._nursery.start_soon(self._show_typing, session)

    async def _hear(self, platform: Platform) -> None:
        while True:
            await trio.lowlevel.checkpoint()
            try:
                await platform.run(self)
            except RevokedError as exc:
                self.report(f"{platform.name}: {error_text(exc)}; it is not heard any more")
            except Exception as exc:
                if self._read.is_closed or self._facts.is_broken:
                    raise
                what = f"{type(exc).__name__}: {error_text(exc)}"
                self.report(f"{platform.name}: {what}; it is heard again in a minute")
                await trio.sleep(MINUTE)
                continue
            return

    def _follow_turns(self, entry: Entry, _encoded: Encoded) -> None:
        """Show that an answer is being written, for the duration of a turn."""
        session = self._read.records.sessions.get(entry.session)
        if session is not None and _is_chat(session):
            self._nursery.start_soon(self._show_typing, session)

    async def _show_typing(self, session: SessionRecord) -> None:
        await trio.lowlevel.checkpoint()
        turn = session.turns
        while session.turn is not None and session.turns == turn:
            address = address_of(session.root.context)
            platform = self._platforms.get(address.platform)
            if platform is not None and not self._approvals.open_questions(session):
                # The signal is a courtesy: it must neither delay nor fail a turn.
                with trio.move_on_after(TYPING_SECONDS), suppress(Exception):
                    await platform.show_typing(address)
            await trio.sleep(TYPING_SECONDS)


def message_id(message: IncomingMessage) -> MessageId:
    """Return the id under which a message is posted; a repeated message has the same id."""
    names = f"{message.address.platform}\0{message.id}".encode(errors="replace")
    return MessageId(f"m_{hashlib.sha256(names).hexdigest()[:32]}")


def _context(message: IncomingMessage, workspace: Path) -> Mapping[str, str]:
    """Return the variables of the session, for tools and children."""
    return door_context(
        platform=message.address.platform,
        source=message.address.platform,
        chat_id=message.address.chat,
        chat_name=well_formed(message.chat_name),
        thread_id=message.address.thread,
        user_id=message.user.id,
        user_name=well_formed(message.user.name),
        message_id=message.anchor,
        cwd=str(workspace),
    )


def _is_chat(session: SessionRecord) -> bool:
    return session.kind is SessionKind.CHAT


def _where(event: ChatEvent) -> ChatAddress:
    return event.old if isinstance(event, ChatMoved) else event.address


@asynccontextmanager
async def open_gateway(
    orchestrator: Orchestrator,
    agent: Agent[Any],
    platforms: Sequence[Platform],
    *,
    jobs: Sequence[Job] | None = None,
    targets: Mapping[str, Target] = NO_TARGETS,
    settings: GatewaySettings = NO_SETTINGS,
    workspace: Path | None = None,
    clock: Callable[[], float] = time.time,
    report: Callable[[str], None] = ignore,
) -> AsyncGenerator[Gateway]:
    """Connect an agent to chat platforms for the duration of the block.

    Args:
        orchestrator: runs the agent.
        agent: the agent that people talk to.
        platforms: the platforms, each with its own name.
        jobs: jobs that begin by the clock meanwhile, and may deliver to chats; None begins only the
            jobs that agents set.
        targets: the kinds of targets, besides chats and files, by the word before the colon.
        settings: who may talk, and how much; by default no person may.
        workspace: the folder that tools work in, and receives files; by default the current one.
        clock: returns the time of day.
        report: called with each line for the operator.
    """
    require_trio()
    names = [it.name for it in platforms]
    if len(set(names)) < len(names):
        raise DefinitionError(f"two platforms have one name: {', '.join(names)}")
    with raising_one_error():
        async with trio.open_nursery() as nursery:
            gateway = Gateway(
                orchestrator,
                agent,
                platforms,
                nursery,
                jobs=jobs or (),
                targets=targets,
                settings=settings,
                workspace=Path.cwd() if workspace is None else workspace,
                clock=clock,
                report=report,
            )
            async with gateway.open(jobs):
                yield gateway
            nursery.cancel_scope.cancel(reason="the gateway is closed")
