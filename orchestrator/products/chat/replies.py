"""The delivery of replies to chats, part by part.

Facts record which part was taken, and which is being sent: after a crash the rest is sent, and the
one part that an earlier process may have sent is marked. A pause that a platform asks for applies
to the chat.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import Final

import attrs
import trio

from orchestrator.agents import AssistantMessage
from orchestrator.delegation import Ending, Reply, SessionRecord
from orchestrator.delegation.events import DeliveryFailed, ReplyPartDelivered, change_state
from orchestrator.ports.errors import error_text
from orchestrator.ports.journals import Facts
from orchestrator.ports.reads import ReadApi
from orchestrator.products.chat import errors
from orchestrator.products.chat.chat_address import ChatAddress, parse_chat_address
from orchestrator.products.chat.chat_state import ChatState
from orchestrator.products.chat.conversations import address_of
from orchestrator.products.chat.platform import Platform, Sent, TextPart

MARK: Final = "(Sent again: it is not known whether this arrived before.)"
NOTHING: Final = "(The answer is empty.)"
MOST_RECORDED: Final = 8
"""The most failures of one part that are recorded as facts; the attempts continue."""
LONGEST_PAUSE: Final = 60.0
MOST_MOVES: Final = 3
MOST_NOTE_ATTEMPTS: Final = 4


def _text_of(session: SessionRecord, reply: Reply) -> str:
    """Return a reply for people: of a stopped turn its words so far, marked."""
    if reply.outcome.ending is not Ending.CANCELLED:
        return reply.text.strip() or NOTHING
    last = session.root.transcript[-1] if session.root.transcript else None
    is_its = session.turn is None and session.turns == reply.turn
    if is_its and isinstance(last, AssistantMessage) and last.incomplete and last.text.strip():
        return f"{last.text.strip()}\n\n({reply.text})"
    return reply.text


class Replies:
    """Sends texts to the chats of all platforms."""

    def __init__(
        self,
        facts: Facts,
        read: ReadApi,
        platforms: Mapping[str, Platform],
        report: Callable[[str], None],
    ) -> None:
        self._facts = facts
        self._read = read
        self._platforms = platforms
        self._report = report
        self._pauses: dict[tuple[str, str], float] = {}
        """The time of the next message to a chat, by trio's clock."""
        self._gone: dict[tuple[str, str], str] = {}
        """The unreachable chats, with the reason."""
        self._reached: set[tuple[str, str]] = set()
        """The chats with a message of a person since this process began."""

    def platform(self, address: ChatAddress) -> Platform:
        """Return the platform of an address; raise `ChatError` if this gateway lacks it."""
        if address.platform not in self._platforms:
            raise errors.ChatError(f"{address} is on a platform that this gateway has not")
        return self._platforms[address.platform]

    def reached(self, address: ChatAddress) -> None:
        """Note that a person has written in a chat, so the chat is reachable again."""
        self._gone.pop(_chat_of(address), None)
        self._reached.add(_chat_of(address))

    async def deliver(self, session: SessionRecord, reply: Reply) -> None:
        """Deliver a reply to the address of its message."""
        address = address_of(reply.context)
        if not address.platform:
            # A job of this session began the turn, not a person.
            address = parse_chat_address(session.state(ChatState).address)
        await self.send_parts(
            reply, address, _text_of(session, reply), anchor=reply.context.get("message_id", "")
        )

    async def send_parts(
        self, reply: Reply, address: ChatAddress, text: str, *, anchor: str = "", of: str = ""
    ) -> str:
        """Send a text, record its parts as facts of a reply, and return the id of the first
        message.

        `of` names a delivery, if the reply has several. Raise `GoneError` if no message reaches the
        chat.
        """
        await trio.lowlevel.checkpoint()
        platform = self.platform(address)
        for number, part in enumerate(platform.split(text), 1):
            name = f"{of}{number}"
            if not self._is_delivered(reply, name):
                address = await self._send_part(reply, address, part, name, anchor=anchor)
            anchor = ""
        return self._receipt(reply, f"{of}1")

    async def note(self, address: ChatAddress, text: str, *, anchor: str = "") -> None:
        """Send a text that is not a reply of an agent, such as the answer to a command.

        It is not recorded: a crash or a long network failure loses it.
        """
        await trio.lowlevel.checkpoint()
        platform = self.platform(address)
        # Replies come from facts, which contain no secrets; an error may contain one.
        for part in platform.split(self._read.redactor.redact(text)):
            key = secrets.token_hex(8)
            for attempt in range(1, MOST_NOTE_ATTEMPTS + 1):
                await self._wait_allowed(address)
                try:
                    await platform.send(address, part, key=key, anchor=anchor)
                    break
                except errors.RetryAfterError as exc:
                    self._pause(address, exc.seconds)
                except errors.NotSentError:
                    await trio.sleep(2**attempt)
                except Exception as exc:  # noqa: BLE001 (a platform is code of others)
                    self._report(f"{address}: a note was not sent: {error_text(exc)}")
                    return
            anchor = ""

    async def _send_part(
        self, reply: Reply, address: ChatAddress, part: TextPart, name: str, *, anchor: str
    ) -> ChatAddress:
        """Send one part until it is taken, and return the address that took it."""
        await trio.lowlevel.checkpoint()
        sending = f"{reply.turn}/{name}"
        session = self._read.records.sessions[reply.session]
        if (gone := session.state(ChatState).gone) and _chat_of(address) not in self._reached:
            raise errors.GoneError(gone)
        # An earlier process was sending it, and left no trace of what came of that part.
        is_repeated = session.state(ChatState).sending == sending
        attempt = _Attempt(address, part, is_repeated=is_repeated)
        sent: Sent | None = None
        while sent is None:
            await self._wait_allowed(attempt.address)
            if not self._is_wanted(reply):
                return attempt.address
            if session.state(ChatState).sending != sending:
                self._facts.post(change_state(reply.session, ChatState, sending=sending))
            await self._facts.wait_durable()
            try:
                sent = await self.platform(attempt.address).send(
                    attempt.address,
                    attempt.part,
                    key=f"{reply.session}/{sending}",
                    anchor=anchor,
                    mark=attempt.mark,
                )
            except errors.RetryAfterError as exc:
                self._pause(attempt.address, exc.seconds)
            except (errors.GoneError, errors.RevokedError) as exc:
                self._gone[attempt.chat] = str(exc)
                # The part was certainly not taken, so it is no repetition if the chat comes back.
                gone = str(exc) if isinstance(exc, errors.GoneError) else ""
                self._facts.post(change_state(reply.session, ChatState, sending="", gone=gone))
                self._reached.discard(attempt.chat)
                raise
            except Exception as exc:  # noqa: BLE001 (a platform is code of others)
                attempt = attempt.after(exc)
                self._record_failure(reply, attempt.failures, exc)
                await trio.sleep(attempt.pause)
        if self._is_wanted(reply):
            receipt = f"{sent.id} ({sent.changed})" if sent.changed else sent.id
            self._facts.post(ReplyPartDelivered(reply.session, reply.turn, name, receipt))
            if session.state(ChatState).gone:
                self._facts.post(change_state(reply.session, ChatState, gone=""))
        return attempt.address

    def _record_failure(self, reply: Reply, attempt: int, exc: Exception) -> None:
        if attempt <= MOST_RECORDED and self._is_wanted(reply):
            error = f"{type(exc).__name__}: {error_text(exc)}"
            failed = DeliveryFailed(reply.session, reply.turn, attempt, error)
            self._facts.post(failed)

    def _pause(self, address: ChatAddress, seconds: float) -> None:
        at = trio.current_time() + seconds
        chat = _chat_of(address)
        self._pauses[chat] = max(at, self._pauses.get(chat, 0.0))

    async def _wait_allowed(self, address: ChatAddress) -> None:
        chat = _chat_of(address)
        if chat in self._gone:
            raise errors.GoneError(self._gone[chat])
        while self._pauses.get(chat, 0.0) > trio.current_time():  # noqa: ASYNC110 (the pause may grow)
            await trio.sleep_until(self._pauses[chat])
        self._pauses.pop(chat, None)
        await trio.lowlevel.checkpoint()

    def _is_wanted(self, reply: Reply) -> bool:
        """Return whether a reply must still be delivered: `/new` drops earlier replies."""
        session = self._read.records.sessions.get(reply.session)
        return session is not None and reply.turn in session.undelivered

    def _is_delivered(self, reply: Reply, part: str) -> bool:
        return not self._is_wanted(reply) or part in self._parts(reply)

    def _receipt(self, reply: Reply, part: str) -> str:
        return self._parts(reply).get(part, "") if self._is_wanted(reply) else ""

    def _parts(self, reply: Reply) -> Mapping[str, str]:
        # The reply is unchanged since the first attempt.
        session = self._read.records.sessions[reply.session]
        return session.undelivered[reply.turn].parts


