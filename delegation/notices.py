"""The messages that tasks and sessions read: goals, steering, and notices.

Each is complete in itself: the reader may have forgotten everything before it.
"""

import datetime as dt
from collections.abc import Iterable
from typing import Final

import msgspec

from orchestrator.agents import Usage
from orchestrator.delegation.task import Outcome, TaskId, TaskRequest

MAX_RESULT_CHARACTERS: Final = 50_000
"""How many characters of results are in one answer or one turn, where the window of the model is
not known: some 12,000 tokens."""
MIN_SHARE: Final = 2_000
"""The least share of each result then, however many there are."""
MIN_SHARE_IN_WINDOW: Final = 200
"""The same where the window is known."""

MOST_SHOWN_COST: Final = 10**15
"""A cost that only a damaged journal has: a billion dollars."""
SHOWN_COST: Final = 50
"""The least cost that four decimals of a dollar show, in micro-dollars."""

HANDED_OFF: Final = (
    "The conversation above is handed over to you: your answer is the next one in it."
)
CONTEXT: Final = "Context:\n{context}\n\nYour task:\n"
"""The part of a first message that precedes the goal."""


def first_message(
    request: TaskRequest, dependencies: "Iterable[tuple[str, str]]" = ()
) -> tuple[str, int]:
    """Return the first message of a task: its context, goal, and the results of dependencies.

    Providers cache the start of a request, so the context, which siblings share, comes first. The
    number is its length.
    """
    text = f"{HANDED_OFF}\n\n{request.goal}" if request.is_handoff else request.goal
    shared = 0
    if request.context:
        context = CONTEXT.format(context=request.context)
        text, shared = context + text, len(context)
    for name, output in dependencies:
        text += "\n\n" * bool(text) + f"Result of {name}, which this needs:\n{output}"
    return text, shared


def steering_text(text: str, by: str) -> str:
    """Return a steering message as the task reads it."""
    return f"Message from {by}, while you work:\n{text}"


class TaskNotice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A detached task ended: mail for its session."""

    request: TaskRequest
    outcome: Outcome
    path: str
    asked_at: float
    settled_at: float
    total: Usage

    def text(self, share: int = MAX_RESULT_CHARACTERS) -> str:
        """Return the message that wakes the session; `share` limits the characters of output."""
        request, outcome = self.request, self.outcome
        asked = dt.datetime.fromtimestamp(self.asked_at, dt.UTC)
        label = f", {request.label!r}" if request.label else ""
        lines = [
            "A task that you delegated in the background has ended:"
            f" {self.path} ({request.id}{label}).",
            f"Asked: {asked:%Y-%m-%d %H:%M:%S} UTC, in turn {request.origin.turn}.",
            f"Goal: {request.goal}",
            f"Outcome: {outcome.ending} after {self.settled_at - self.asked_at:.1f} s;"
            f" {self.total.tokens_text} tokens, {usd(self.total)}.",
        ]
        if outcome.error:
            lines.append(f"Error: {outcome.error}")
        if outcome.note:
            lines.append(f"Note: {outcome.note}")
        if outcome.recorded_evidence and (evidence := outcome.evidence) is not None:
            lines.append(f"Evidence: {'; '.join(evidence.lines())}")
        if outcome.output:
            lines.append(f"Output:\n{excerpt(outcome.output, share, request.id)}")
        return "\n".join(lines)


def share_per_result(results: int, characters: int = MAX_RESULT_CHARACTERS) -> int:
    """Return the share of each result in an answer, in characters."""
    least = MIN_SHARE if characters >= MAX_RESULT_CHARACTERS else MIN_SHARE_IN_WINDOW
    share = characters // (results or 1)
    return max(least, share)


def excerpt(text: str, share: int, task: TaskId, *, offset: int = 0) -> str:
    """Return the part of an output that fits, and how to read the rest."""
    if not offset and len(text) <= share:
        return text
    page = text[offset : offset + share]
    left = len(text) - offset - len(page)
    if left <= 0:
        return page
    return (
        f"{page}\n[{left} of {len(text)} characters are left out here: task(action="
        f'"result", ids=["{task}"], offset={offset + len(page)}) reads on.]'
    )


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{'s' * (number != 1)}"


def usd(usage: Usage) -> str:
    """Return the cost in dollars: a lower bound is marked, and "unknown" is not "free"."""
    if usage.unpriced and not usage.micro_usd:
        return "price unknown"
    if usage.is_lower_bound:
        return f"≥ {dollars(usage.micro_usd) if usage.micro_usd >= SHOWN_COST else '$0'}"
    return dollars(usage.micro_usd)


def dollars(cost: int) -> str:
    """Return micro-dollars in dollars: what costs nothing has no decimals."""
    if cost and cost < SHOWN_COST:
        return "<$0.0001"
    if cost >= MOST_SHOWN_COST:
        return f">${MOST_SHOWN_COST // 1_000_000:,}"
    return f"${cost / 1_000_000:.4f}" if cost else "$0"
