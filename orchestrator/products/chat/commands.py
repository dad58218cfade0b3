"""The commands that people write in a chat: `/new`, `/stop`, `/tree` and others.

The effect of a command is durable when the command is acknowledged; its answer is a note, which a
crash may lose.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

import attrs
import trio

from orchestrator.agents import MessageId
from orchestrator.delegation import SessionId
from orchestrator.delegation.events import MetadataChanged, StateChanged, change_state
from orchestrator.delegation.events.approvals import ApprovalVerdict
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.sessions import KeptDoor, Orchestrator
from orchestrator.products.chat.access import Access
from orchestrator.products.chat.approval_buttons import (
    TOO_LATE,
    ApprovalButtons,
    NotShownError,
    author_of,
)
from orchestrator.products.chat.chat_address import ChatAddress
from orchestrator.products.chat.chat_state import ChatState
from orchestrator.products.chat.conversations import Conversations
from orchestrator.products.chat.one_time_codes import OneTimeCodes
from orchestrator.products.chat.pairing_codes import PairingCodes
from orchestrator.products.chat.platform import IncomingMessage
from orchestrator.products.chat.settings import GatewaySettings

TITLE: Final = "title"
"""The note of a session that has its title, as the console reads it."""
MOST_ANSWERED: Final = 20
LONGEST_TITLE: Final = 100
MOST_LINKS: Final = 100
TREE_ROWS: Final = 40
NO_SESSION: Final = "There is no conversation here yet."
NOTHING_WAITS: Final = "No call waits for an approval here."
_COMMAND: Final = re.compile(r"([a-z]+)(?:@\S+)?(?:\s+(.*))?\Z", re.DOTALL)

Later: TypeAlias = Callable[[], Awaitable[str]]
"""Finishes a command and returns its answer; "" if the reply of a turn says it already."""


@attrs.frozen(kw_only=True)
class Call:
    """A command from a person."""

    name: str
    argument: str
    prefix: str
    user: str
    """The person, as `PLATFORM:USER`."""
    by: str
    """The name of the person."""
    address: ChatAddress
    message: MessageId
    anchor: str
    """The id of the message on its platform."""
    is_private: bool


def parse_command(
    message: IncomingMessage, user: str, id_: MessageId, *, prefix: str
) -> Call | None:
    """Return the command in a message of a `PLATFORM:USER`, if there is one."""
    text = message.text.strip()
    # A slash also works, if the platform lets it through.
    if not text.startswith((prefix, "/")):
        return None
    found = _COMMAND.fullmatch(text[1:])
    if found is None:
        return None
    return Call(
        name=found[1],
        argument=(found[2] or "").strip(),
        prefix=prefix,
        user=user,
        by=message.user.name or message.user.id,
        address=message.address,
        message=id_,
        anchor=message.anchor,
        is_private=message.is_private,
    )


class Commands:
    """Runs commands. Each returns its answer, or a function that waits for it."""

    def __init__(
        self,
        orchestrator: Orchestrator,
        *,
        door: KeptDoor,
        conversations: Conversations,
        approvals: ApprovalButtons,
        access: Access,
        pairing: PairingCodes,
        settings: GatewaySettings,
        clock: Callable[[], float],
    ) -> None:
        self._orchestrator = orchestrator
        self._door = door
        self._conversations = conversations
        self._approvals = approvals
        self._access = access
        self._pairing = pairing
        self._settings = settings
        self._links = OneTimeCodes[SessionId](clock, most=MOST_LINKS)
        self._commands: Mapping[str, Callable[[Call], Awaitable[str | Later]]] = {
            "new": self._new,
            "stop": self._stop,
            "tree": self._tree,
            "cost": self._cost,
            "approve": self._approve,
            "deny": self._deny,
            "personality": self._personality,
            "title": self._title,
            "link": self._link,
            "invite": self._invite,
            "help": self._help,
            "start": self._help,
        }

    async def run(self, call: Call) -> str | Later:
        """Run a command until it is durable, and return its answer, or a wait for it."""
        run = self._commands.get(call.name)
        if run is None:
            await trio.lowlevel.checkpoint()
            return _with_prefix(
                f"There is no command /{call.name}; /help lists those that there are.", call
            )
        return await run(call)

    async def _new(self, call: Call) -> str | Later:
        before = await self._conversations.begin(call.address, call.message)
        await self._orchestrator.facts.wait_durable()
        if before is None:
            return "A new conversation begins."

        async def close() -> str:
            await self._door.close(before)
            return "A new conversation begins. What ran in the one before has ended."

        return close

    async def _stop(self, call: Call) -> str | Later:
        session = await self._conversations.find(call.address)
        if session is None or session.has_nothing_pending:
            return "Nothing runs here."

        is_in_turn = session.turn is not None

        async def stop() -> str:
            await self._orchestrator.cancel(session.id, tree=True)
            return "" if is_in_turn else "Stopped."

        return stop

    async def _tree(self, call: Call) -> str:
        session = await self._conversations.find(call.address)
        if session is None or not session.turns:
            return NO_SESSION
        now = self._orchestrator.read.now() if session.tree.is_at_work else None
        return f"```\n{session.tree.to_text(rows=TREE_ROWS, now=now)}\n```"

    async def _cost(self, call: Call) -> str:
        session = await self._conversations.find(call.address)
        if session is None or not session.turns:
            return NO_SESSION
        total = session.tree.total
        bound = "at least " if total.is_lower_bound else ""
        return (
            f"{bound}${total.usd:.4f} for {total.calls} model calls:"
            f" {total.input_tokens} tokens read, {total.output_tokens} written,"
            f" {len(session.tree) - 1} tasks delegated."
        )

    async def _approve(self, call: Call) -> str:
        verdict = call.argument.lower() or "once"
        if verdict not in {"once", "task", "session"}:
            await trio.lowlevel.checkpoint()
            return _with_prefix("Write /approve, /approve task or /approve session.", call)
        return await self._answer(call, ApprovalVerdict(verdict), "")

    async def _deny(self, call: Call) -> str:
        return await self._answer(call, ApprovalVerdict.DENY, call.argument)

    async def _answer(self, call: Call, verdict: ApprovalVerdict, reason: str) -> str:
        session = await self._conversations.find(call.address)
        questions = [] if session is None else self._approvals.open_questions(session)
        if session is None:
            return NOTHING_WAITS
        answered = session.state(ChatState).answered
        chosen = answered.get(call.message)
        if chosen is None:
            if not questions:
                return NOTHING_WAITS
            # Posted before the answer, without a checkpoint between, so that it is chosen once.
            chosen = questions[0].id
            forgotten = dict.fromkeys([*answered][: -(MOST_ANSWERED - 1)])
            new = change_state(session.id, ChatState, answered={**forgotten, call.message: chosen})
            self._orchestrator.facts.post(new)
        question = next((it for it in questions if it.id == chosen), None)
        # A command that comes late was meant for an earlier question.
        if question is None or self._approvals.is_later(session, question.id, call.anchor):
            return TOO_LATE
        try:
            by = author_of(call.user, call.by)
            await self._approvals.answer(
                session, question.id, verdict, by=by, at=call.address, reason=reason
            )
        except NotShownError as exc:
            return str(exc)
        except UnknownIdError:
            return TOO_LATE
        word = "denied" if verdict is ApprovalVerdict.DENY else "approved"
        left = f" {len(questions) - 1} more wait." if len(questions) > 1 else ""
        return f"{question.tool} of {question.path} is {word}.{left}"

    async def _personality(self, call: Call) -> str:
        known = self._settings.personalities
        if not known:
            await trio.lowlevel.checkpoint()
            return "This gateway has no personalities."
        session = await self._conversations.take(call.address)
        chosen = session.state(ChatState).personality
        name = call.argument.lower()
        if not name:
            names = ", ".join(sorted(known))
            return f"It is {chosen or 'the usual one'}. There are: {names}, none."
        if name not in {*known, "none"}:
            return _with_prefix(f"There is no personality {name!r}; /personality lists them.", call)
        await self._post(change_state(session.id, ChatState, personality=name))
        return f"From the next message on it is {name}."

    async def _title(self, call: Call) -> str:
        session = await self._conversations.take(call.address)
        title = " ".join(call.argument.split())[:LONGEST_TITLE]
        if not title:
            return session.metadata.get(TITLE, "This conversation has no title.")
        await self._post(MetadataChanged(session.id, {**session.metadata, TITLE: title}))
        return f"This conversation is called {title!r}."

    async def _link(self, call: Call) -> str:
        session = await self._conversations.find(call.address)
        if not call.argument:
            if session is None:
                return NO_SESSION
            code = self._links.new(session.id)
            return (
                f"Write {call.prefix}link {code} within an hour where this conversation is to go"
                " on: in another chat, on any platform that I am on."
            )
        linked = self._links.take(call.argument)
        if linked is None:
            return "This code does not hold: it is wrong, an hour old, or was used."
        try:
            found = await self._door.find(linked)
        except UnknownIdError:
            return NO_SESSION
        if found.closed:
            return "That conversation has ended."
        await self._conversations.link(call.address, found)
        return "The conversation goes on here. Replies come to where each message was written."

    async def _invite(self, call: Call) -> str:
        await trio.lowlevel.checkpoint()
        if not self._access.is_listed(call.user):
            return "Only people of the operator's list may invite others."
        if not call.is_private:
            return "Ask for that in private: who reads the code may talk."
        code = self._pairing.new_code()
        return f"Who sends me {call.prefix}pair {code} within an hour may talk to me."

    async def _help(self, call: Call) -> str:
        await trio.lowlevel.checkpoint()
        return _with_prefix(HELP, call)

    async def _post(self, change: StateChanged | MetadataChanged) -> None:
        self._orchestrator.facts.post(change)
        await self._orchestrator.facts.wait_durable()


def _with_prefix(text: str, call: Call) -> str:
    """Return a text with the command prefix of the caller's platform."""
    return re.sub(r"(?<![\w/])/(?=[a-z])", lambda _: call.prefix, text)


HELP: Final = """\
Write what you want, and send files with it. Work that takes long goes on in the background, and \
its results come here.

/new — begin a new conversation; what runs in this one ends
/stop — stop what runs now
/tree — the tasks of this conversation
/cost — what it has used
/approve, /approve task, /approve session, /deny REASON — answer what waits for an approval
/personality NAME — choose how I talk
/title TEXT — name this conversation
/link — go on with this conversation in another chat, or on another platform
/invite — a code by which another person may talk to me
/help — this"""
