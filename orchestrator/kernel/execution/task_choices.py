"""The choices of a parent for one task, in its request."""

import attrs
from msgspec import UNSET
from msgspec.structs import replace

from orchestrator.agents import AssistantMessage, Budget, CallId, Transcript
from orchestrator.agents.budget import BudgetKind
from orchestrator.delegation import TaskRequest
from orchestrator.delegation.choices import Choices

NOTHING_CHOSEN = Choices()


def request_with_choices(request: TaskRequest, chosen: Choices, fork: int) -> TaskRequest:
    """Return a request with the choices of its parent, whose budget can only narrow the agent's.

    `fork` is the length of the parent's conversation that a fork continues.
    """
    if chosen == NOTHING_CHOSEN:
        return request
    budget = _narrower(request.budget, chosen.budget)
    shared = fork if chosen.conversation == "fork" else UNSET
    return replace(request, chosen=chosen, budget=budget, fork=shared)


def fork_point(transcript: Transcript, call: CallId) -> int:
    """Return the length of a conversation up to the answer that makes a call."""
    for at in reversed(range(len(transcript))):
        message = transcript[at]
        if isinstance(message, AssistantMessage) and any(it.id == call for it in message.calls):
            return at + 1
    raise LookupError(call)


def _narrower(own: Budget | None, given: Budget | None) -> Budget | None:
    """Return the budget with the smaller amount of each kind."""
    if own is None or given is None:
        return given if own is None else own
    both = {kind: (getattr(own, kind), getattr(given, kind)) for kind in BudgetKind}
    least = {
        kind: min(it for it in amounts if it is not None)
        for kind, amounts in both.items()
        if amounts != (None, None)
    }
    return attrs.evolve(own, **least)
