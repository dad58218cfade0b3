"""Facts of version 2 as facts of version 3: the only place that reads the text of an error.

Version 2 recorded the cause of an ending, the reason of a failed model call, what refused a tool
call and the origin of steering as sentences alone.
"""

import re
from typing import Final, assert_never

import attrs
from msgspec.structs import replace

from orchestrator.agents import Failure, RefusedBy, ToolMessage
from orchestrator.delegation.events.facts import (
    Event,
    ModelFailed,
    ModelFailure,
    Steered,
    SteeringOrigin,
    TaskSettled,
    ToolAnswered,
    TurnEnded,
)
from orchestrator.delegation.task import Cause, Ending, Outcome

_CANCELLED: Final = {
    "it was stopped before it could go on": Cause.BEFORE_START,
    "whoever asked for it stopped waiting": Cause.NOT_AWAITED,
    "the task that asked for it ended first": Cause.ENDED_FIRST,
}
_LOST: Final = {
    "the task that asked for it ended first": Cause.ENDED_FIRST,
    "the call that asked for it failed when it was made again": Cause.CALL_FAILED,
}
_MODEL_FAILURES: Final = {
    "it was broken off": ModelFailure.BROKEN_OFF,
    "its answer cannot be kept": ModelFailure.UNRECORDABLE,
}
_PROVIDER_FAILURES: Final = frozenset(failure.value for failure in Failure)
_OF_A_CHILD: Final = re.compile(rf"/\S+ (?:{'|'.join(Ending)}): ")
_OF_AN_ACCOUNT: Final = re.compile(r"the budget\b.*? of /\S*(?= (?:is|cannot|allows)\b)")
_REFUSALS: Final = (
    (re.compile(r"there is no tool '"), RefusedBy.UNKNOWN_TOOL),
    (re.compile(r"you have made this very call \d+ times"), RefusedBy.REPEAT_LIMIT),
    (
        re.compile(
            r"[\w-]+ (?:was denied|needs an approval|was approved for"
            r"|was not run: its task has ended)"
        ),
        RefusedBy.APPROVAL,
    ),
    (re.compile(r"the orchestrator is stopping"), RefusedBy.SHUTDOWN),
    (re.compile(r"broken off: everything stopped|not run: it held"), RefusedBy.CRASH),
)


def upgrade_from_2(event: Event) -> Event:
    """Return a fact of version 2 with the values that version 3 has beside its sentences."""
    match event:
        case TaskSettled():
            return replace(event, outcome=_upgrade_outcome(event.outcome))
        case TurnEnded():
            return attrs.evolve(event, outcome=_upgrade_outcome(event.outcome))
        case ModelFailed():
            reason = _MODEL_FAILURES.get(event.error, ModelFailure.FAILED)
            return attrs.evolve(event, reason=reason)
        case ToolAnswered() if event.message.failed:
            return attrs.evolve(event, message=_upgrade_answer(event.message))
        case Steered() if event.by.startswith("/"):
            return attrs.evolve(event, origin=SteeringOrigin.TASK)
        case _:
            return event


def _upgrade_outcome(outcome: Outcome) -> Outcome:
    cause = _cause_of(outcome)
    account = ""
    if outcome.ending in {Ending.OVER_BUDGET, Ending.TIMED_OUT}:
        account = _account_of(outcome.error)
    return replace(outcome, cause=cause, account=account)


def _cause_of(outcome: Outcome) -> Cause:  # noqa: PLR0911 (one for each)
    error = outcome.error
    match outcome.ending:
        case Ending.SUCCEEDED:
            return Cause.NONE
        case Ending.CANCELLED:
            return _CANCELLED.get(error, Cause.STOPPED)
        case Ending.LOST:
            return _LOST.get(error, Cause.PROCESS_DIED)
        case Ending.REFUSED:
            return Cause.DEPENDENCY
        case Ending.TIMED_OUT:
            return Cause.STALLED if error.startswith("stalled: ") else Cause.DEADLINE
        case Ending.OVER_BUDGET | Ending.FAILED if _OF_A_CHILD.match(error):
            return Cause.CHILD
        case Ending.OVER_BUDGET:
            is_limit = error.startswith("used up its limit of ")
            return Cause.LIMIT if is_limit else Cause.BUDGET
        case Ending.FAILED:
            if outcome.schema_errors:
                return Cause.OUTPUT
            is_providers = outcome.kind in _PROVIDER_FAILURES
            return Cause.MODEL if is_providers else Cause.ERROR
        case _:
            assert_never(outcome.ending)


def _account_of(error: str) -> str:
    """Return the description of the account: version 2 does not name its id."""
    found = _OF_AN_ACCOUNT.search(error)
    return "" if found is None else found[0]


def _upgrade_answer(message: ToolMessage) -> ToolMessage:
    for pattern, refused_by in _REFUSALS:
        if pattern.match(message.text):
            return attrs.evolve(message, refused_by=refused_by)
    return message
