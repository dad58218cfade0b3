"""Runs a task from its start to its outcome, whatever goes wrong inside.

A bulkhead: every error inside an agent becomes the outcome of its task. Which scope was cancelled
decides whether the task has ended or was merely interrupted.
"""

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import trio
from msgspec.structs import replace

from orchestrator.agents import Agent
from orchestrator.delegation import (
    AnswerTerms,
    Cause,
    Delegator,
    Ending,
    Origin,
    Outcome,
    SessionId,
    TaskId,
    TaskRecord,
)
from orchestrator.delegation.events import TaskStarted, TurnInterrupted, TurnResumed
from orchestrator.kernel.engine.model_events import ModelEventSubscribers
from orchestrator.kernel.engine.reservations import Reservations
from orchestrator.kernel.engine.scheduler_slot import SchedulerSlot
from orchestrator.kernel.engine.settlement import SUCCEEDED, Settlement
from orchestrator.kernel.engine.task_host import HostServices, LocalTaskHost
from orchestrator.kernel.engine.watchdog import Watchdog
from orchestrator.kernel.errors import ChangedProgramError, ClosedError, JournalError
from orchestrator.kernel.execution.agent_registry import AgentRegistry
from orchestrator.kernel.execution.executor import Executor, TaskHost, WorkOrder
from orchestrator.kernel.execution.outcomes import (
    EXPECTED_ERRORS,
    STOPPED,
    TaskEnd,
    cancel_cause,
    describe_error,
    outcome_of,
    unfinished_outcome,
    version_change,
    without_cancellations,
)
from orchestrator.kernel.execution.raised import traceback_text, with_own_frames
from orchestrator.kernel.execution.tool_place import WorkerLostError
from orchestrator.kernel.journal.bookkeeper import Bookkeeper
from orchestrator.kernel.pipelines.child_runner import ChildRunner

if TYPE_CHECKING:
    from orchestrator.kernel.engine.approvals import TaskApprovalCheck
    from orchestrator.kernel.engine.cost_rules import EstimateCost
    from orchestrator.kernel.engine.workload import Workload
    from orchestrator.kernel.pipelines.scripts.dry_run import SimulateScript
    from orchestrator.kernel.step_spans import StepSpans

MOST_RESTARTS: Final = 3
"""The most restarts of a task whose worker is gone: the task itself may end its workers."""


class TaskDelegator(Delegator, ChildRunner, Protocol):
    """Delegates for the agents and for the pipelines that run here."""


