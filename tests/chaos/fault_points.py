"""Named points at which a process kills itself, without a hook in the code under test.

A worker reaches them by wrapping the ports that it is built of: the journal, the model, its tools.
"""

import os
import signal
from collections.abc import Mapping
from typing import Any, Final

from orchestrator.agents import AssistantMessage, Model, ModelRequest
from orchestrator.agents.models.wrappers.wrapper import ModelWrapper
from orchestrator.delegation import Encoded, SessionId
from orchestrator.delegation.events import Entry, parts_of
from orchestrator.kernel.journal.journal import Journal
from tests.chaos.life import Life
from tests.chaos.logs import AppendLog
from tests.chaos.provider import answer_number

FACTS: Final = (
    "MessageReceived",
    "TurnStarted",
    "TaskRequested",
    "TaskStarted",
    "ModelAnswered",
    "ToolAnswered",
    "Steered",
    "SteeringSeen",
    "CancelRequested",
    "ApprovalAsked",
    "ApprovalAnswered",
    "TaskSettled",
    "TurnEnded",
    "ReplyDelivered",
    "ProcessStarted",
)
POINTS: Final[Mapping[str, int]] = {
    "before commit": 120,
    "after commit": 60,
    **{f"before commit of {fact}": 6 for fact in FACTS},
    **{f"after commit of {fact}": 6 for fact in FACTS},
    "before the model is asked": 30,
    "after the answer arrived": 30,
    "before the effect": 15,
    "after the effect": 15,
    "after a receipt": 8,
}
"""Each point, and at which time it is reached a process is killed at the latest."""


class FaultPoints:
    """Kills this process when a point is reached for the n-th time."""

    def __init__(self, life: Life) -> None:
        self._point = life.point
        self._left = life.count
        self._kills = life.kills

    def reach(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if self._left <= 0:
                self._kills.write("killed")
                os.kill(os.getpid(), signal.SIGKILL)


class FaultyJournal:
    """A journal whose process may die before and after each commit."""

    def __init__(self, journal: Journal, points: FaultPoints) -> None:
        self._journal = journal
        self._points = points
        self._uncommitted: list[tuple[int, str]] = []

    def append(
        self,
        entry: Entry,
        encoded: Encoded,
        idle_changes: Mapping[SessionId, str | None],
        *,
        urgent: bool = False,
    ) -> None:
        self._journal.append(entry, encoded, idle_changes, urgent=urgent)
        self._points.reach("before commit")
        for part in parts_of(entry.event):
            fact = type(part).__name__
            self._uncommitted.append((entry.seq, fact))
            self._points.reach(f"before commit of {fact}")

    async def wait_durable(self, seq: int) -> None:
        await self._journal.wait_durable(seq)
        self._points.reach("after commit")
        while self._uncommitted and self._uncommitted[0][0] <= seq:
            _, fact = self._uncommitted.pop(0)
            self._points.reach(f"after commit of {fact}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


class FaultyModel(ModelWrapper):
    """A model whose process may die before it is asked and after it has answered."""

    def __init__(self, model: Model, points: FaultPoints, arrivals: AppendLog) -> None:
        super().__init__(model)
        self._points = points
        self._arrivals = arrivals

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self._points.reach("before the model is asked")
        answer = await self._model.answer(request)
        self._arrivals.write("arrived", number=answer_number(answer))
        self._points.reach("after the answer arrived")
        return answer
