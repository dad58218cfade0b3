"""Runs tasks in this process: the workspace is opened, the session bound, the turn taken."""

from collections.abc import Awaitable, Hashable, Sequence
from pathlib import Path

from agents import Pipeline, Tool, take_turn
from delegation import DeliveryCapability, TaskId, TaskRecord
from delegation.session_context import bind_session
from orchestrator.budget_scope import charge_to
from orchestrator.execution.executor import TaskHost, WorkOrder
from orchestrator.execution.model_resolver import ModelSource
from orchestrator.execution.tool_place import HERE, ToolPlace, placed_tools
from orchestrator.execution.workspace.task_workspace import TaskWorkspaces


class LocalExecutor:
    """The executor of a single process (`orchestrator.execution.executor.Executor`)."""

    def __init__(
        self,
        models: ModelSource,
        workspaces: TaskWorkspaces,
        *,
        place: ToolPlace = HERE,
        journal: Hashable = None,
    ) -> None:
        self._models = models
        self._workspaces = workspaces
        self._place = place
        self._journal = journal

    async def run(self, order: WorkOrder, host: TaskHost) -> str:
        task, agent = order.task, order.agent
        with (
            charge_to(task.accounts, self._journal),
            bind_session(
                **{**task.context, "session_id": task.session},
                async_delivery=order.origin.capability is not DeliveryCapability.NONE,
            ),
        ):
            if not (self._place.has_effects and (agent.tools or agent.workspace)):
                return await self._answer(order, host)
            async with self._workspaces.open_for(order, host):
                return await self._answer(order, host)

    def _answer(self, order: WorkOrder, host: TaskHost) -> Awaitable[str]:
        task, agent = order.task, order.agent
        if isinstance(agent, Pipeline):
            return host.run_pipeline(agent)
        return take_turn(
            agent,
            task.transcript,
            model=self._models.model_for(task, agent, host.budgeted_model),
            tools=placed_tools(self._tools(order, host), task, self._place),
            host=host,
            requested_schema=task.requested_schema,
            extra_instructions=task.instructions,
            task=task.call_prefix,
            path=task.path,
        )

    def _tools(self, order: WorkOrder, host: TaskHost) -> Sequence[Tool]:
        tools = order.agent.tools
        # The caller runs its own tools for the session that it talks to, and for no child.
        if not order.task.is_root and any(it.runs_at_caller for it in tools):
            tools = tuple(it for it in tools if not it.runs_at_caller)
        if not order.agent.may_delegate:
            return tools
        return [*tools, *host.delegation_tools(order.agent)]

    def workspace_of(self, task: TaskRecord) -> Path:
        return self._workspaces.workspace_of(task)

    async def close_below(self, task: TaskId) -> None:  # noqa: ASYNC910 (most tasks have none)
        if left := self._workspaces.tasks_with_worktree_below(task):
            await self._workspaces.close_worktrees(left)

    def pop_note(self, task: TaskId) -> str:
        return self._workspaces.pop_note(task)