@attrs.frozen
class _Attempt:
    """The part to send and its address, after the failures so far."""

    address: ChatAddress
    part: TextPart
    is_repeated: bool
    """Whether the part may have been taken before."""
    failures: int = 0
    pause: float = 0.0
    """The seconds to wait before the next attempt."""

    @property
    def chat(self) -> tuple[str, str]:
        return _chat_of(self.address)

    @property
    def mark(self) -> str:
        return MARK if self.is_repeated else ""

    def after(self, exc: Exception) -> "_Attempt":
        """Return the next attempt after a failure, or raise if there is none."""
        failures = self.failures + 1
        if isinstance(exc, errors.MovedError) and failures <= MOST_MOVES:
            return attrs.evolve(self, address=exc.address, failures=failures, pause=0.0)
        if isinstance(exc, errors.RefusedError) and not self.failures:
            # The rest is worth more with a note about the gap.
            gap = TextPart(f"(A part is missing: {exc})")
            return attrs.evolve(self, part=gap, failures=failures, pause=0.0)
        if isinstance(exc, errors.MovedError | errors.RefusedError):
            raise exc
        return attrs.evolve(
            self,
            is_repeated=self.is_repeated or not isinstance(exc, errors.NotSentError),
            failures=failures,
            pause=min(LONGEST_PAUSE, 2.0 ** min(failures - 1, 10)),
        )


def _chat_of(address: ChatAddress) -> tuple[str, str]:
    return address.platform, address.chat