class TaskRunner:
    """Runs tasks on an executor, and has the cancel scope of each one that runs."""

    def __init__(
        self,
        book: Bookkeeper,
        registry: AgentRegistry,
        executor: Executor,
        *,
        asks_approval: bool = True,
        estimate: "EstimateCost | None" = None,
        dry_run: "SimulateScript | None" = None,
        spans: "StepSpans | None" = None,
    ) -> None:
        """Run tasks; `asks_approval` is false if tools have no effect, so that no rule holds."""
        self._estimate = estimate
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
        self.reservations = Reservations(book)
        self._services = HostServices(
            book=book,
            registry=registry,
            reservations=self.reservations,
            settlement=self.settlement,
            subscribers=self.model_subscribers,
            scheduler=self.scheduler,
            dry_run=dry_run,
            spans=spans,
        )
        self._scopes: dict[TaskId, trio.CancelScope] = {}
        self._stalled: dict[TaskId, str] = {}
        """Why the watchdog has stopped tasks."""
        self._changed: dict[TaskId, str] = {}
        """How the programs of tasks have changed that fail for it."""
        self._interrupting: dict[SessionId, str] = {}
        """How the programs of runs have changed that are interrupted for it."""

    @property
    def workload(self) -> "Workload | None":
        """The work of runs; None as long as no call may have to wait for a provider."""
        return self.reservations.workload

    def stop(self, task: TaskId) -> None:
        """Cancel a task that runs now. Its joined children are cancelled with it."""
        if task in self._scopes:
            self._scopes[task].cancel(reason="a cancel was requested")

    def _stop_stalled(self, task: TaskRecord, why: str) -> None:
        self._stalled[task.id] = why
        self.stop(task.id)

    def stop_changed(self, record: TaskRecord, change: str) -> None:
        """Stop a task whose program has changed since a crash.

        A run is interrupted, so that its caller can accept the change. Any other task fails.
        """
        session = self._book.ledger.sessions[record.session]
        if session.is_interruptible:
            self._interrupting.setdefault(session.id, change)
            self.stop(session.root.id)
        else:
            self._changed.setdefault(record.id, change)
            self.stop(record.id)

    def _check_version(
        self, record: TaskRecord, agent: Agent[Any], before: str, delegator: TaskDelegator
    ) -> None:
        """Stop a task that goes on after a crash with another version of its agent."""
        if agent.on_restart == "restart" or not record.was_interrupted:
            return
        change = version_change(record.path, before, agent)
        if delegator.accepts_changes(record):
            delegator.add_note(record.id, change)
        else:
            self.stop_changed(record, change)

    async def run(  # noqa: C901, PLR0912 (a feature that the agent does not use costs one `if`)
        self, record: TaskRecord, origin: Origin, delegator: TaskDelegator, durable: bool = False
    ) -> TaskEnd:
        """Run a task, whose facts may be durable by now, until it has an outcome; settle it."""
        task, ledger = record.id, self._book.ledger
        outcome: Outcome | None = None
        error: BaseException | None = None
        host: LocalTaskHost | None = None
        deadline = NO_DEADLINE
        scope = self._scopes[task] = trio.CancelScope()
        try:
            try:
                if ledger.is_cancelled(task):
                    self.stop(task)
                agent = self._registry.running[task] = self._registry.agent_of(record)
                begun = record.request or ledger.sessions[record.session].turn
                if begun is not None and (begun.version or "") != agent.version:
                    self._check_version(record, agent, begun.version or "", delegator)
                if record.accounts or agent.limits.seconds is not None:
                    deadline = self._limit_time(scope, agent, record)
                host = self._host_of(record, agent, origin, delegator, scope, durable)
                execute = self._executor.run
                if agent.on_restart == "restart":
                    execute = self._run_with_restarts
                with scope:
                    output = await execute(host.order, host)
                    # Most children are settled with their last answer.
                    outcome = record.outcome or Outcome(SUCCEEDED, output)
                outcome = outcome or self._cut_short(record, deadline)
            except (Exception, BaseExceptionGroup) as exc:  # noqa: BLE001 (a bulkhead)
                outcome, error = await self._outcome_of_error(record, exc)
            finally:
                del self._scopes[task]
                self._registry.running.pop(task, None)
                if host is not None and host.activity is not None:
                    self.watchdog.unwatch(host.activity)
                    self._stalled.pop(task, None)
                if task in self.reservations.open:
                    self.reservations.unrecordable(task)
        finally:
            # A child that ended with its last answer is settled already.
            settled = record.outcome
            outcome = settled or outcome or self._torn_down(record)
            if settled is None and outcome is not None:
                if record.children.unsettled:
                    await self._executor.close_below(task)  # noqa: ASYNC102 (shielded and bounded there)
                outcome = self.settlement.settle(
                    record, outcome, None if host is None else host.order.agent
                )
            if self.reservations.workload is not None and record.is_root:
                self.reservations.workload.end_run(record.session, outcome)
        if outcome is None:
            turn = ledger.sessions[record.session].turn
            assert turn is not None, "a task without an outcome was torn down"
            raise ChangedProgramError(record.session, turn.change)
        return TaskEnd(outcome, error)  # noqa: ASYNC910 (one that could not start waits for nothing)

    def _host_of(  # noqa: PLR0917 (the parts of a host)
        self,
        record: TaskRecord,
        agent: Agent[Any],
        origin: Origin,
        delegator: TaskDelegator,
        scope: trio.CancelScope,
        durable: bool,
    ) -> LocalTaskHost:
        """Return the host of a task that is about to run, and watch the task if it is a child."""
        deps = self._registry.deps.get(record.session)
        activity = approvals = None
        # A session is not watched: its caller decides how long it may be silent.
        if record.is_root:
            terms = self._book.ledger.sessions[record.session].terms
            order = WorkOrder(record, agent, origin, terms, deps, self._transcript_start(record))
        else:
            order = WorkOrder(record, agent, origin, deps=deps)
            if record.request is not None and record.request.fork is not msgspec.UNSET:
                from orchestrator.kernel.execution.forked_tools import is_fork_of_root

                terms = self._book.ledger.sessions[record.session].terms
                if is_fork_of_root(record) and terms.settings:
                    order = replace(order, terms=AnswerTerms(terms.settings))
            activity = self.watchdog.watch(record, agent.patience)
        if self._registry.has_rules or agent.plan.may_ask_person:
            approvals = self._approval_check(record, agent)
        return LocalTaskHost(
            order,
            record,
            self._services,
            self._book,
            delegator,
            scope,
            activity,
            approvals,
            durable,
        )

    def _torn_down(self, record: TaskRecord) -> Outcome | None:
        """Return the outcome of a task that was cancelled from outside.

        A task that no process could resume has ended with it; any other is only interrupted.
        """
        if record.session in self._interrupting:
            turn = self._book.ledger.sessions[record.session].turn
            if record.is_root and turn is not None:
                # All below it was torn down before.
                change = self._interrupting.pop(record.session)
                self._book.post(TurnInterrupted(record.session, turn.number, change))
            return None
        if not self._book.ledger.settles_on_teardown(record.id):
            return None
        return self._unfinished(record, Ending.CANCELLED, cancel_cause(record), STOPPED)

    def _cut_short(self, record: TaskRecord, deadline: "_Deadline") -> Outcome | None:
        """Return the outcome of a task whose scope was cancelled: by a request, or by the time.

        It is None for a run that is interrupted because its program has changed.
        """
        if self._book.ledger.is_cancelled(record.id):
            self._changed.pop(record.id, None)
            self._interrupting.pop(record.session, None)
            return self._unfinished(record, Ending.CANCELLED, cancel_cause(record), STOPPED)
        if record.is_root and record.session in self._interrupting:
            return None
        if (change := self._changed.pop(record.id, None)) is not None:
            return self._unfinished(record, Ending.FAILED, Cause.CHANGED, change)
        cause, error, account = Cause.DEADLINE, deadline.error, deadline.account
        if (stalled := self._stalled.get(record.id)) is not None:
            cause, error, account = Cause.STALLED, stalled, ""
        outcome = self._unfinished(record, Ending.TIMED_OUT, cause, error)
        return replace(outcome, kind="seconds", account=account)

    async def _outcome_of_error(
        self, record: TaskRecord, exc: BaseException
    ) -> tuple[Outcome | None, BaseException]:
        """Return the outcome of a task that an error ended, and the error for its caller."""
        if record.is_root and record.session in self._interrupting:
            return None, exc  # noqa: ASYNC910 (its program failed while it was stopped)
        if isinstance(exc, JournalError | ClosedError):
            # The error of another orchestrator, which a tool has used, is an error like any other.
            if self._book.closed or self._book.is_broken:
                raise exc
            outcome = self._unfinished(record, Ending.FAILED, Cause.ERROR, describe_error(exc))
            return outcome, with_own_frames(exc)  # noqa: ASYNC910 (it is recorded at once)
        if isinstance(exc, EXPECTED_ERRORS):
            return self._expected_outcome(record, exc), with_own_frames(exc)  # noqa: ASYNC910
        raised = without_cancellations(exc)
        ending, cause, error = Ending.FAILED, Cause.ERROR, describe_error(raised)
        trace = traceback_text(with_own_frames(raised))
        if self._book.ledger.is_cancelled(record.id):
            ending, cause = Ending.CANCELLED, cancel_cause(record)
            error = f"{STOPPED}, and then {error}"
        # An error while it is torn down from outside is part of being torn down.
        await trio.lowlevel.checkpoint_if_cancelled()
        outcome = self._unfinished(record, ending, cause, error)
        return replace(outcome, recorded_traceback=trace), raised

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

    async def _run_with_restarts(self, order: WorkOrder, host: TaskHost) -> str:
        """Run a turn; if its worker is lost, start it again."""
        for _ in range(MOST_RESTARTS):
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
    ) -> "_Deadline":
        """Set the deadline of a task."""
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
        return _Deadline(over_time, paid_by)

    def _approval_check(self, record: TaskRecord, agent: Agent[Any]) -> "TaskApprovalCheck | None":
        """Return where the calls of a task wait for approval, if any of them may have to."""
        policies = self._registry.policies_of(record)
        if not self._asks_approval or not (policies or agent.plan.may_ask_person):
            return None
        # Imported late: most agents have neither rules nor tools that act on the machine.
        from orchestrator.kernel.engine.approvals import TaskApprovalCheck

        workspace = partial(self._executor.workspace_of, record)
        return TaskApprovalCheck(
            self._book, record, policies, workspace, agent=agent, estimate=self._estimate
        )


class _Deadline(msgspec.Struct, frozen=True):
    """The deadline of a task: the error when it has passed, and the account that set it."""

    error: str = ""
    account: str = ""


NO_DEADLINE: Final = _Deadline()
