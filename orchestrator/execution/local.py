"""Letting an agent act, and seeing it through to an outcome.

A bulkhead of the house: whatever goes wrong inside an agent becomes the outcome of its
task. What an agent is cancelled for decides whether it has ended or was merely interrupted.
"""

import math
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any, Protocol

import trio
from msgspec.structs import replace

from agents import (
    Agent,
    DefinitionError,
    ModelError,
    Pipeline,
    Tool,
    Usage,
    take_turn,
)
from delegation import (
    Cause,
    Controller,
    Delegator,
    DeliveryCapability,
    Ending,
    Origin,
    Outcome,
    TaskId,
    TaskRecord,
    control_tool,
    delegate_tool,
)
from delegation.events import ModelFailed, ModelFailure
from delegation.session_context import bind_session
from orchestrator.budget_scope import charge_to
from orchestrator.engine.approvals import TaskApprovalCheck
from orchestrator.engine.model_events import ModelEventSubscribers
from orchestrator.engine.reservations import Reservations
from orchestrator.engine.settlement import Settlement
from orchestrator.engine.task_host import LocalTaskHost
from orchestrator.engine.watchdog import TaskActivity, Watchdog
from orchestrator.errors import ClosedError, JournalError, error_text
from orchestrator.execution.agent_registry import AgentRegistry
from orchestrator.execution.outcomes import (
    EXPECTED_ERRORS,
    STOPPED,
    cancel_cause,
    describe_error,
    outcome_of,
    unfinished_outcome,
    without_cancellations,
)
from orchestrator.execution.workspace.background_commands import BackgroundRunner
from orchestrator.execution.workspace.task_workspace import (
    TaskWorkspaces,
    WorkspaceSettings,
)
from orchestrator.journal.bookkeeper import Bookkeeper


class TaskDelegator(Delegator, Controller, Protocol):
    """Whoever takes the requests of an agent and looks after them."""

    async def run_pipeline(
        self, pipeline: Pipeline[Any, Any], record: TaskRecord, origin: Origin
    ) -> str:
        """Run the program of a pipeline, and return what it answers."""
        ...


