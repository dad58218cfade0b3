"""How a task ended, from what went wrong: the words that its outcome keeps.

An error may be anybody's, so what it says is made fit to be written down.
"""

import traceback
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final, cast

import trio
from msgspec.structs import replace

from agents import (
    AgentError,
    AssistantMessage,
    DefinitionError,
    LimitExceededError,
    ModelError,
    OutputError,
    well_formed,
)
from delegation import (
    Ending,
    Outcome,
    OverBudgetError,
    TaskRecord,
    UnwritableFactError,
)
from orchestrator.errors import TaskFailedError, error_text

STOPPED: Final = "it was stopped"
ENDED_FIRST: Final = "the task that asked for it ended first"
LOST: Final = "its process died before it had ended"
EXPECTED_ERRORS: Final = (
    AgentError,
    DefinitionError,
    OverBudgetError,
    TaskFailedError,
    UnwritableFactError,
)
"""What a task may end by, and that says enough by itself."""


def outcome_of(exc: Exception, record: TaskRecord) -> Outcome:
    """Return how a task ends by an error that was foreseen."""
    match exc:
        case ModelError():
            ended = unfinished_outcome(
                record, Ending.FAILED, error_text(exc), partial=exc.partial
            )
            return replace(ended, kind=exc.kind.value, retry_after=exc.retry_after)
        case OverBudgetError():
            ended = unfinished_outcome(
                record, Ending.OVER_BUDGET, error_text(exc), partial=exc.partial
            )
            return replace(ended, kind=exc.ran_out)
        case LimitExceededError():
            ended = unfinished_outcome(record, Ending.OVER_BUDGET, error_text(exc))
            return replace(ended, kind=exc.ran_out)
        case OutputError():
            ended = unfinished_outcome(record, Ending.FAILED, error_text(exc))
            return replace(ended, schema_errors=exc.problems)
        case TaskFailedError():
            ended = unfinished_outcome(record, _ending_by(exc, record), error_text(exc))
            return replace(ended, kind=exc.outcome.kind)
        case _:
            return unfinished_outcome(record, Ending.FAILED, error_text(exc))


def _ending_by(exc: TaskFailedError, record: TaskRecord) -> Ending:
    """Return how a pipeline ends by what it delegated and could not do without."""
    theirs = exc.outcome
    # What is used up for one of them is used up for all under the same budget.
    is_shared = any(it.describe() in theirs.error for it in record.accounts)
    if theirs.ending in {Ending.OVER_BUDGET, Ending.REFUSED} and is_shared:
        return Ending.OVER_BUDGET
    return Ending.FAILED


def unfinished_outcome(
    record: TaskRecord, ending: Ending, error: str, *, partial: str = ""
) -> Outcome:
    """Return the outcome of a task that gave no final answer, with the last thing it said."""
    said = [
        message.text
        for message in record.transcript
        if isinstance(message, AssistantMessage) and message.text
    ]
    last = said[-1] if said else ""
    return Outcome(ending, well_formed(partial or last), error)


def without_cancellations(exc: BaseException) -> BaseException:
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
    if isinstance(exc, BaseExceptionGroup) and not isinstance(exc, EXPECTED_ERRORS):
        for part in cast("BaseExceptionGroup[BaseException]", exc).exceptions:
            yield from _leaves(part)
    else:
        yield exc


def describe_error(exc: BaseException) -> str:
    """Return an error that nobody foresaw, with the line of code it comes from."""
    if isinstance(exc, EXPECTED_ERRORS):
        return error_text(exc)
    if isinstance(exc, BaseExceptionGroup):
        leaves = _leaves(cast("BaseException", exc))
        errors = [leaf for leaf in leaves if not isinstance(leaf, trio.Cancelled)]
        return f"{len(errors)} errors: {'; '.join(map(describe_error, errors))}"
    frames = traceback.extract_tb(exc.__traceback__)
    place = (
        f" ({PurePath(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    )
    return f"{type(exc).__name__}: {error_text(exc)}{place}"
