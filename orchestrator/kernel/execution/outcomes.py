"""The outcome of a task that raised: its ending, its cause, and a sentence.

An error may come from any code, so its text is made well-formed before it is recorded.
"""

import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import PurePath
from typing import Any, Final, cast

import msgspec
import trio
from msgspec.structs import replace

from orchestrator.agents import (
    Agent,
    AgentError,
    AssistantMessage,
    DefinitionError,
    LimitExceededError,
    ModelError,
    OutputError,
)
from orchestrator.delegation import (
    Cause,
    Ending,
    Outcome,
    OverBudgetError,
    TaskRecord,
    UnwritableFactError,
)
from orchestrator.kernel.errors import TaskFailedError, error_text
from orchestrator.kernel.execution.tool_place import WorkerLostError

STOPPED: Final = "it was stopped"
ENDED_FIRST: Final = "the task that asked for it ended first"
PROCESS_DIED: Final = Outcome(
    Ending.LOST, error="its process died before it had ended", cause=Cause.PROCESS_DIED
)
"""The outcome of a task that a crash ended."""
NEEDS_ASYNCIO: Final = (
    "Trio runs this, and it calls code of asyncio: make a tool of that with"
    " `orchestrator.asyncio.tool`, and call it in other functions with `await"
    " orchestrator.asyncio.run_in_asyncio(function, ...)`"
)
NO_VERSION: Final = "no version"
EXPECTED_ERRORS: Final = (
    AgentError,
    DefinitionError,
    OverBudgetError,
    TaskFailedError,
    UnwritableFactError,
)
"""Errors whose text is enough: no type and no line of code is added to it."""


class TaskEnd(msgspec.Struct, frozen=True):
    """The recorded end of a task, and the error that ended it."""

    outcome: Outcome
    error: BaseException | None = None
    """The error that its agent raised in this process, with the frames of the program."""


def version_change(path: str, before: str, agent: Agent[Any]) -> str:
    """Return the sentence about a task that goes on with another version of its agent."""
    begun = f"version {before!r}" if before else NO_VERSION
    now = f"version {agent.version!r}" if agent.version else NO_VERSION
    return f"{path} began with {begun} of {agent.name}, which has {now} now"


def outcome_of(exc: Exception, record: TaskRecord, *, start: int) -> Outcome:  # noqa: PLR0911 (a case an error)
    """Return the outcome of a task that an expected error ended, after the transcript's `start`."""
    unfinished = partial(unfinished_outcome, record, start=start)
    match exc:
        case ModelError():
            ended = unfinished(Ending.FAILED, Cause.MODEL, error_text(exc))
            return replace(ended, kind=exc.kind.value, retry_after=exc.retry_after)
        case OverBudgetError():
            ended = unfinished(Ending.OVER_BUDGET, Cause.BUDGET, error_text(exc))
            return replace(ended, kind=exc.ran_out.value, account=exc.account.id)
        case LimitExceededError():
            ended = unfinished(Ending.OVER_BUDGET, Cause.LIMIT, error_text(exc))
            return replace(ended, kind=exc.ran_out)
        case WorkerLostError():
            return unfinished(Ending.LOST, Cause.WORKER_LOST, error_text(exc))
        case OutputError():
            ended = unfinished(Ending.FAILED, Cause.OUTPUT, error_text(exc))
            return replace(ended, schema_errors=exc.problems)
        case TaskFailedError():
            account = _shared_account(exc, record)
            ending = Ending.OVER_BUDGET if account else Ending.FAILED
            ended = unfinished(ending, Cause.CHILD, error_text(exc))
            return replace(ended, kind=exc.outcome.kind, account=account)
        case _:
            return unfinished(Ending.FAILED, Cause.ERROR, error_text(exc))


def _shared_account(exc: TaskFailedError, record: TaskRecord) -> str:
    """Return the account of a pipeline that ended its child; empty if no account did.

    A budget that is used up for a child is used up for every task under it.
    """
    if exc.outcome.ending not in {Ending.OVER_BUDGET, Ending.REFUSED}:
        return ""
    own = {it.id for it in record.accounts}
    outcomes = (exc.outcome, *exc.outcomes.values())
    return next((it.account for it in outcomes if it.account in own), "")


def unfinished_outcome(
    record: TaskRecord, ending: Ending, cause: Cause, error: str, *, start: int = 0
) -> Outcome:
    """Return the outcome of a task without a final answer, with the last text of its model.

    The last text comes from the transcript, also if the answer was broken off; texts before `start`
    are answers of other turns.
    """
    if not record.is_root:
        # The messages that the task was handed are from another agent.
        start = record.first_step
    texts = (
        message.text
        for message in reversed(record.transcript[start:])
        if isinstance(message, AssistantMessage) and message.text
    )
    return Outcome(ending, next(texts, ""), error, cause=cause)


def cancel_cause(record: TaskRecord) -> Cause:
    """Return why a task is cancelled that runs: for its own sake, or with its caller."""
    return Cause.ASKED if record.cancel_requested else Cause.CALLER_GONE


def without_cancellations(exc: BaseException) -> BaseException:
    """Return an error without the cancellations that the nursery of a tool adds to it."""
    leaves = list(_leaves(exc))
    for leaf in leaves:
        if isinstance(leaf, KeyboardInterrupt | SystemExit):
            raise leaf
    errors = [leaf for leaf in leaves if not isinstance(leaf, trio.Cancelled)]
    if not errors:
        raise exc
    return errors[0] if len(errors) == 1 else exc


def _leaves(exc: BaseException) -> Iterator[BaseException]:
    if isinstance(exc, BaseExceptionGroup) and not isinstance(exc, EXPECTED_ERRORS):
        for part in cast("BaseExceptionGroup[BaseException]", exc).exceptions:
            yield from _leaves(part)
    else:
        yield exc


def describe_error(exc: BaseException) -> str:
    """Return the text of an unexpected error, with the line of code that raised it."""
    if isinstance(exc, EXPECTED_ERRORS):
        return error_text(exc)
    if isinstance(exc, BaseExceptionGroup):
        leaves = _leaves(cast("BaseException", exc))
        errors = [leaf for leaf in leaves if not isinstance(leaf, trio.Cancelled)]
        return f"{len(errors)} errors: {'; '.join(map(describe_error, errors))}"
    frames = traceback.extract_tb(exc.__traceback__)
    place = f" ({PurePath(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    text = f"{type(exc).__name__}: {error_text(exc)}{place}"
    return f"{text}. {NEEDS_ASYNCIO}" if _misses_asyncio(exc) else text


def _misses_asyncio(exc: BaseException) -> bool:
    """Return whether code of asyncio failed because trio ran it.

    Both libraries raise a builtin error for that, so its text is all there is to know it by.
    """
    match exc:
        case RuntimeError():
            return "no running event loop" in error_text(exc)
        case TypeError():
            return "unrecognized yield message" in error_text(exc)
        case _:
            return False
