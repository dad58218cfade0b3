"""The node of one task in a tree. Only the fold writes it."""

from typing import Any, Final, Literal

import msgspec

from orchestrator.agents import Usage
from orchestrator.delegation.task import Ending, Mode, Reason, Status, TaskId

NOTHING_USED: Final = Usage()


# Without the garbage collector: a node leads to no other object that leads back to it.
class TaskNode(msgspec.Struct, gc=False):
    """One task of a tree. Times are seconds since the epoch."""

    parent: TaskId | None
    """The task that delegated it; a root has none."""
    agent: str
    goal: str
    label: str
    """The name that its parent gave it, or an empty text."""
    path: str
    mode: Mode
    status: Status | Ending
    reason: Reason | Literal[""]
    """Why it is joined or detached; empty for a root."""
    requested: float
    started: float | None = None
    ended: float | None = None
    usage: Usage = NOTHING_USED
    """Its own model calls."""
    total: Usage = NOTHING_USED
    """Its own model calls and all calls below it, when the tree returned this node."""
    error: str = ""
    chosen: str = ""
    """The model, effort and budget that its parent chose for it."""
    level: int = 0
    """How many tasks are above it; no export shows it."""
    abandoned: bool = False
    """It was cancelled because its caller went on or was cancelled itself; no export shows it."""
    kept: bool = False
    """A fork or a retry has copied it from an earlier run: it ran there, and cost nothing here."""

    @property
    def shown_label(self) -> str:
        """Its label for a page, which marks a kept task."""
        return f"kept · {self.label or self.goal}" if self.kept else self.label

    def seconds(self, now: float | None = None) -> float | None:
        """Return how long it ran, or has run until now; nothing without a start or an end."""
        ended = now if self.ended is None else self.ended
        return None if self.started is None or ended is None else ended - self.started

    def attributes(self) -> dict[str, Any]:
        """Return the attributes that graphs and exports show, by name, `micro_usd` among them."""
        shown = msgspec.structs.asdict(self) | {"micro_usd": self.usage.micro_usd}
        del shown["level"], shown["abandoned"]
        if not self.chosen:
            del shown["chosen"]
        if not self.kept:
            del shown["kept"]
        return shown
