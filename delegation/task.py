"""The words of delegation: who asks whom for what, and how it ends."""

import enum
from collections.abc import Mapping
from typing import Any, Final, NewType

import attrs
import msgspec

from agents import Budget

TaskId = NewType("TaskId", str)
SessionId = NewType("SessionId", str)


def root_of(session: SessionId) -> TaskId:
    """Return the task that a session is: the root of its tree has the session's id."""
    return TaskId(session)


class DeliveryCapability(enum.StrEnum):
    """Whether the session that asks can be told something after its turn has ended."""

    NONE = "none"
    """Nobody listens any more: the work is done within the turn."""
    POLL = "poll"
    """It will come and ask."""
    PUSH = "push"
    """We can wake it."""


class Mode(enum.StrEnum):
    """Who owns a task."""

    ROOT = "root"
    """A session: whoever talks to it."""
    JOINED = "joined"
    """The task that asked: it waits inside its own call."""
    DETACHED = "detached"
    """The orchestrator: the session that asked is told later."""


class Reason(enum.StrEnum):
    """Why a task is joined or detached."""

    ASKED_TO_WAIT = "asked_to_wait"
    CANNOT_BE_TOLD_LATER = "cannot_be_told_later"
    NONE_IN_BACKGROUND = "none_in_background"
    CAN_BE_TOLD_LATER = "can_be_told_later"

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    Reason.ASKED_TO_WAIT: "the caller asked to wait for it",
    Reason.CANNOT_BE_TOLD_LATER: "whoever asked cannot be told anything after its turn ends",
    Reason.NONE_IN_BACKGROUND: "the rules allow nothing in the background",
    Reason.CAN_BE_TOLD_LATER: "the session that asked can be told later",
}


class Ending(enum.StrEnum):
    """How a task ended. It comes from what happened, never from "it produced text"."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    OVER_BUDGET = "over_budget"
    REFUSED = "refused"
    """It never began: a task that it needs did not succeed."""
    LOST = "lost"
    """Its process died, and nobody is left to be told."""


class Status(enum.StrEnum):
    """What a task is doing while it has not ended."""

    QUEUED = "queued"
    """Asked for, and not begun: it waits for room, or for a task that it needs."""
    RUNNING = "running"
    QUIET = "quiet"
    """It runs, and has shown no sign of life for a while."""
    WAITING = "waiting"
    """For an approval; or a session with nothing to do but wait for news."""
    INTERRUPTED = "interrupted"
    """Its process died; it goes on when its session is opened again."""


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """How a task ended, with what it said."""

    ending: Ending
    output: str = ""
    error: str = ""
    kind: str = ""
    """How a provider failed, if that is what ended it (`rate_limit`, `auth`, ...), or what of a
    budget ran out (`usd`, `tokens`, `calls`, `seconds`)."""
    schema_errors: tuple[str, ...] = ()
    """Where the final answer does not fit what was asked for, if that is what ended it."""
    note: str = ""
    """What whoever asked has to know besides, such as where the work lies."""
    retry_after: float | None = None
    """After how many seconds a provider that failed wants to be asked again, if it said so."""

    @property
    def succeeded(self) -> bool:
        return self.ending is Ending.SUCCEEDED


@attrs.frozen(kw_only=True)
class Origin:
    """Where a request comes from. It travels by value, from the door inwards."""

    session: SessionId
    turn: int
    capability: DeliveryCapability
    """What the door of this very turn can do; another turn of the session may differ."""


SHARED_BUDGET_PREFIX: Final = "b_"
"""How the ids of budgets begin that several sessions may share."""


@attrs.frozen
class Grant:
    """A budget that was set in one place: whatever is asked for under it shares it."""

    id: str
    budget: Budget

    @property
    def is_shared(self) -> bool:
        """It was set around sessions, and not for one task: those are named by the task."""
        return self.id.startswith(SHARED_BUDGET_PREFIX)


class TaskRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One piece of work, handed on.

    There is one for every task, so it is as cheap as can be. It is part of no cycle.
    """

    id: TaskId
    parent: TaskId
    origin: Origin
    call: str
    """The call that asks for it: asked twice in one call is asked once."""
    agent: str
    goal: str
    context: str = ""
    label: str = ""
    background: bool | None = None
    """True asks for detached, False asks to wait, None leaves it to the session."""
    copy: bool = False
    """Whoever asks has it done by a copy of itself."""
    output_schema: Mapping[str, Any] | None = None
    """The JSON schema that the answer must fit."""
    needs: tuple[TaskId, ...] = ()
    """The tasks that must succeed before it starts. It gets their outputs."""
    budget: Budget | None = None
    """What it may use together with all below it."""
    grants: tuple[Grant, ...] = ()
    """The budgets under which it is asked for, besides those of the task that asks."""
