"""The session for the messages of an address: the newest open one.

There is no table: the sessions of an address are found by their numbers. Sessions may have been
pruned, so numbers before the newest may be missing.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import trio

from orchestrator.agents import Agent, MessageId, UserMessage
from orchestrator.delegation import SessionId, SessionRecord
from orchestrator.delegation.events import change_state
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.journals import Facts
from orchestrator.ports.reads import ReadApi
from orchestrator.ports.sessions import KeptDoor
from orchestrator.products.chat.chat_address import PREFIX, ChatAddress, parse_chat_address
from orchestrator.products.chat.chat_state import ChatState

NO_MESSAGE: Final = MessageId("")
MOST_TOLD: Final = 8_000
GAP: Final = 64
"""The most missing numbers in a row."""
LATEST: Final = 500
"""The number of newest sessions that are searched for the last messages."""
EARLIER: Final = 2
"""The number of sessions before the newest that may have received a repeated message."""


def address_of(context: Mapping[str, str]) -> ChatAddress:
    """Return the address in the variables of a session."""
    return ChatAddress(
        context.get("platform", ""), context.get("chat_id", ""), context.get("thread_id", "")
    )


class Conversations:
    """The sessions of all addresses."""

    def __init__(self, facts: Facts, read: ReadApi, door: KeptDoor, agent: Agent[Any]) -> None:
        self._facts = facts
        self._read = read
        self._door = door
        self._agent = agent
        self._newest: dict[ChatAddress, int] = {}
        """The newest number of each address that was looked up."""
        self._heard: dict[ChatAddress, set[MessageId]] = {}
        """The messages that the sessions of an address before its newest have received."""

    async def find(self, address: ChatAddress) -> SessionRecord | None:
        """Return the open session of an address, if there is one."""
        while True:
            number = self._number(address)
            session = await self._load(address.session(number))
            if session is not None and (linked := session.state(ChatState).linked_to):
                session = await self._load(linked)
            # Another message may have opened the next session meanwhile.
            if number == self._number(address):
                return session if session and self._is_current(session) else None

    async def take(self, address: ChatAddress) -> SessionRecord:
        """Return the open session of an address; open one if there is none."""
        return await self.find(address) or self._open(address)

    async def begin(self, address: ChatAddress, by: MessageId) -> SessionRecord | None:
        """Open the next session of an address, and return the previous one, which the caller
        closes.

        A session that is also linked to another address continues there. A repeated message has no
        further effect.
        """
        before = await self.find(address)
        newest = await self._load(address.session(self._number(address)))
        if newest is not None and newest.state(ChatState).opened_by == by:
            return None
        if newest is not None:
            self._heard.setdefault(address, set()).update(_messages_of(newest))
        self._open(address, by)
        is_linked = newest is not None and newest.state(ChatState).linked_to
        return None if is_linked else before

    async def close_superseded(self) -> None:
        """Close the sessions that a dead process left open after a `/new`."""
        await trio.lowlevel.checkpoint()
        for session in list(self._read.records.sessions.values()):
            if self._is_current(session) and await self._is_superseded(session):
                await self._door.close(session)

    async def _is_superseded(self, session: SessionRecord) -> bool:
        address = parse_chat_address(session.state(ChatState).address)
        for number in range(self._number(address)):
            if address.session(number) == session.id:
                after = await self._load(address.session(number + 1))
                return after is not None and bool(after.state(ChatState).opened_by)
        await trio.lowlevel.checkpoint()
        return False

    async def link(self, address: ChatAddress, session: SessionRecord) -> None:
        """Continue the conversation of an address in another session, from the next message on."""
        if (await self.find(address)) is session:
            return
        number = self._number(address) + 1
        state = ChatState(linked_to=session.id, address=str(address))
        self._door.open_record(address.session(number), states=(state,))
        self._newest[address] = number
        await self._facts.wait_durable()

    async def has_heard(self, address: ChatAddress, message: MessageId) -> bool:
        """Return whether this process or an earlier one has posted a message."""
        if address not in self._heard:
            # A repeated message was not acknowledged, so it is recent.
            heard: set[MessageId] = set()
            newest = self._number(address)
            for number in range(max(0, newest - EARLIER), newest):
                if (session := await self._load(address.session(number))) is not None:
                    heard.update(_messages_of(session))
            self._heard.setdefault(address, heard)
        session = await self.find(address)
        return message in self._heard[address] or (
            session is not None
            and (
                session.state(ChatState).opened_by == message
                or session.root.transcript.find(message) is not None
                or any(message == id_ for id_ in _unread(session))
            )
        )

    async def last_anchors(self) -> Mapping[ChatAddress, str]:
        """Return the last message that was read at each address with an open session."""
        await trio.lowlevel.checkpoint()
        found: dict[ChatAddress, str] = {}
        ids = [it for it in self._read.session_ids if it.startswith(PREFIX)]
        for id_ in ids[-LATEST:]:
            with suppress(UnknownIdError):
                session = (await self._read.session(id_)).session
                context = session.root.context
                if self._is_current(session) and "message_id" in context:
                    found[address_of(context)] = context["message_id"]
        return found

    async def tell(self, address: ChatAddress, text: str) -> None:
        """Record a text that others sent to an address, for its agent to read."""
        session = await self.take(address)
        told = session.state(ChatState).told
        if text not in told:
            told = f"{told}\n\n{text}".strip()[-MOST_TOLD:]
            self._facts.post(change_state(session.id, ChatState, told=told))
        await self._facts.wait_durable()

    def _open(self, address: ChatAddress, by: MessageId = NO_MESSAGE) -> SessionRecord:
        number = self._number(address) + 1
        session = self._door.open_conversation(
            self._agent,
            address.session(number),
            kind=SessionKind.CHAT,
            states=(ChatState(address=str(address), opened_by=by),),
        )
        self._newest[address] = number
        return session

    def _is_current(self, session: SessionRecord) -> bool:
        is_ours = session.kind is SessionKind.CHAT
        return is_ours and not session.closed and session.root.agent == self._agent.name

    def _number(self, address: ChatAddress) -> int:
        """Return the newest session number of an address, or -1."""
        if address not in self._newest:
            known, newest, number = self._read.session_ids, -1, 0
            while number <= newest + GAP:
                if address.session(number) in known:
                    newest = number
                number += 1
            self._newest[address] = newest
        return self._newest[address]

    async def _load(self, session: SessionId) -> SessionRecord | None:
        try:
            return await self._door.find(session)
        except UnknownIdError:
            return None  # noqa: ASYNC910 (its callers look again after it, and wait later)


def _messages_of(session: SessionRecord) -> Iterator[MessageId]:
    for message in session.root.transcript:
        if isinstance(message, UserMessage):
            yield message.id
    yield from _unread(session)
    if opened_by := session.state(ChatState).opened_by:
        yield opened_by


def _unread(session: SessionRecord) -> Iterator[MessageId]:
    for mail in session.mail.values():
        if isinstance(mail, UserMessage):
            yield mail.id
