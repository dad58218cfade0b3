"""Runs tasks in this process: the workspace is opened, the session bound, the turn taken.

The loop of an agent with a place runs here, too: only its tools, with their workspace, do not.
"""

from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

import attrs
from msgspec import UNSET

from orchestrator.agents import ModelSettings, Pipeline, Tool, take_turn
from orchestrator.agents.models.settings import NO_SETTINGS
from orchestrator.delegation import NO_TERMS, AnswerTerms, DeliveryCapability, TaskId, TaskRecord
from orchestrator.delegation.session_context import bind_session, is_session_bound
from orchestrator.kernel.budget_scope import charge_to, is_charged_to
from orchestrator.kernel.execution.executor import TaskHost, WorkOrder
from orchestrator.kernel.execution.model_resolver import ModelSource
from orchestrator.kernel.execution.tool_place import HERE, PlacedTurn, ToolPlace, placed_tools
from orchestrator.kernel.execution.tool_servers import (
    NO_SERVERS,
    NO_TOOLS,
    ServerTools,
    ToolServers,
)
from orchestrator.kernel.execution.workspace.tool_machine import ToolMachine
from orchestrator.kernel.journal.facts import Facts

NO_DELIVERY: Final = DeliveryCapability.NONE
"""A constant: the class of an Enum answers slowly in Python 3.11."""


