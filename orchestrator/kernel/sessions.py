"""The port for sessions: a door opens, runs and closes them through it."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from orchestrator.delegation import SessionId
from orchestrator.kernel.engine.call_share import CallShareSlot
from orchestrator.kernel.engine.delegator import OrchestratorDelegator
from orchestrator.kernel.engine.deliveries import Deliveries
from orchestrator.kernel.engine.scheduler_slot import SchedulerSlot
from orchestrator.kernel.engine.turns import Turns
from orchestrator.kernel.execution.agent_registry import AgentRegistry
from orchestrator.kernel.execution.workspace.tool_machine import ToolMachine
from orchestrator.kernel.history import History
from orchestrator.kernel.journal.facts import Facts
from orchestrator.kernel.read_api import ReadApi


class AnswerQuestion(Protocol):
    """Posts the answer to an approval question, once."""

    def __call__(
        self, id_: str, answer: str, *, reason: str, by: str, session: SessionId | None
    ) -> None: ...


class Sessions(msgspec.Struct, frozen=True, kw_only=True):
    """Opens, runs and closes the sessions of an orchestrator.

    The functions of `doors/lifecycle.py` and the doors take it. A product that posts or reads takes
    `Facts` or `ReadApi` instead.
    """

    facts: Facts
    read: ReadApi
    registry: AgentRegistry
    """Has the agents of open sessions."""
    turns: Turns
    delegator: OrchestratorDelegator
    deliveries: Deliveries
    machine: ToolMachine
    """Has the workspaces and the background commands."""
    scheduler: SchedulerSlot
    """Has the scheduler of the journal, if a process schedules its jobs."""
    call_share: CallShareSlot
    """Has the shares of sessions at providers, if a server divides them."""
    history: History | None
    """Shows runs; None in a simulation and a replay."""
    answer_question: AnswerQuestion
    new_session_id: Callable[[], SessionId]
