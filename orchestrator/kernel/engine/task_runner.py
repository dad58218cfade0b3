"""Runs a task from its start to its outcome, whatever goes wrong inside.

A bulkhead: every error inside an agent becomes the outcome of its task. Which scope was cancelled
decides whether the task has ended or was merely interrupted.
"""

import math
from functools import partial
from typing import Any, Final, Protocol

import msgspec
import trio
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from orchestrator.agents import Agent
from orchestrator.delegation import (
    NO_TERMS,
    AnswerTerms,
    Cause,
    Delegator,
    Ending,
    Origin,
    Outcome,
    TaskId,
    TaskRecord,
)
from orchestrator.delegation.events import TaskStarted, TurnResumed
from orchestrator.kernel.engine.approvals import TaskApprovalCheck
from orchestrator.kernel.engine.model_events import ModelEventSubscribers
from orchestrator.kernel.engine.reservations import Reservations
from orchestrator.kernel.engine.scheduler_slot import SchedulerSlot
from orchestrator.kernel.engine.settlement import Settlement
from orchestrator.kernel.engine.task_host import LocalTaskHost
from orchestrator.kernel.engine.watchdog import Watchdog
from orchestrator.kernel.errors import ClosedError, JournalError
from orchestrator.kernel.execution.agent_registry import AgentRegistry
from orchestrator.kernel.execution.executor import Executor, WorkOrder
from orchestrator.kernel.execution.outcomes import (
    EXPECTED_ERRORS,
    STOPPED,
    cancel_cause,
    describe_error,
    outcome_of,
    unfinished_outcome,
    without_cancellations,
)
from orchestrator.kernel.execution.raised import traceback_text, with_own_frames
from orchestrator.kernel.execution.tool_place import WorkerLostError
from orchestrator.kernel.journal.bookkeeper import Bookkeeper
from orchestrator.kernel.pipelines.child_runner import ChildRunner

MOST_RESTARTS: Final = 3
"""The most restarts of a task whose worker is gone: the task itself may end its workers."""


class TaskDelegator(Delegator, ChildRunner, Protocol):
    """Delegates for the agents and for the pipelines that run here."""


class TaskEnd(msgspec.Struct, frozen=True):
    """The recorded end of a task, and the error that ended it."""

    outcome: Outcome
    error: BaseException | None = None
    """The error that its agent raised in this process, with the frames of the program."""


