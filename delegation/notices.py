"""What a task and a session are told, in words that need no history."""

import datetime as dt
from collections.abc import Iterable
from typing import Final

import attrs

from agents import Usage
from delegation.task import Outcome, TaskId, TaskRequest

MAX_RESULT_CHARACTERS: Final = 50_000
"""How many characters of results one answer or one turn brings, where nobody knows how many can
be read: some 12,000 tokens."""
MIN_SHARE: Final = 2_000
"""How many of them each result may have then, however many there are."""
MIN_SHARE_IN_WINDOW: Final = 200
"""The same where it is known how many can be read."""


def first_message(
    request: TaskRequest, dependencies: "Iterable[tuple[str, str]]" = ()
) -> str:
    """Return the first thing a task hears: its goal, and what it must know for it.

    Args:
        request: what is asked for.
        needs: who had to succeed before it, and what each of them said.
    """
    text = request.goal
    if request.context:
        text += f"\n\nContext:\n{request.context}"
    for name, output in dependencies:
        text += f"\n\nResult of {name}, which this needs:\n{output}"
    return text


def steering_text(text: str, by: str) -> str:
    """Return what a task hears in the midst of its work."""
    return f"Message from {by}, while you work:\n{text}"


@attrs.frozen(kw_only=True)
class TaskNotice:
    """How a detached task ended: mail for the session that asked for it."""

    request: TaskRequest
    outcome: Outcome
    path: str
    asked_at: float
    settled_at: float
    total: Usage

    def text(self, share: int = MAX_RESULT_CHARACTERS) -> str:
        """Return what wakes the session.

        Args:
            share: how many characters of the output may be in it.
        """
        request, outcome = self.request, self.outcome
        asked = dt.datetime.fromtimestamp(self.asked_at, dt.UTC)
        label = f", {request.label!r}" if request.label else ""
        lines = [
            "A task that you handed on in the background has ended:"
            f" {self.path} ({request.id}{label}).",
            f"Asked: {asked:%Y-%m-%d %H:%M:%S} UTC, in turn {request.origin.turn}.",
            f"Goal: {request.goal}",
            f"Outcome: {outcome.ending} after {self.settled_at - self.asked_at:.1f} s;"
            f" {self.total.tokens} tokens, {usd(self.total)}.",
        ]
        if outcome.error:
            lines.append(f"Error: {outcome.error}")
        if outcome.note:
            lines.append(f"Note: {outcome.note}")
        if outcome.output:
            lines.append(f"Output:\n{excerpt(outcome.output, share, request.id)}")
        return "\n".join(lines)


def share_per_result(results: int, characters: int = MAX_RESULT_CHARACTERS) -> int:
    """Return how many characters each of so many results may have."""
    least = MIN_SHARE if characters >= MAX_RESULT_CHARACTERS else MIN_SHARE_IN_WINDOW
    return max(least, characters // max(1, results))


def excerpt(text: str, share: int, task: TaskId, *, offset: int = 0) -> str:
    """Return what fits of a task's output, and how the rest is read. Nothing is lost."""
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
    """Return a number of things for people."""
    return f"{number} {noun}{'s' * (number != 1)}"


def usd(usage: Usage) -> str:
    """Return money for people: a lower bound is marked, and "unknown" is not "free"."""
    if usage.unpriced and not usage.cost:
        return "price unknown"
    return f"{'≥ ' if usage.unpriced else ''}{dollars(usage.cost)}"


def dollars(cost: int) -> str:
    """Return micro-dollars for people."""
    return f"${cost / 1_000_000:.4f}"