class LocalExecutor:
    """Runs agents, and holds the scope of each one that runs."""

    def __init__(
        self,
        book: Bookkeeper,
        registry: AgentRegistry,
        workspace_settings: WorkspaceSettings,
    ) -> None:
        self._book = book
        self._registry = registry
        self.background = BackgroundRunner(book)
        self._workspaces = TaskWorkspaces(
            book, registry, self.background, workspace_settings
        )
        self.settlement = Settlement(
            book,
            pop_note=self._workspaces.pop_note,
            note_activity=self.note_activity,
        )
        self._reservations = Reservations(book)
        self.register_child = registry.register_child
        self.unregister_child = registry.unregister_child
        self.model_subscribers = ModelEventSubscribers()
        self.watchdog = Watchdog(book, self._stop_stalled)
        self._scopes: dict[TaskId, trio.CancelScope] = {}
        self._activities: dict[TaskId, TaskActivity] = {}
        self._stalled: dict[TaskId, str] = {}
        """Why those are stopped that have shown no sign of life."""

    def stop(self, task: TaskId) -> None:
        """Cancel an agent that acts now. Its joined children are cancelled with it."""
        if task in self._scopes:
            self._scopes[task].cancel(reason="a cancel was requested")

    def _stop_stalled(self, task: TaskRecord, why: str) -> None:
        self._stalled[task.id] = why
        self.stop(task.id)

    def on_restart(self, task: TaskRecord) -> str:
        """Return what becomes of a task that a crash interrupted: `Agent.on_restart`."""
        try:
            return self._registry.agent_of(task).on_restart
        except DefinitionError:
            return "resume"  # whoever runs it finds that its agent is gone, and says so

    def agent_of(self, task: TaskRecord) -> Agent[Any]:
        return self._registry.agent_of(task)

    async def run_task(
        self,
        task: TaskId,
        *,
        origin: Origin,
        delegator: TaskDelegator,
    ) -> Outcome:
        """Let the agent of a task act until it has an outcome, and record that.

        Args:
            task: who acts.
            origin: what its own requests will say of where they come from.
            delegator: takes its requests, and looks after them.
        """
        record = self._book.ledger.tasks[task]
        outcome: Outcome | None = None
        try:
            outcome = await self._run(record, origin, delegator)
        finally:
            # Without an outcome this is a cancellation from outside. A task that nobody could
            # take up again has ended with it; any other is only interrupted.
            if outcome is None and self._book.ledger.settles_on_teardown(task):
                outcome = unfinished_outcome(
                    record, Ending.CANCELLED, cancel_cause(record), STOPPED
                )
            if outcome is not None:
                if left := self._workspaces.tasks_with_worktree_below(task):
                    await self._workspaces.close_worktrees(left)  # noqa: ASYNC102 (shielded and bounded there)
                outcome = self.settlement.settle(record, outcome)
        assert outcome is not None, "whoever has none was torn down"
        return outcome

    def note_activity(self, task: TaskId) -> None:
        """Let a task be seen to go on: it has waited, and was not silent."""
        if task in self._activities:
            self._activities[task].touch()

    async def _run(
        self, record: TaskRecord, origin: Origin, delegator: TaskDelegator
    ) -> Outcome:
        task = record.id
        ending, error = Ending.CANCELLED, STOPPED
        cause, kind, account = cancel_cause(record), "", ""
        scope = self._scopes[task] = trio.CancelScope()
        if self._book.ledger.is_cancelled(task):
            self.stop(task)
        try:
            agent = self._registry.assign(record)
            over_time, paid_by = self._limit_time(scope, agent, record)
            with scope:
                return await self._run_in_context(agent, record, origin, delegator)
            cause = cancel_cause(record)
            if not self._book.ledger.is_cancelled(task):
                ending, kind = Ending.TIMED_OUT, "seconds"
                cause, error = Cause.DEADLINE, over_time
                if (stalled := self._stalled.get(task)) is not None:
                    cause, error, paid_by = Cause.STALLED, stalled, ""
                account = paid_by
        except (JournalError, ClosedError) as exc:
            # Somebody else's, which a tool has met, is an error like any other.
            if self._book.closed or self._book.is_broken:
                raise
            return unfinished_outcome(  # noqa: ASYNC910
                record, Ending.FAILED, Cause.ERROR, describe_error(exc)
            )
        except EXPECTED_ERRORS as exc:
            self._reservations.record_lost_answer(task)
            if isinstance(exc, ModelError):
                usage = exc.usage or Usage(calls=1)
                failed = ModelFailed(task, error_text(exc), usage, ModelFailure.FAILED)
                self._book.post(failed)
            outcome = outcome_of(exc, record)
            if self._book.ledger.is_cancelled(task):
                error = f"{STOPPED}, and then {outcome.error}"
                outcome = replace(
                    outcome,
                    ending=Ending.CANCELLED,
                    cause=cancel_cause(record),
                    error=error,
                )
            return outcome  # noqa: ASYNC910
        except (Exception, BaseExceptionGroup) as exc:  # noqa: BLE001 (a bulkhead)
            self._reservations.record_lost_answer(task)
            ending, cause = Ending.FAILED, Cause.ERROR
            error = describe_error(without_cancellations(exc))
            if self._book.ledger.is_cancelled(task):
                ending, cause = Ending.CANCELLED, cancel_cause(record)
                error = f"{STOPPED}, and then {error}"
            # An error while it is torn down from outside is part of being torn down.
            await trio.lowlevel.checkpoint_if_cancelled()
        finally:
            del self._scopes[task]
            self._registry.release(task)
            self._reservations.call_recorded(task)
            self._stalled.pop(task, None)
        # No checkpoint: whoever could not even begin has nothing to wait for.
        outcome = unfinished_outcome(record, ending, cause, error)
        return replace(outcome, kind=kind, account=account)  # noqa: ASYNC910

    def _limit_time(
        self, scope: trio.CancelScope, agent: Agent[Any], record: TaskRecord
    ) -> tuple[str, str]:
        """Give a task its seconds; return the error when they are over, and whose they are."""
        seconds, over_time, paid_by = math.inf, "", ""
        if (limit := agent.limits.seconds) is not None:
            seconds, over_time = limit, f"used up its limit of {limit} seconds"
        for account in record.accounts:
            if account.deadline is not None:
                left = max(0, account.deadline - self._book.clock())
                if left < seconds:
                    seconds, over_time = left, f"{account.describe()} is used up"
                    paid_by = account.id
        if over_time:
            scope.relative_deadline = seconds
        return over_time, paid_by

    async def _run_in_context(
        self,
        agent: Agent[Any],
        record: TaskRecord,
        origin: Origin,
        delegator: TaskDelegator,
    ) -> Outcome:
        # Nobody but those who act for another is watched: a session is somebody's own.
        sign = None
        if record.request is not None:
            sign = self.watchdog.watch(record, agent.patience)
            self._activities[record.id] = sign
        try:
            with (
                charge_to(record.accounts),
                bind_session(
                    **{**record.context, "session_id": record.session},
                    async_delivery=origin.capability is not DeliveryCapability.NONE,
                ),
            ):
                if self._registry.runs_tools and (agent.tools or agent.workspace):
                    scope = self._scopes[record.id]
                    async with self._workspaces.open_for(record, agent, origin, scope):
                        text = await self._take_turn(
                            agent, record, origin, delegator, sign
                        )
                else:
                    text = await self._take_turn(agent, record, origin, delegator, sign)
        finally:
            if sign is not None:
                del self._activities[record.id]
                self.watchdog.unwatch(sign)
        return Outcome(Ending.SUCCEEDED, text)

    def _take_turn(
        self,
        agent: Agent[Any],
        record: TaskRecord,
        origin: Origin,
        delegator: TaskDelegator,
        activity: TaskActivity | None,
    ) -> Awaitable[str]:
        """Let an agent, or the program of a pipeline, give its answer."""
        if isinstance(agent, Pipeline):
            if activity is not None:
                activity.enter_program()
            return delegator.run_pipeline(agent, record, origin)
        host = LocalTaskHost(
            record,
            self._book,
            self._reservations,
            self.model_subscribers,
            self.settlement,
            activity=activity,
            approvals=self._approval_check(record, agent),
        )
        return take_turn(
            agent,
            record.transcript,
            model=self._registry.model_for(record, agent, host.budgeted_model),
            tools=self._registry.tools_for(
                record, self._tools(agent, record, origin, delegator)
            ),
            host=host,
            requested_schema=None
            if record.request is None
            else record.request.output_schema,
            extra_instructions=record.instructions,
            task=record.call_prefix,
            path=record.path,
        )

    def _approval_check(
        self, record: TaskRecord, agent: Agent[Any]
    ) -> TaskApprovalCheck | None:
        """Return where the calls of a task wait for approval, if there is any rule about that."""
        policies = self._registry.policies_of(record)
        if not (policies and self._registry.runs_tools):
            return None
        workspace = partial(self._workspaces.workspace_of, record)
        return TaskApprovalCheck(
            self._book, record, policies, workspace, tools=agent.tools
        )

    def _tools(
        self,
        agent: Agent[Any],
        record: TaskRecord,
        origin: Origin,
        delegator: TaskDelegator,
    ) -> Sequence[Tool]:
        tools = agent.tools
        # Whoever asked runs theirs for the session they talk to, and for no copy of its agent.
        if record.parent is not None and any(it.runs_at_caller for it in tools):
            tools = tuple(it for it in tools if not it.runs_at_caller)
        if not agent.may_delegate:
            return tools
        ledger = self._book.ledger
        return [
            *tools,
            delegate_tool(
                agent,
                parent=record,
                origin=origin,
                rules=ledger.rules,
                delegator=delegator,
            ),
            control_tool(agent, caller=record, ledger=ledger, controller=delegator),
        ]