class TaskRunner:
    """Runs tasks on an executor, and has the cancel scope of each one that runs."""

    def __init__(
        self,
        book: Bookkeeper,
        registry: AgentRegistry,
        executor: Executor,
        *,
        asks_approval: bool = True,
    ) -> None:
        """Run tasks.

        Args:
            book: posts their facts.
            registry: finds their agents.
            executor: runs their turns.
            asks_approval: the approval rules of agents hold; not if tools have no effect.
        """
        self.model_subscribers = ModelEventSubscribers()
        self.scheduler: Final = SchedulerSlot()
        self.watchdog = Watchdog(book, self._stop_stalled)
        self.settlement = Settlement(
            book, pop_note=executor.pop_note, note_activity=self.watchdog.touch
        )
        self._book = book
        self._registry = registry
        self._executor = executor
        self._asks_approval = asks_approval
        self._reservations = Reservations(book)
        self._scopes: dict[TaskId, trio.CancelScope] = {}
        self._stalled: dict[TaskId, str] = {}
        """Why the watchdog has stopped tasks."""

    def stop(self, task: TaskId) -> None:
        """Cancel a task that runs now. Its joined children are cancelled with it."""
        if task in self._scopes:
            self._scopes[task].cancel(reason="a cancel was requested")

    def _terms_of(self, record: TaskRecord) -> AnswerTerms:
        """Return how the client of a session wants the answers of its root."""
        if not record.is_root:
            return NO_TERMS
        return self._book.ledger.sessions[record.session].terms

    def _stop_stalled(self, task: TaskRecord, why: str) -> None:
        self._stalled[task.id] = why
        self.stop(task.id)

    async def run(self, record: TaskRecord, origin: Origin, delegator: TaskDelegator) -> TaskEnd:
        """Run a task until it has an outcome, and settle it.

        Args:
            record: the task, or the root of a session in its turn.
            origin: the origin that the task's own requests carry.
            delegator: takes its requests.
        """
        outcome: Outcome | None = None
        error: BaseException | None = None
        try:
            outcome, error = await self._outcome(record, origin, delegator)
        finally:
            # Without an outcome this is a cancellation from outside. A task that no process could
            # resume has ended with it; any other is only interrupted.
            if outcome is None and self._book.ledger.settles_on_teardown(record.id):
                outcome = self._unfinished(record, Ending.CANCELLED, cancel_cause(record), STOPPED)
            if outcome is not None:
                await self._executor.close_below(record.id)  # noqa: ASYNC102 (shielded and bounded there)
                outcome = self.settlement.settle(record, outcome)
        assert outcome is not None, "a task without an outcome was torn down"
        return TaskEnd(outcome, error)

    async def _outcome(
        self, record: TaskRecord, origin: Origin, delegator: TaskDelegator
    ) -> tuple[Outcome, BaseException | None]:
        task = record.id
        raised: BaseException | None = None
        trace: str | UnsetType = UNSET
        ending, error, kind, account = Ending.CANCELLED, STOPPED, "", ""
        scope = self._scopes[task] = trio.CancelScope()
        if self._book.ledger.is_cancelled(task):
            self.stop(task)
        try:
            agent = self._registry.assign(record)
            over_time, paid_by = self._limit_time(scope, agent, record)
            deps = self._registry.deps_of(record.session)
            order = WorkOrder(
                record, agent, origin, self._terms_of(record), deps, self._transcript_start(record)
            )
            with scope:
                return await self._answer(order, scope, delegator), None
            cause = cancel_cause(record)
            if not self._book.ledger.is_cancelled(task):
                ending, kind = Ending.TIMED_OUT, "seconds"
                cause, error = Cause.DEADLINE, over_time
                if (stalled := self._stalled.get(task)) is not None:
                    cause, error, paid_by = Cause.STALLED, stalled, ""
                account = paid_by
        except (JournalError, ClosedError) as exc:
            # The error of another orchestrator, which a tool has used, is an error like any other.
            if self._book.closed or self._book.is_broken:
                raise
            outcome = self._unfinished(record, Ending.FAILED, Cause.ERROR, describe_error(exc))
            return outcome, with_own_frames(exc)  # noqa: ASYNC910
        except EXPECTED_ERRORS as exc:
            return self._expected_outcome(record, exc), with_own_frames(exc)  # noqa: ASYNC910
        except (Exception, BaseExceptionGroup) as exc:  # noqa: BLE001 (a bulkhead)
            ending, cause = Ending.FAILED, Cause.ERROR
            raised = without_cancellations(exc)
            error = describe_error(raised)
            trace = traceback_text(with_own_frames(raised))
            if self._book.ledger.is_cancelled(task):
                ending, cause = Ending.CANCELLED, cancel_cause(record)
                error = f"{STOPPED}, and then {error}"
            # An error while it is torn down from outside is part of being torn down.
            await trio.lowlevel.checkpoint_if_cancelled()
        finally:
            del self._scopes[task]
            self._registry.release(task)
            self._reservations.unrecordable(task)
            self._stalled.pop(task, None)
        # No checkpoint: a task that could not even start has nothing to wait for.
        outcome = self._unfinished(record, ending, cause, error)
        outcome = replace(outcome, kind=kind, account=account, recorded_traceback=trace)
        return outcome, raised  # noqa: ASYNC910

    def _unfinished(self, record: TaskRecord, ending: Ending, cause: Cause, error: str) -> Outcome:
        start = self._transcript_start(record)
        return unfinished_outcome(record, ending, cause, error, start=start)

    def _transcript_start(self, record: TaskRecord) -> int:
        """Return the length that the transcript had when a task, or the turn of a root, began."""
        turn = self._book.ledger.sessions[record.session].turn
        return turn.transcript_start if record.is_root and turn is not None else 0

    def _expected_outcome(self, record: TaskRecord, exc: Exception) -> Outcome:
        """Return the outcome of a task that ends by a known error."""
        outcome = outcome_of(exc, record, start=self._transcript_start(record))
        if not self._book.ledger.is_cancelled(record.id):
            return outcome
        return replace(
            outcome,
            ending=Ending.CANCELLED,
            cause=cancel_cause(record),
            error=f"{STOPPED}, and then {outcome.error}",
        )

    async def _answer(
        self, order: WorkOrder, scope: trio.CancelScope, delegator: TaskDelegator
    ) -> Outcome:
        record = order.task
        # A session is not watched: its caller decides how long it may be silent.
        activity = None
        if not record.is_root:
            activity = self.watchdog.watch(record, order.agent.patience)
        host = LocalTaskHost(
            order,
            book=self._book,
            registry=self._registry,
            reservations=self._reservations,
            settlement=self.settlement,
            subscribers=self.model_subscribers,
            scheduler=self.scheduler,
            delegator=delegator,
            scope=scope,
            activity=activity,
            approvals=self._approval_check(record, order.agent),
        )
        try:
            return Outcome(Ending.SUCCEEDED, await self._run_to_end(order, host))
        finally:
            if activity is not None:
                self.watchdog.unwatch(activity)

    async def _run_to_end(self, order: WorkOrder, host: LocalTaskHost) -> str:
        """Run a turn; if its worker is lost, start again if the agent allows it."""
        for _ in range(MOST_RESTARTS if order.agent.on_restart == "restart" else 0):
            try:
                return await self._executor.run(order, host)
            except WorkerLostError:
                self._begin_anew(order.task)
        return await self._executor.run(order, host)

    def _begin_anew(self, record: TaskRecord) -> None:
        """Post that a task whose worker is gone starts again."""
        turn = self._book.ledger.sessions[record.session].turn
        if not record.is_root:
            self._book.post(TaskStarted(record.id, afresh=True))
            return
        assert turn is not None, "the turn of a root runs"
        self._book.post(TurnResumed(record.session, turn.number, turn.capability, afresh=True))

    def _limit_time(
        self, scope: trio.CancelScope, agent: Agent[Any], record: TaskRecord
    ) -> tuple[str, str]:
        """Set the deadline of a task; return the error for when it has passed, and its account."""
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

    def _approval_check(self, record: TaskRecord, agent: Agent[Any]) -> TaskApprovalCheck | None:
        """Return where the calls of a task wait for approval, if any of them may have to."""
        policies = self._registry.policies_of(record)
        if not self._asks_approval:
            return None
        is_harmless = all(tool.machine is None for tool in agent.tools)
        if not policies and is_harmless and not agent.servers:
            return None
        workspace = partial(self._executor.workspace_of, record)
        return TaskApprovalCheck(self._book, record, policies, workspace, tools=agent.tools)
