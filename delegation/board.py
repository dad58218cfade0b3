"""The board of sibling tasks: items that they post, claim and finish.

The items are a state of the session, so each change is a fact. A claim holds as long as its task
has not ended.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, Literal

import msgspec
from msgspec.structs import replace

from orchestrator.agents import ToolError
from orchestrator.delegation.events import StateChanged
from orchestrator.delegation.events.state_change import change_state
from orchestrator.delegation.ledger.session_record import SessionRecord
from orchestrator.delegation.ledger.task_record import TaskRecord
from orchestrator.delegation.session_state import NO_ENTRIES, Entries, SessionState
from orchestrator.delegation.task import TaskId

MOST_ITEMS: Final = 200
"""How many items a board has at most."""


class BoardItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of work on a board."""

    board: TaskId
    """The task whose children share the board."""
    number: int
    text: str
    posted: str
    """The key of the call that posted it."""
    claimed: str = ""
    """The key of the call that claimed it last."""
    claimer: TaskId = TaskId("")
    finished: str = ""
    """The key of the call that finished it."""
    result: str = ""


class BoardState(SessionState, frozen=True):
    """The boards of a session."""

    NAME: ClassVar[str] = "board"
    items: Entries[BoardItem] = NO_ENTRIES
    """The items of all boards, by board and number."""


class ShownItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An item as tasks and people see it."""

    item: int
    text: str
    state: Literal["free", "claimed", "finished"]
    by: str = ""
    """The path of the task that has claimed or finished it."""
    result: str = ""


class Board:
    """The board that a task sees: the one of its siblings, or of its own tasks if it is a root."""

    def __init__(
        self, session: SessionRecord, task: TaskRecord, tasks: Mapping[TaskId, TaskRecord]
    ) -> None:
        self._session = session
        self._tasks = tasks
        self._task = task
        self._owner = task.id if task.parent is None else task.parent.id

    @property
    def items(self) -> list[BoardItem]:
        found = self._session.state(BoardState).items.values()
        mine = [it for it in found if it is not None and it.board == self._owner]
        return sorted(mine, key=lambda it: it.number)

    def post(self, texts: Sequence[str], key: str) -> StateChanged | None:
        """Return the fact that adds items; None if the call of this key has added them."""
        items = self.items
        if any(it.posted == key for it in items):
            return None
        first = len(items) + 1
        if first + len(texts) - 1 > MOST_ITEMS:
            raise ToolError(f"a board has at most {MOST_ITEMS} items, and this one has {first - 1}")
        return self._changed(
            *(BoardItem(self._owner, at, text, key) for at, text in enumerate(texts, first))
        )

    def claim(self, number: int | None, key: str) -> StateChanged | None:
        """Return the fact that claims an item, or else the first free one.

        None if the call of this key has claimed one, or no item is free.
        """
        items = self.items
        if any(it.claimed == key for it in items):
            return None
        if number is None:
            free = (it for it in items if self.shown(it).state == "free")
            found = next(free, None)
            if found is None:
                return None
        else:
            found = self._item(number)
            shown = self.shown(found)
            if shown.state != "free" and found.claimer != self._task.id:
                raise ToolError(f"item {number} is {shown.state} by {shown.by}: claim another one")
            if found.finished:
                raise ToolError(f"item {number} is finished: claim another one")
        return self._changed(replace(found, claimed=key, claimer=self._task.id))

    def finish(self, number: int, result: str, key: str) -> StateChanged | None:
        """Return the fact that finishes an item; None if the call of this key has done so."""
        found = self._item(number)
        if found.finished == key:
            return None
        if found.finished or self._holder(found) is not self._task:
            raise ToolError(f"you have not claimed item {number}: claim it first")
        return self._changed(replace(found, finished=key, result=result))

    def shown(self, item: BoardItem) -> ShownItem:
        """Return an item with its state of now."""
        holder = self._tasks.get(item.claimer)
        by = "" if holder is None else holder.path
        if item.finished:
            return ShownItem(item.number, item.text, "finished", by, item.result)
        if self._holder(item) is None:
            return ShownItem(item.number, item.text, "free")
        return ShownItem(item.number, item.text, "claimed", by)

    def _holder(self, item: BoardItem) -> TaskRecord | None:
        """Return the task that works on an item; None if it has ended, or begun anew."""
        task = self._tasks.get(item.claimer)
        if task is None or task.outcome is not None:
            return None
        return task if item.claimed.startswith(f"{task.call_prefix}/") else None

    def _item(self, number: int) -> BoardItem:
        for item in self.items:
            if item.number == number:
                return item
        raise ToolError(f"the board has no item {number}: read it first")

    def _changed(self, *items: BoardItem) -> StateChanged:
        entries = {f"{it.board}#{it.number}": it for it in items}
        return change_state(self._session.id, BoardState, items=entries)


def shown_boards(
    session: SessionRecord, tasks: Mapping[TaskId, TaskRecord]
) -> dict[TaskId, list[ShownItem]]:
    """Return all boards of a session by their owners, for people."""
    boards: dict[TaskId, list[ShownItem]] = {}
    if BoardState.NAME not in session.states:
        return boards
    view = Board(session, session.root, tasks)
    items = [it for it in session.state(BoardState).items.values() if it is not None]
    for item in sorted(items, key=lambda it: it.number):
        boards.setdefault(item.board, []).append(view.shown(item))
    return boards
