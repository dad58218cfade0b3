"""The child of a pipeline: its wait, its cancellation, and the error that it raises."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Generic, TypeVar

import trio
from msgspec.structs import replace

from orchestrator.agents import Agent, OutputError, Pipeline, read_output
from orchestrator.delegation import Cause, Ending, Outcome, TaskId, TaskRecord
from orchestrator.kernel.budget_scope import leave_budget_names
from orchestrator.kernel.errors import FanOutFailedError, TaskFailedError, explain
from orchestrator.kernel.execution.outcomes import TaskEnd
from orchestrator.kernel.journal.bookkeeper import Bookkeeper
from orchestrator.kernel.pipelines.current_run import leave_pipeline

OutputT_co = TypeVar("OutputT_co", covariant=True)

NOT_AWAITED: Final = "the pipeline that asked for it stopped waiting"
_WITH_CALLER: Final = frozenset(
    {Cause.CALLER_GONE, Cause.NOT_AWAITED, Cause.ENDED_FIRST, Cause.SESSION_CLOSED, Cause.SHUTDOWN}
)
"""Causes that end a task with its caller, rather than for its own sake."""


class Child(Generic[OutputT_co]):
    """A task that a pipeline has delegated, and that runs beside it."""

    def __init__(self, agent: Agent[OutputT_co], record: TaskRecord, book: Bookkeeper) -> None:
        self._agent = agent
        self._record = record
        self._book = book
        self._scope = trio.CancelScope()
        self._changed: trio.Event | None = None
        """Is set when it has ended or is cancelled; made by the first wait for that."""
        self._is_cancelled = False
        self._error: BaseException | None = None
        self.has_ended = False
        """Nothing of it runs any more."""
        self.awaits_cancel = False
        """The program waits for it, and had stopped to before a crash."""
        self.on_end: Callable[[], None] | None = None
        """Is called when it has ended, where the program waits for many at once."""

    @property
    def error(self) -> BaseException | None:
        """The error that its agent raised in this process, if that ended it."""
        return self._error

    @property
    def id(self) -> TaskId:
        return self._record.id

    @property
    def path(self) -> str:
        """Its path in the tree, such as `/brief/researcher[3]`."""
        return self._record.path

    @property
    def outcome(self) -> Outcome | None:
        """Its outcome; None before its end."""
        return self._record.outcome

    @property
    def ended_at(self) -> float:
        """When it ended, by the clock of the journal; 0 before its end."""
        return self._record.node.ended or 0.0

    @property
    def was_not_awaited(self) -> bool:
        """It ended because the pipeline stopped waiting for it."""
        return ended_with_caller(self._record)

    async def result(self) -> OutputT_co:
        """Wait until it has ended, and return its answer.

        Raises:
            TaskFailedError: it did not succeed.
        """
        outcome = await self.wait()
        if not outcome.succeeded:
            raise self.failure(outcome)
        return self.output(outcome)

    async def wait(self) -> Outcome:
        """Wait until it has ended, and return its outcome."""
        record = self._record
        # The wait ends by the fact, as that for a detached task does.
        while (outcome := record.outcome) is None:
            await self._book.wakeups.wait_tasks_changed([record.id])
        if ended_with_caller(record):
            # A program that had stopped waiting before a crash will do so again.
            self.awaits_cancel = not self._is_cancelled
            while not self._is_cancelled:
                await self._wait_changed()
        # A program does not act on an outcome that a crash could still undo. If the pipeline is
        # being torn down, here is where that is noticed.
        await self._book.wait_durable()
        return outcome

    async def cancel(self) -> None:
        """Cancel it and its descendants, and return when all of them have ended."""
        self.begin_cancel()
        await trio.lowlevel.checkpoint()
        while not self.has_ended:
            await self._wait_changed()

    def begin_cancel(self) -> None:
        """Cancel it and its descendants, without waiting for their end."""
        self._is_cancelled = True
        self.awaits_cancel = False
        self._scope.cancel(reason=NOT_AWAITED)
        self._note_change()

    async def _wait_changed(self) -> None:
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()

    def _note_change(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def output(self, outcome: Outcome) -> OutputT_co:
        """Return the answer as the output type of its agent.

        Raises:
            TaskFailedError: the answer does not fit the type without the secret that was in it.
        """
        try:
            return read_output(self._agent.output, outcome.output)
        except OutputError as exc:
            unread = replace(outcome, ending=Ending.FAILED, cause=Cause.OUTPUT, error=str(exc))
            raise TaskFailedError(self.path, unread) from exc

    def failure(self, outcome: Outcome) -> TaskFailedError:
        """Return the error of an unsuccessful child; for a fan-out, all failures in it."""
        if not (isinstance(self._agent, Pipeline) and self._agent.fans_out):
            return task_failure(self.path, outcome, self._error)
        ledger = self._book.records
        tree = ledger.sessions[self._record.session].tree
        below = [ledger.tasks[task] for task in tree.children(self._record.id)]
        # A task that was cancelled because of the others has not failed.
        outcomes = {
            it.path: it.outcome
            for it in below
            if it.outcome is not None and not ended_with_caller(it)
        }
        errors: dict[str, BaseException | None] = {}
        if isinstance(self._error, FanOutFailedError):
            failures = self._error.exceptions
            errors = {it.path: it.__cause__ for it in failures if isinstance(it, TaskFailedError)}
        return fan_out_failure(self.path, outcome, outcomes, errors)

    async def run_until_ended(  # noqa: ASYNC910 (the first function of its trio task)
        self,
        run: Callable[[TaskRecord], Awaitable[TaskEnd | None]],
        settle: Callable[[TaskRecord], None],
    ) -> None:
        """Run it until it has ended, or until the pipeline stops waiting for it."""
        # A child delegates for itself, not for this pipeline.
        leave_pipeline()
        leave_budget_names()
        record = self._record
        try:
            if record.outcome is None:
                with self._scope:
                    # No checkpoint after its last fact: its waiters find the error.
                    end = await run(record)
                    self._error = None if end is None else end.error
                # Not if the pipeline itself is torn down: then the child resumes with it.
                if self._scope.cancelled_caught and record.outcome is None:
                    settle(record)
        finally:
            self.has_ended = True
            self._note_change()
            if self.on_end is not None:
                self.on_end()


def task_failure(path: str, outcome: Outcome, error: BaseException | None) -> TaskFailedError:
    """Return the error of an unsuccessful task, chained to the error that its agent raised."""
    failure = TaskFailedError(path, outcome)
    explain(failure, outcome, error)
    return failure


def fan_out_failure(
    path: str,
    outcome: Outcome,
    outcomes: Mapping[str, Outcome],
    errors: Mapping[str, BaseException | None],
) -> TaskFailedError:
    """Return the failures of the children of a fan-out, with the outcomes of all."""
    failures = [
        task_failure(child, ended, errors.get(child))
        for child, ended in outcomes.items()
        if not ended.succeeded
    ]
    if not failures:
        return TaskFailedError(path, outcome, outcomes)
    return FanOutFailedError(path, outcome, failures, outcomes)


def combined_failure(
    path: str, outcomes: Mapping[str, Outcome], errors: Mapping[str, BaseException | None]
) -> TaskFailedError:
    """Return the error of a pipeline that cannot do without its failed children."""
    failed = {path: ended for path, ended in outcomes.items() if not ended.succeeded}
    # A budget that is used up decides: it is used up for all children.
    over_budget = [it for it in failed.values() if it.ending is Ending.OVER_BUDGET]
    main = (over_budget or list(failed.values()))[0]
    outcome = Outcome(
        main.ending if over_budget else Ending.FAILED,
        error="; ".join(str(TaskFailedError(*it)) for it in failed.items()),
        kind=main.kind,
        cause=Cause.CHILD,
        account=main.account,
    )
    return fan_out_failure(path, outcome, outcomes, errors)


def ended_with_caller(record: TaskRecord) -> bool:
    """Return whether a task ended because its caller did, or stopped waiting for it."""
    outcome = record.outcome
    return (
        outcome is not None
        and outcome.ending is Ending.CANCELLED
        and not record.cancel_requested
        and outcome.cause in _WITH_CALLER
    )
