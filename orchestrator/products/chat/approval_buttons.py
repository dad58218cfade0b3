"""Approvals as buttons: a question goes to the address of its session, and the first answer counts.

The state of the session records the message with the buttons, so that a later process does not ask
again, and removes the buttons when the question is answered, in the chat or elsewhere.

A question can be approved only if the chat shows it whole: a long question is sent as a file, and
without the file it can only be denied.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Final

import trio

from orchestrator.delegation import Encoded, SessionRecord
from orchestrator.delegation.events import ApprovalAnswered, Entry, change_state
from orchestrator.delegation.events.approvals import ApprovalQuestion, ApprovalVerdict
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.errors import UnknownIdError, error_text
from orchestrator.ports.sessions import ApprovalQuestions, Sessions, answer_question
from orchestrator.products.chat import errors
from orchestrator.products.chat.access import user_key
from orchestrator.products.chat.chat_address import ChatAddress, parse_chat_address
from orchestrator.products.chat.chat_state import ButtonsMessage, ChatState
from orchestrator.products.chat.conversations import address_of
from orchestrator.products.chat.platform import Button, ButtonPress, Platform
from orchestrator.products.chat.replies import Replies

MOST_SHOWN: Final = 900
"""The most characters of a question in a message: with markup, they fit on all platforms."""
MOST_IN_SHORT: Final = 180
"""The most characters of each line in the message of a long question."""
LONGEST_NAME: Final = 64
FILE_NAME: Final = "question.txt"
LONGEST_PAUSE: Final = 60.0
CLOSE_ATTEMPTS: Final = 4
TOO_LATE: Final = "It was answered already, or its time is over."
NOT_WHOLE: Final = (
    "It is not shown here as a whole, so it can only be denied here. Approve it with"
    " `orchestrator approve`."
)
WORDS: Final[Mapping[ApprovalVerdict, str]] = {
    ApprovalVerdict.ONCE: "Approve",
    ApprovalVerdict.TASK: "For this task",
    ApprovalVerdict.SESSION: "For this chat",
    ApprovalVerdict.DENY: "Deny",
}
ANSWERED: Final[Mapping[ApprovalVerdict, str]] = {
    ApprovalVerdict.ONCE: "Approved",
    ApprovalVerdict.TASK: "Approved for this task",
    ApprovalVerdict.SESSION: "Approved for this chat",
    ApprovalVerdict.DENY: "Denied",
}


class NotShownError(Exception):
    """A person approves a question that the chat does not show as a whole."""


class ApprovalButtons:
    """Asks people in chats for approval."""

    def __init__(
        self,
        sessions: Sessions,
        replies: Replies,
        nursery: trio.Nursery,
        report: Callable[[str], None],
    ) -> None:
        self._sessions = sessions
        self._facts = sessions.facts
        self._read = sessions.read
        self._replies = replies
        self._nursery = nursery
        self._report = report
        self._answers: dict[str, ApprovalAnswered] = {}
        """The answers to questions that still show their buttons."""
        self._asked: set[str] = set()
        """The questions that are being sent."""

    async def ask_forever(self) -> None:
        """Send each question of a chat once, and remove its buttons when it is answered."""
        questions = ApprovalQuestions(self._sessions, None, is_closed=lambda: self._read.is_closed)
        with self._read.subscribe(self._note_answer, kinds=(ApprovalAnswered,)):
            async for question in questions:
                records = self._read.records
                session = records.sessions[records.tasks[question.task].session]
                if session.kind is SessionKind.CHAT:
                    self._asked.add(question.id)
                    self._nursery.start_soon(self._ask_until_answered, session, question)

    def close_answered(self, sessions: Iterable[SessionRecord]) -> None:
        """Remove the buttons of questions that were answered after the asking process had died."""
        for session in sessions:
            is_open = {it.id for it in self.open_questions(session)}
            for question in session.state(ChatState).asked.keys() - is_open:
                self._nursery.start_soon(self._close, session, question, "It is no longer open.")

    def open_questions(self, session: SessionRecord) -> list[ApprovalQuestion]:
        """Return the questions of a session without an answer, oldest first."""
        return self._read.open_questions(session.id)

    async def press(self, press: ButtonPress) -> None:
        """Take an answer, if the person may answer."""
        verdict, _, approval = press.data.partition(":")
        text = TOO_LATE
        with suppress(UnknownIdError, ValueError):
            session = self._asked_in(approval, press)
            by = author_of(user_key(press.address, press.user), press.user.name)
            try:
                await self.answer(
                    session, approval, ApprovalVerdict(verdict), by=by, at=press.address
                )
                text = ANSWERED[ApprovalVerdict(verdict)]
            except NotShownError as exc:
                text = str(exc)
        self._nursery.start_soon(self._tell_presser, press, text)
        await trio.lowlevel.checkpoint()

    async def answer(
        self,
        session: SessionRecord,
        approval: str,
        verdict: ApprovalVerdict,
        *,
        by: str,
        at: ChatAddress,
        reason: str = "",
    ) -> None:
        """Answer an open question of a session, durably, at the address of the person.

        Raise `UnknownIdError` if it is not open, and `NotShownError` if the address does not show
        what would be approved: linked chats share a session, and one of them shows the question.
        """
        asked = session.state(ChatState).asked.get(approval)
        is_shown = asked is not None and asked.is_whole and asked.address == str(at)
        if verdict is not ApprovalVerdict.DENY and not is_shown:
            await trio.lowlevel.checkpoint()
            raise NotShownError(NOT_WHOLE)
        await answer_question(
            self._sessions, approval, verdict, by=by, reason=reason, session=session.id
        )

    def is_later(self, session: SessionRecord, approval: str, message: str) -> bool:
        """Return whether a question was shown after a message was written at the same address.

        Platforms number the messages of a chat in their order, and may deliver one hours later.
        """
        asked = session.state(ChatState).asked.get(approval)
        try:
            return asked is not None and Decimal(message) < Decimal(asked.id)
        except InvalidOperation:
            return False

    def _asked_in(self, approval: str, press: ButtonPress) -> SessionRecord:
        """Return the session of a question, if the pressed button belongs to it."""
        for question in self._read.open_questions():
            if question.id == approval:
                records = self._read.records
                session = records.sessions[records.tasks[question.task].session]
                asked = session.state(ChatState).asked.get(approval)
                here = (str(press.address), press.message)
                if asked is not None and (asked.address, asked.id) == here:
                    return session
        raise UnknownIdError(f"no question {approval!r} is open there")

    async def _ask_until_answered(self, session: SessionRecord, question: ApprovalQuestion) -> None:
        try:
            await self._ask(session, question)
        finally:
            self._asked.discard(question.id)
            self._answers.pop(question.id, None)

    async def _ask(self, session: SessionRecord, question: ApprovalQuestion) -> None:
        await trio.lowlevel.checkpoint()
        if question.id not in session.state(ChatState).asked:
            address = address_of(session.root.context)
            try:
                sent = await self._send(session, address, question)
            except Exception as exc:  # noqa: BLE001 (a platform is code of others)
                self._report(f"{address}: no person was asked: {error_text(exc)}")
                return
            if sent is None or session.closed:
                return
            self._facts.post(change_state(session.id, ChatState, asked={question.id: sent}))
        while self._is_open(session, question):
            await self._read.wait_session_changed(session.id)
        await self._close(session, question.id, self._answer_text(question))

    async def _send(
        self, session: SessionRecord, address: ChatAddress, question: ApprovalQuestion
    ) -> ButtonsMessage | None:
        """Send a question while it is open, and return its message."""
        platform, pause = self._replies.platform(address), 1.0
        whole = question_text(question, self._read.now())
        file = b"" if len(whole) <= MOST_SHOWN else whole.encode(errors="replace")
        is_whole = len(file) <= platform.largest_upload
        anchor = session.root.context.get("message_id", "")
        while self._is_open(session, question):
            try:
                if file and is_whole:
                    is_whole = await _sends_file(platform, address, question, file, anchor)
                    file = b""
                text = question_text(question, self._read.now())
                if len(text) > MOST_SHOWN:
                    text = short_question_text(question, self._read.now(), is_whole=is_whole)
                buttons = [
                    Button(words, f"{verdict}:{question.id}")
                    for verdict, words in WORDS.items()
                    if is_whole or verdict is ApprovalVerdict.DENY
                ]
                sent = await platform.send_buttons(
                    address, text, buttons, key=question.id, anchor=anchor
                )
            except errors.RetryAfterError as exc:
                await trio.sleep(exc.seconds)
            except (errors.GoneError, errors.RefusedError, errors.RevokedError):
                raise
            except errors.ChatError:
                # A question that is shown twice is answered once.
                await trio.sleep(pause)
                pause = min(LONGEST_PAUSE, pause * 2)
            else:
                return ButtonsMessage(str(address), sent.id, is_whole)
        await trio.lowlevel.checkpoint()
        return None

    async def _close(self, session: SessionRecord, question: str, text: str) -> None:
        """Remove the buttons of a question; if the platform is gone for long, they stay."""
        await trio.lowlevel.checkpoint()
        asked = session.state(ChatState).asked.get(question)
        if asked is None:
            return
        for attempt in range(CLOSE_ATTEMPTS):
            try:
                address = parse_chat_address(asked.address)
                await self._replies.platform(address).close_buttons(address, asked.id, text)
                break
            except errors.RetryAfterError as exc:
                await trio.sleep(exc.seconds)
            except (errors.GoneError, errors.RefusedError, errors.RevokedError) as exc:
                self._report(f"{asked.address}: buttons were not closed: {error_text(exc)}")
                break
            except errors.ChatError:
                # The operation is idempotent.
                await trio.sleep(2**attempt)
            except Exception as exc:  # noqa: BLE001 (a platform is code of others)
                self._report(f"{asked.address}: buttons were not closed: {error_text(exc)}")
                break
        if not self._read.is_closed and not session.deleted:
            self._facts.post(change_state(session.id, ChatState, asked={question: None}))

    async def _tell_presser(self, press: ButtonPress, text: str) -> None:
        await trio.lowlevel.checkpoint()
        try:
            await self._replies.platform(press.address).answer_press(press, text)
        except Exception as exc:  # noqa: BLE001 (a platform is code of others)
            self._report(f"{press.address}: a press was not answered: {error_text(exc)}")

    def _note_answer(self, entry: Entry, _encoded: Encoded) -> None:
        """Record the answer to a question: the ledger forgets it at the end of the turn."""
        event = entry.event
        if isinstance(event, ApprovalAnswered) and event.id in self._asked:
            self._answers[event.id] = event

    def _is_open(self, session: SessionRecord, question: ApprovalQuestion) -> bool:
        return any(it.id == question.id for it in self.open_questions(session))

    def _answer_text(self, question: ApprovalQuestion) -> str:
        asked = f"{_short(question.path)} · {question.tool}\n{_short(question.subject)}"
        found = self._answers.get(question.id)
        if found is None:
            return f"{asked}\n\nIt is no longer open."
        by = f" by {found.by}" if found.by else ""
        return f"{asked}\n\n{ANSWERED[found.answer]}{by}."


async def _sends_file(
    platform: Platform,
    address: ChatAddress,
    question: ApprovalQuestion,
    content: bytes,
    anchor: str,
) -> bool:
    """Send a question as a file, and return whether the platform has taken it."""
    try:
        await platform.send_file(
            address, FILE_NAME, content, key=f"{question.id}-file", anchor=anchor
        )
    except (errors.GoneError, errors.RefusedError):
        # A chat may take messages and no files.
        return False  # noqa: ASYNC910 (the platform has answered)
    return True


def author_of(user: str, name: str) -> str:
    """Return the author of a verdict: `PLATFORM:USER`, and the name that the person claims."""
    return f"{user}, named {name[:LONGEST_NAME]!r}" if name else user


def question_text(question: ApprovalQuestion, now: float) -> str:
    """Return the whole text of a question."""
    details = "" if question.details == question.subject else question.details
    return _text(question, now, question.path, question.subject, question.why, details)


def short_question_text(question: ApprovalQuestion, now: float, *, is_whole: bool) -> str:
    """Return the text of a long question; a file has the rest."""
    more = f"Read the whole call in the file {FILE_NAME} before you approve it."
    path, subject, why = map(_short, (question.path, question.subject, question.why))
    return _text(question, now, path, subject, why, more if is_whole else NOT_WHOLE)


def _text(question: ApprovalQuestion, now: float, path: str, *lines: str) -> str:
    minutes = max(1, round((question.deadline - now) / 60))
    first = f"{path} asks to run {question.tool}:"
    last = f"Without an answer it is denied in {minutes} min."
    return "\n".join(line for line in (first, *lines, last) if line)


def _short(text: str) -> str:
    """Return the beginning and the end of a text: either may contain the harmful part."""
    if len(text) <= MOST_IN_SHORT:
        return text
    half, left_out = MOST_IN_SHORT // 2, len(text) - MOST_IN_SHORT
    return f"{text[:half]} ⟨{left_out} characters are not shown⟩ {text[-half:]}"
