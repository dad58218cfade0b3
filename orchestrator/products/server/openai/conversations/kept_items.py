"""The items of a conversation: the state of a session without an agent.

The state names the response that continues the conversation as `pending`, before the response is
opened: until the response is over, no other one begins. The next request about the conversation
adds the output, or removes the input if there is no output. So a crash loses no item and adds none
twice.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from secrets import token_hex
from typing import Any, ClassVar, Final

import attrs
import msgspec
import trio

from orchestrator.agents.redaction.long_texts import search_ahead, texts_in
from orchestrator.delegation import SessionId, SessionRecord
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.delegation.session_state import NO_ENTRIES, Entries, SessionState
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.sessions import is_over
from orchestrator.products.server.api.lookup import find_run
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.openai.public_ids import CONVERSATION, find_object
from orchestrator.products.server.openai.responses.bodies import Item
from orchestrator.products.server.openai.responses.response import body_of, status_of
from orchestrator.products.server.transport.errors import HttpError

_ITEM_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
_PREFIXES: Final[Mapping[str, str]] = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
}


class ConversationState(SessionState, frozen=True):
    """The items of a conversation, and the response that is under way in it."""

    NAME: ClassVar[str] = "conversation"
    items: Entries[dict[str, Any]] = NO_ENTRIES
    """The items, by their numbers."""
    next: int = 0
    """The number of the next item: no number is used twice."""
    pending: SessionId = SessionId("")
    """The session of the response under way; empty if there is none."""
    pending_from: int = 0
    """The number of the first item that was added for that response."""


def is_conversation(session: SessionRecord) -> bool:
    return session.kind is SessionKind.RECORD


async def find_conversation(
    call: ApiCall, conversation: str, *, param: str | None = None
) -> SessionRecord:
    """Return a conversation with the items of all finished responses."""
    session = await find_object(
        call, CONVERSATION, conversation, is_conversation, "conversation", param=param
    )
    await settle(call, session)
    return session


async def settle(call: ApiCall, session: SessionRecord) -> None:
    """Add the output of a finished response, or remove the input of a failed one."""
    await trio.lowlevel.checkpoint()
    pending = session.state(ConversationState).pending
    if not pending:
        return
    try:
        response = await find_run(call, pending)
    except UnknownIdError:
        response = None  # a crash came before it was opened, or it was pruned
    is_idle = response is None or response.has_nothing_pending
    if response is not None and not (is_idle or is_over(response)):
        return
    output: list[Any] = []
    is_answered = response is not None and status_of(response) in {"completed", "incomplete"}
    if response is not None and is_answered:
        output = msgspec.to_builtins(body_of(response).output)
    added = await prepare(call, output, session)
    state = session.state(ConversationState)
    if state.pending != pending or session.deleted:
        return  # another request was faster
    removed = [] if is_answered else [it for it in state.items if int(it) >= state.pending_from]
    call.journal.door.change_state(
        session,
        ConversationState,
        pending=SessionId(""),
        items={**dict.fromkeys(removed), **numbered(added, state.next)},
        next=state.next + len(added),
    )


async def prepare(
    call: ApiCall, items: Sequence[Mapping[str, Any]], session: SessionRecord | None = None
) -> list[dict[str, Any]]:
    """Return items in their stored form: complete, with ids, and without secrets."""
    await trio.lowlevel.checkpoint()
    redactor = call.journal.read.redactor
    taken: set[str] = set()
    if session is not None:
        taken = set(KeptItems(session).numbers())
    prepared: list[dict[str, Any]] = []
    for it in items:
        await search_ahead(redactor, texts_in(it))
        item = _complete(redactor.redact_tree(it))
        id_ = item.get("id")
        if not isinstance(id_, str) or id_ in taken or not _ITEM_ID.fullmatch(id_):
            prefix = _PREFIXES.get(item["type"], "item")
            item["id"] = f"{prefix}_{token_hex(12)}"
        taken.add(item["id"])
        prepared.append(item)
        # The completed item may have new texts, which are searched ahead, too.
        await search_ahead(redactor, texts_in(item))
    return prepared


def _complete(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item with all fields that the types of clients require."""
    item = {"type": "message", **item}
    if item["type"] in _PREFIXES and not item.get("status"):
        item["status"] = "completed"
    if item["type"] == "message" and isinstance(item.get("content"), str):
        kind = "output_text" if item.get("role") == "assistant" else "input_text"
        part: dict[str, Any] = {"type": kind, "text": item["content"]}
        if kind == "output_text":
            part |= {"annotations": [], "logprobs": []}
        item["content"] = [part]
    return item


@attrs.frozen
class KeptItems:
    """The items of a conversation, oldest first."""

    session: SessionRecord

    @property
    def is_locked(self) -> bool:
        """Whether a response is under way: its input is hidden until it is over."""
        return bool(self.state.pending)

    @property
    def state(self) -> ConversationState:
        return self.session.state(ConversationState)

    @property
    def version(self) -> int:
        """A number that changes when items are added."""
        return self.state.next

    def require_unlocked(self, version: int | None = None) -> None:
        """Refuse to add to a conversation that another request adds to, or has changed."""
        if self.is_locked or version not in {None, self.version}:
            raise HttpError(
                400,
                "another response of this conversation is under way: send the request again when"
                " it is over",
                code="conversation_locked",
                param="conversation",
            )

    def numbers(self) -> dict[str, str]:
        """Return the numbers of the items, by their ids."""
        return {item["id"]: number for number, item in self._ordered()}

    def shown(self) -> dict[str, dict[str, Any]]:
        """Return the items that clients see, by their ids."""
        until = self.state.pending_from if self.is_locked else self.state.next
        return {item["id"]: item for number, item in self._ordered() if int(number) < until}

    def _ordered(self) -> Iterator[tuple[str, dict[str, Any]]]:
        items = self.state.items
        for number in sorted(items, key=int):
            if (item := items[number]) is not None:
                yield number, item

    def as_input(self) -> list[Item]:
        """Return the items in the form of an input."""
        return msgspec.convert([*self.shown().values()], list[Item])


def numbered(items: Iterable[dict[str, Any]], first: int = 0) -> Entries[dict[str, Any]]:
    """Return items by their numbers, counted from `first`."""
    return {str(number): item for number, item in enumerate(items, first)}


@attrs.frozen(kw_only=True)
class ContinuedConversation:
    """A conversation that a response is about to continue."""

    kept: KeptItems
    items: list[Item]
    """The items that the response reads."""
    ids: frozenset[str]
    version: int
    added: list[dict[str, Any]]
    """The input of the response, in its stored form."""

    def require_unchanged(self) -> None:
        """Refuse the response if another one has begun since the items were read."""
        self.kept.require_unlocked(self.version)

    def begin(self, call: ApiCall, response: SessionId) -> None:
        """Add the input of a response that is opened next, in the same step."""
        first = self.kept.version
        call.journal.door.change_state(
            self.kept.session,
            ConversationState,
            pending=response,
            pending_from=first,
            items=numbered(self.added, first),
            next=first + len(self.added),
        )


async def continue_conversation(
    call: ApiCall, session: SessionRecord, given: Sequence[Mapping[str, Any]] | None
) -> ContinuedConversation:
    """Return a conversation for a response that continues it with the input `given`."""
    kept = KeptItems(session)
    kept.require_unlocked()
    version, items, ids = kept.version, kept.as_input(), frozenset(kept.shown())
    # A reference adds no new item.
    own = [it for it in given or () if it.get("type") != "item_reference"]
    return ContinuedConversation(
        kept=kept, items=items, ids=ids, version=version, added=await prepare(call, own, session)
    )