class LocalExecutor:
    """The executor of a single process (`orchestrator.kernel.execution.executor.Executor`)."""

    def __init__(
        self,
        models: ModelSource,
        machine: ToolMachine,
        *,
        place: ToolPlace = HERE,
        servers: ToolServers = NO_SERVERS,
        facts: Facts | None = None,
    ) -> None:
        self._models = models
        self._machine = machine
        self._place = place
        self._servers = servers
        self._facts = facts
        self._elsewhere: set[TaskId] = set()
        """The tasks whose workspace is on another machine."""
        self._notes: dict[TaskId, str] = {}
        """Notes about files that turns have left on other machines."""

    def run(self, order: WorkOrder, host: TaskHost) -> Awaitable[str]:
        task = order.task
        delivers = order.origin.capability is not NO_DELIVERY
        # Most children inherit the variables and the budgets of their parent.
        if not is_charged_to(task.accounts):
            return self._take_charged_turn(order, host)
        if not is_session_bound(task.session, task.context, async_delivery=delivers):
            return self._take_bound_turn(order, host)
        if order.agent.plan.needs_machine:
            return self._take_turn(order, host)
        return self._answer(order, host, self._place)

    async def _take_charged_turn(self, order: WorkOrder, host: TaskHost) -> str:
        """Take a turn that is charged to the budgets of its task."""
        with charge_to(order.task.accounts, self._facts):
            return await self._take_bound_turn(order, host)

    async def _take_bound_turn(self, order: WorkOrder, host: TaskHost) -> str:
        """Take a turn with the variables of its session."""
        task = order.task
        variables = {**task.context, "session_id": task.session}
        delivers = order.origin.capability is not NO_DELIVERY
        with bind_session(**variables, async_delivery=delivers):
            return await self._take_turn(order, host)

    def _take_turn(self, order: WorkOrder, host: TaskHost) -> Awaitable[str]:
        if not order.agent.plan.needs_machine:
            return self._answer(order, host, self._place)
        if not self._place.has_effects:
            return self._answer_with_servers(order, host)
        return self._answer_in_workspace(order, host)

    async def _answer_in_workspace(self, order: WorkOrder, host: TaskHost) -> str:
        """Take a turn that has a workspace: here, or on another machine."""
        task, agent = order.task, order.agent
        if agent.place and (opened := self._place.open_turn(task, agent)):
            return await self._answer_elsewhere(order, host, opened)
        async with self._machine.workspaces.open_for(order, host):
            return await self._answer_with_servers(order, host)

    async def _answer_with_servers(self, order: WorkOrder, host: TaskHost) -> str:
        """Take a turn that has the tools of the agent's servers, too."""
        notes: Sequence[str] = ()
        if order.agent.plan.reads_notes and self._place.has_effects:
            # Imported late: few agents have notes.
            from orchestrator.kernel.execution.turn_notes import turn_notes

            notes = await turn_notes(order.agent, host)
        if not order.agent.servers:
            return await self._answer(order, host, self._place, NO_TOOLS, notes)
        async with self._servers.open_turn(order, host) as opened:
            host.add_tools(opened.tools)
            return await self._answer(order, host, self._place, opened, notes)

    async def _answer_elsewhere(
        self, order: WorkOrder, host: TaskHost, opened: AbstractAsyncContextManager[PlacedTurn]
    ) -> str:
        """Take a turn whose tools, with their workspace, are on another machine."""
        task = order.task.id
        self._elsewhere.add(task)
        try:
            async with opened as turn:
                answer = await self._answer(order, host, turn.place)
        finally:
            self._elsewhere.remove(task)
        if turn.note:
            self._notes[task] = turn.note
        return answer

    def _answer(
        self,
        order: WorkOrder,
        host: TaskHost,
        place: ToolPlace,
        servers: ServerTools = NO_TOOLS,
        notes: Sequence[str] = (),
    ) -> Awaitable[str]:
        task, agent = order.task, order.agent
        if isinstance(agent, Pipeline):
            return host.run_pipeline(agent)
        if order.terms.output_schema is not None and agent.output is not str:
            # The client decides about the form of the answer that it gets.
            agent = attrs.evolve(agent, output=str, checks=())
        tools: Sequence[Tool] = agent.tools if task.is_root else agent.plan.child_tools
        if task.request is not None and task.request.fork is not UNSET:
            # Imported late: most tasks are no forks.
            from orchestrator.kernel.execution.forked_tools import tools_of_fork

            tools = tools_of_fork(agent, task)
        if agent.plan.tool_agents:
            tools = host.agent_tools(tools)
        if agent.plan.brings_tools or servers.tools:
            tools = [*tools, *host.delegation_tools(agent), *servers.tools]
        extra = task.instructions
        if servers.note or notes:
            extra = "\n\n".join(filter(None, (extra, servers.note, *notes)))
        made = task.made_instructions
        if made is None and not self._place.has_effects:
            made = ""  # no model reads them, as in a replay
        # By position: this is every turn, and fifteen keywords would be sorted into their places.
        return take_turn(
            agent,
            task.transcript,
            self._models.model_for(task, agent, host.budgeted_model),
            tools if place is HERE else placed_tools(tools, task, place),
            host,
            order.terms.output_schema if task.request is None else task.request.output_schema,
            extra,
            _settings(order.terms) if order.terms is not NO_TERMS else NO_SETTINGS,
            task.call_prefix if task.restarts else task.id,
            task.node.path,
            order.start,
            order.deps,
            made,
            place.past_checks(task) if agent.plan.has_checks else None,
            place.has_effects,
        )

    def workspace_of(self, task: TaskRecord) -> Path:
        if task.id in self._elsewhere:
            return self._machine.workspaces.named_folder_of(task)
        return self._machine.workspaces.workspace_of(task)

    async def close_below(self, task: TaskId) -> None:  # noqa: ASYNC910 (most tasks have none)
        workspaces = self._machine.opened_workspaces
        if workspaces is not None and (left := workspaces.tasks_with_worktree_below(task)):
            await workspaces.close_worktrees(left)

    def pop_note(self, task: TaskId) -> str:
        workspaces = self._machine.opened_workspaces
        if workspaces is None:
            return self._notes.pop(task, "")
        return self._notes.pop(task, "") or workspaces.pop_note(task)


def _settings(terms: AnswerTerms) -> ModelSettings:
    return ModelSettings(**terms.settings) if terms.settings else NO_SETTINGS
