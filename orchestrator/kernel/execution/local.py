"""Runs tasks in this process: the workspace is opened, the session bound, the turn taken.

The loop of an agent with a place runs here, too: only its tools, with their workspace, do not.
"""

from collections.abc import Awaitable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import attrs

from orchestrator.agents import ModelSettings, Pipeline, Tool, take_turn
from orchestrator.agents.models.settings import NO_SETTINGS
from orchestrator.delegation import AnswerTerms, DeliveryCapability, TaskId, TaskRecord
from orchestrator.delegation.session_context import bind_session
from orchestrator.kernel.budget_scope import charge_to
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


class LocalExecutor:
    """The executor of a single process (`orchestrator.kernel.execution.executor.Executor`)."""

    def __init__(
        self,
        models: ModelSource,
        machine: ToolMachine,
        *,
        place: ToolPlace = HERE,
        servers: ToolServers = NO_SERVERS,
        journal: Hashable = None,
    ) -> None:
        self._models = models
        self._machine = machine
        self._place = place
        self._servers = servers
        self._journal = journal
        self._elsewhere: set[TaskId] = set()
        """The tasks whose workspace is on another machine."""
        self._notes: dict[TaskId, str] = {}
        """Notes about files that turns have left on other machines."""

    async def run(self, order: WorkOrder, host: TaskHost) -> str:
        task, agent = order.task, order.agent
        with (
            charge_to(task.accounts, self._journal),
            bind_session(
                **{**task.context, "session_id": task.session},
                async_delivery=order.origin.capability is not DeliveryCapability.NONE,
            ),
        ):
            if not (self._place.has_effects and (agent.tools or agent.workspace or agent.servers)):
                return await self._answer_with_servers(order, host)
            if agent.place and (opened := self._place.open_turn(task, agent)):
                return await self._answer_elsewhere(order, host, opened)
            async with self._machine.workspaces.open_for(order, host):
                return await self._answer_with_servers(order, host)

    async def _answer_with_servers(self, order: WorkOrder, host: TaskHost) -> str:
        """Take a turn that has the tools of the agent's servers, too."""
        if not order.agent.servers:
            return await self._answer(order, host, self._place)
        async with self._servers.open_turn(order, host) as opened:
            host.add_tools(opened.tools)
            return await self._answer(order, host, self._place, opened)

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
        self, order: WorkOrder, host: TaskHost, place: ToolPlace, servers: ServerTools = NO_TOOLS
    ) -> Awaitable[str]:
        task, agent = order.task, order.agent
        if isinstance(agent, Pipeline):
            return host.run_pipeline(agent)
        if order.terms.output_schema is not None and agent.output is not str:
            # The client decides about the form of the answer that it gets.
            agent = attrs.evolve(agent, output=str, checks=())
        return take_turn(
            agent,
            task.transcript,
            model=self._models.model_for(task, agent, host.budgeted_model),
            tools=placed_tools(
                [*self._tools(order, host), *servers.tools]
                if servers.tools
                else self._tools(order, host),
                task,
                place,
            ),
            host=host,
            requested_schema=task.requested_schema or order.terms.output_schema,
            extra_instructions="\n\n".join(filter(None, (task.instructions, servers.note))),
            settings=_settings(order.terms),
            task=task.call_prefix,
            path=task.path,
            start=order.start,
            deps=order.deps,
            made_instructions=self._made_instructions(task),
            past_checks=place.past_checks(task),
            calls_hooks=place.has_effects,
        )

    def _made_instructions(self, task: TaskRecord) -> str | None:
        # Without effects, as in a replay, no model reads them.
        if task.made_instructions is None and not self._place.has_effects:
            return ""
        return task.made_instructions

    def _tools(self, order: WorkOrder, host: TaskHost) -> Sequence[Tool]:
        tools = order.agent.tools
        # The caller runs its own tools for the session that it talks to, and for no child.
        if not order.task.is_root and any(it.runs_at_caller for it in tools):
            tools = tuple(it for it in tools if not it.runs_at_caller)
        agent = order.agent
        if not (agent.may_delegate or agent.asks_parent or agent.schedules):
            return tools
        return [*tools, *host.delegation_tools(agent)]

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
