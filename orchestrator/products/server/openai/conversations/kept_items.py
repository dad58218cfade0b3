"""The items of a conversation: labels of a session in which no agent works.

A response that goes on with a conversation is named in its label `pending`, before the response is
opened: until that is over, no other one begins. The next request about the conversation adds the
output, or takes the input back if there is none. So a crash loses no item, and adds none twice.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from secrets import token_hex
from typing import Any, Final

import attrs
import msgspec
import trio

from orchestrator.agents.redaction.long_texts import search_ahead, texts_in
from orchestrator.delegation import SessionId, SessionRecord
from orchestrator.kernel.doors.kept import is_over
from orchestrator.kernel.doors.session_kinds import KIND, RECORD
from orchestrator.kernel.errors import UnknownIdError
from orchestrator.products.server.api.lookup import find_run
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.openai.public_ids import CONVERSATION, find_object
from orchestrator.products.server.openai.responses.bodies import Item
from orchestrator.products.server.openai.responses.response import body_of, status_of
from orchestrator.products.server.transport.errors import HttpError

PENDING: Final = "pending"
"""The label with the session of the response that is under way, and with its first item."""
NEXT: Final = "next"
"""The label with the number of the next item: no number is given twice."""
_ITEM: Final = "item"
_ITEM_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
_PREFIXES: Final[Mapping[str, str]] = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
}


def is_conversation(session: SessionRecord) -> bool:
    return session.labels.get(KIND) == RECORD


async def find_conversation(
    call: ApiCall, conversation: str, *, param: str | None = None
) -> SessionRecord:
    """Return a conversation, with the items of all responses that are over.

    Args:
        call: the request.
        conversation: its id.
        param: where the request says it.
    """
    session = await find_object(
        call, CONVERSATION, conversation, is_conversation, "conversation", param=param
    )
    await settle(call, session)
    return session


async def settle(call: ApiCall, session: SessionRecord) -> None:
    """Add the output of a response that is over, or take back the input of one that failed."""
    await trio.lowlevel.checkpoint()
    pending = session.labels.get(PENDING)
    if pending is None:
        return
    id_, _, first = pending.partition(" ")
    try:
        response = await find_run(call, id_)
    except UnknownIdError:
        response = None  # a crash came before it, or it was pruned
    is_idle = response is None or response.has_nothing_pending
    if response is not None and not (is_idle or is_over(response)):
        return
    output: list[Any] = []
    is_answered = response is not None and status_of(response) in {"completed", "incomplete"}
    if response is not None and is_answered:
        output = msgspec.to_builtins(body_of(response).output)
    added = await prepare(call, output, session)
    if session.labels.get(PENDING) != pending or session.deleted:
        return  # another request was quicker
    kept = KeptItems(session)
    changed = {PENDING: ""}
    if not is_answered:
        changed |= dict.fromkeys(kept.names_from(int(first)), "")
    call.journal.door.change_labels(session, changed | kept.labels_of(added))


async def prepare(
    call: ApiCall, items: Sequence[Mapping[str, Any]], session: SessionRecord | None = None
) -> list[dict[str, Any]]:
    """Return items as they are kept: complete, with ids, and without secrets.

    Args:
        call: the request.
        items: as they were sent.
        session: the conversation that they are added to, if there is one already.
    """
    await trio.lowlevel.checkpoint()
    redactor = call.journal.read.redactor
    taken: set[str] = set()
    if session is not None:
        taken = {id_ for id_, _ in KeptItems(session).names()}
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
        # The label is another text than those in it: it is searched once more, ahead.
        await search_ahead(redactor, [msgspec.json.encode(item).decode()])
    return prepared


def _complete(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item with all that the types of clients ask for."""
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
        """Whether a response is under way: what it was given is not shown until it is over."""
        return PENDING in self.session.labels

    @property
    def version(self) -> str:
        """A text that changes when items are added."""
        return self.session.labels.get(NEXT, "0")

    def require_unlocked(self, version: str | None = None) -> None:
        """Refuse to add to a conversation to which another request adds.

        Args:
            version: as it was when the request read the items.
        """
        if self.is_locked or version not in {None, self.version}:
            raise HttpError(
                400,
                "another response of this conversation is under way: ask again when it is over",
                code="conversation_locked",
                param="conversation",
            )

    def names(self) -> Iterable[tuple[str, str]]:
        """Yield the id of each item, and the name of its label."""
        for name in self.session.labels:
            if name.startswith(f"{_ITEM} "):
                yield name.split(" ", 2)[2], name

    def names_from(self, first: int) -> list[str]:
        """Return the labels of the items from a number on."""
        return [name for _, name in self.names() if _number_in(name) >= first]

    def shown(self) -> dict[str, str]:
        """Return the items that clients see, by their ids, as JSON."""
        pending = self.session.labels.get(PENDING)
        until = None if pending is None else int(pending.partition(" ")[2])
        labels = self.session.labels
        ordered = sorted(self.names(), key=lambda it: _number_in(it[1]))
        return {
            id_: labels[name] for id_, name in ordered if until is None or _number_in(name) < until
        }

    def as_input(self) -> list[Item]:
        """Return the items as those of an input."""
        return [msgspec.json.decode(it, type=Item) for it in self.shown().values()]

    def labels_of(self, items: Iterable[Mapping[str, Any]]) -> dict[str, str]:
        """Return the labels by which items are added that were prepared."""
        return labels_of_items(items, int(self.version))

    def pending_label(self, response: SessionId) -> dict[str, str]:
        """Return the label by which a response is under way."""
        return {PENDING: f"{response} {self.version}"}


def labels_of_items(items: Iterable[Mapping[str, Any]], first: int = 0) -> dict[str, str]:
    """Return the labels of items, the first of which has this number."""
    labels: dict[str, str] = {}
    number = first
    for number, item in enumerate(items, first + 1):
        name = f"{_ITEM} {number - 1} {item['id']}"
        labels[name] = msgspec.json.encode(item).decode()
    return labels | {NEXT: str(number)}


def _number_in(name: str) -> int:
    return int(name.split(" ", 2)[1])


@attrs.frozen(kw_only=True)
class ContinuedConversation:
    """A conversation that a response is about to continue."""

    kept: KeptItems
    items: list[Item]
    """What the response reads of it."""
    ids: frozenset[str]
    version: str
    added: list[dict[str, Any]]
    """The input of the response, as it is kept."""

    def require_unchanged(self) -> None:
        """Refuse the response if another one has begun since this was read."""
        self.kept.require_unlocked(self.version)

    def begin(self, call: ApiCall, response: SessionId) -> None:
        """Add the input of a response that is opened next, in the same step."""
        labels = self.kept.pending_label(response) | self.kept.labels_of(self.added)
        call.journal.door.change_labels(self.kept.session, labels)


async def continue_conversation(
    call: ApiCall, session: SessionRecord, given: Sequence[Mapping[str, Any]] | None
) -> ContinuedConversation:
    """Return a conversation for a response that is to continue it.

    Args:
        call: the request.
        session: the conversation.
        given: the input of the response.
    """
    kept = KeptItems(session)
    kept.require_unlocked()
    version, items, ids = kept.version, kept.as_input(), frozenset(kept.shown())
    # A reference adds nothing that is not there already.
    own = [it for it in given or () if it.get("type") != "item_reference"]
    return ContinuedConversation(
        kept=kept, items=items, ids=ids, version=version, added=await prepare(call, own, session)
    )
