"""What the ledger remembers of a task and of a session.

Only the ledger writes these; everybody else reads.
"""

from typing import Final

import attrs

from agents import Message, UserMessage
from delegation.task import (
    DeliveryCapability,
    Mode,
    Outcome,
    SessionId,
    TaskId,
    TaskRequest,
    root_of,
)
from delegation.tree import Tree


class Children:
    """The tasks that one task asked for."""

    __slots__ = ("asked", "names", "unsettled")

    def __init__(self) -> None:
        self.asked: dict[str, TaskId] = {}
        """All of them, by the call that asked."""
        self.unsettled: dict[TaskId, TaskRecord] = {}
        """Those that have not ended, oldest first."""
        self.names: dict[str, int] = {}
        """How often each agent was asked for: that numbers them."""


# Most tasks never have any; this one is theirs, and is never written.
NO_CHILDREN: Final = Children()


class TaskRecord:
    """One node of a tree: a session's root, or a task somebody asked for."""

    __slots__ = (
        "acting",
        "agent",
        "cancel_requested",
        "children",
        "depth",
        "id",
        "interrupted",
        "mode",
        "outcome",
        "parent",
        "path",
        "request",
        "session",
        "transcript",
    )

    def __init__(
        self,
        id: TaskId,  # noqa: A002 (the word of the domain)
        *,
        session: SessionId,
        agent: str,
        path: str,
        mode: Mode,
        parent: "TaskRecord | None" = None,
        request: TaskRequest | None = None,
    ) -> None:
        self.id = id
        self.session = session
        self.agent = agent
        self.path = path
        self.mode = mode
        self.parent = parent
        self.request = request
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.transcript: list[Message] = []
        self.outcome: Outcome | None = None
        """Never set for a root: a session goes on."""
        self.acting = False
        """An agent works on it now: it says things, and asks for tasks."""
        self.cancel_requested = False
        self.interrupted = False
        """The process that ran it is gone."""
        self.children = NO_CHILDREN


@attrs.frozen
class Turn:
    """A turn that has started and not ended."""

    number: int
    capability: DeliveryCapability
    read: tuple[int, ...]
    """The mail it has read, by sequence number."""
    interrupted: bool = False
    """The process that took it is gone."""


@attrs.frozen
class Reply:
    """What a session says at the end of a turn."""

    session: SessionId
    turn: int
    read: tuple[int, ...]
    """The mail that the turn had read, by sequence number: what this answers."""
    outcome: Outcome

    @property
    def text(self) -> str:
        """What it says; of a turn that did not succeed, what went wrong."""
        if self.outcome.succeeded:
            return self.outcome.output
        return f"{self.outcome.ending}: {self.outcome.error}"


class SessionRecord:
    """A conversation: the root of a tree, its mail and its turns."""

    __slots__ = (
        "door",
        "id",
        "last_outcome",
        "mail",
        "outstanding",
        "root",
        "tree",
        "turn",
        "turns",
        "undelivered",
    )

    def __init__(self, id: SessionId, root: TaskRecord) -> None:  # noqa: A002
        self.id = id
        self.root = root
        self.tree = Tree(root_of(id))
        self.door: DeliveryCapability | None = None
        """What the door that is open now can do."""
        self.mail: dict[int, UserMessage] = {}
        """What it has not read yet, by the sequence number of the fact that says it."""
        self.outstanding: dict[TaskId, TaskRecord] = {}
        """The detached tasks that it still has to be told about, oldest first."""
        self.turns = 0
        self.turn: Turn | None = None
        self.last_outcome: Outcome | None = None
        self.undelivered: dict[int, Reply] = {}
        """What no door has taken yet, by turn."""

    @property
    def idle(self) -> bool:
        """Nothing runs, and nothing waits to be read."""
        return not (self.turn or self.mail or self.outstanding)
