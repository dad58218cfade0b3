"""Letting an agent act, and seeing it through to an outcome.

The one bulkhead of the house: whatever goes wrong inside an agent becomes the outcome of its
task. What an agent is cancelled for decides whether it has ended or was merely interrupted.
"""

import traceback
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any, Final, cast

import trio

from agents import (
    Agent,
    AgentError,
    AssistantMessage,
    DefinitionError,
    LimitExceededError,
    ModelError,
    Step,
    Tool,
    take_turn,
)
from delegation import (
    Delegator,
    Ending,
    Origin,
    Outcome,
    TaskId,
    TaskRecord,
    UnwritableFactError,
    delegate_tool,
)
from delegation.events import Event, ModelAnswered, TaskSettled, ToolAnswered
from orchestrator.bookkeeper import Bookkeeper
from orchestrator.errors import ClosedError, JournalError
from orchestrator.listening import Listeners
from orchestrator.roster import Roster

STOPPED: Final = "it was stopped"


class Acting:
    """Runs agents, and holds the scope of each one that runs."""

    def __init__(self, book: Bookkeeper, roster: Roster) -> None:
        self._book = book
        self._roster = roster
        self.listeners = Listeners()
        self._scopes: dict[TaskId, trio.CancelScope] = {}

    def stop(self, task: TaskId) -> None:
        """Cancel an agent that acts now. Its joined children are cancelled with it."""
        if task in self._scopes:
            self._scopes[task].cancel(reason="a cancel was requested")

    async def see_through(
        self,
        task: TaskId,
        *,
        origin: Origin,
        delegator: Delegator,
        ended: Callable[[Outcome], Event],
    ) -> Outcome:
        """Let the agent of a task act until it has an outcome, and record that.

        Args:
            task: who acts.
            origin: what its own requests will say of where they come from.
            delegator: takes its requests.
            ended: makes the fact that records the outcome.
        """
        outcome: Outcome | None = None
        try:
            outcome = await self._act(task, origin, delegator)
            return outcome
        finally:
            # Without an outcome this is a cancellation from outside. A task that nobody could
            # take up again has ended with it; any other is only interrupted.
            if outcome is None and self._book.ledger.ends_for_good(task):
                record = self._book.ledger.tasks[task]
                outcome = _unfinished(record, Ending.CANCELLED, STOPPED)
            if outcome is not None:
                self.end_below(task, Ending.CANCELLED)
                self._book.post(ended(outcome))

    def end_below(self, task: TaskId, ending: Ending) -> None:
        """Settle what a task had asked for, and what cannot go on any more without it."""
        for child in list(self._book.ledger.unsettled_below(task)):
            error = "the task that asked for it ended first"
            self._book.post(TaskSettled(child.id, _unfinished(child, ending, error)))

    async def _act(self, task: TaskId, origin: Origin, delegator: Delegator) -> Outcome:
        record = self._book.ledger.tasks[task]
        ending, error = Ending.CANCELLED, STOPPED
        scope = self._scopes[task] = trio.CancelScope()
        if self._book.ledger.is_cancelled(task):
            self.stop(task)
        try:
            agent = self._roster.agent_of(record)
            if (seconds := agent.limits.seconds) is not None:
                scope.relative_deadline = seconds
            with scope:
                return await self._answer(agent, record, origin, delegator)
            if not self._book.ledger.is_cancelled(task):
                ending = Ending.TIMED_OUT
                error = f"used up its limit of {seconds} seconds"
        except (JournalError, ClosedError):
            raise
        except LimitExceededError as exc:
            ending, error = Ending.OVER_BUDGET, str(exc)
        except ModelError as exc:
            return _unfinished(record, Ending.FAILED, str(exc), exc)  # noqa: ASYNC910
        except (AgentError, DefinitionError, UnwritableFactError) as exc:
            ending, error = Ending.FAILED, str(exc)
        except (Exception, BaseExceptionGroup) as exc:  # noqa: BLE001 (a bulkhead)
            ending, error = Ending.FAILED, _described(_failure(exc))
            if self._book.ledger.is_cancelled(task):
                ending, error = Ending.CANCELLED, f"{STOPPED}, and then {error}"
            # An error while it is torn down from outside is part of being torn down.
            await trio.lowlevel.checkpoint_if_cancelled()
        finally:
            del self._scopes[task]
        # No checkpoint: whoever could not even begin has nothing to wait for.
        return _unfinished(record, ending, error)  # noqa: ASYNC910

    async def _answer(
        self,
        agent: Agent[Any],
        record: TaskRecord,
        origin: Origin,
        delegator: Delegator,
    ) -> Outcome:
        def keep(step: Step) -> None:
            if isinstance(step, AssistantMessage):
                self._book.post(ModelAnswered(record.id, step))
            else:
                self._book.post(ToolAnswered(record.id, step))

        text = await take_turn(
            agent,
            record.transcript,
            model=self._roster.model_of(agent),
            tools=self._tools(agent, record, origin, delegator),
            record=keep,
            ready=self._book.wait_durable,
            tell=self.listeners.teller(record.id),
            path=record.path,
        )
        return Outcome(Ending.SUCCEEDED, text)

    def _tools(
        self,
        agent: Agent[Any],
        record: TaskRecord,
        origin: Origin,
        delegator: Delegator,
    ) -> list[Tool]:
        if not agent.delegates:
            return list(agent.tools)
        delegate = delegate_tool(
            agent,
            parent=record.id,
            origin=origin,
            rules=self._book.rules,
            delegator=delegator,
        )
        return [*agent.tools, delegate]


def _unfinished(
    record: TaskRecord, ending: Ending, error: str, failed: ModelError | None = None
) -> Outcome:
    """Return the outcome of a task that gave no final answer, with the last thing it said."""
    said = [
        message.text
        for message in record.transcript
        if isinstance(message, AssistantMessage) and message.text
    ]
    if failed is not None and failed.partial:
        said.append(failed.partial)
    kind = "" if failed is None else failed.kind.value
    return Outcome(ending, said[-1] if said else "", error, kind)


def _failure(exc: BaseException) -> BaseException:
    """Return what failed: without the cancellations that the nursery of a tool adds to it."""
    leaves = list(_leaves(exc))
    for leaf in leaves:
        if isinstance(leaf, KeyboardInterrupt | SystemExit):
            raise leaf
    errors = [leaf for leaf in leaves if not isinstance(leaf, trio.Cancelled)]
    if not errors:
        raise exc
    return errors[0] if len(errors) == 1 else exc


def _leaves(exc: BaseException) -> Iterator[BaseException]:
    if isinstance(exc, BaseExceptionGroup):
        for part in cast("BaseExceptionGroup[BaseException]", exc).exceptions:
            yield from _leaves(part)
    else:
        yield exc


def _described(exc: BaseException) -> str:
    """Return an error that nobody foresaw, with the line of code it comes from."""
    frames = traceback.extract_tb(exc.__traceback__)
    place = (
        f" ({PurePath(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    )
    return f"{type(exc).__name__}: {exc}{place}"
