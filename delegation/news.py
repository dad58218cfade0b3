"""What a task and a session are told, in words that need no history."""

import datetime as dt

from agents import Usage
from delegation.task import Outcome, TaskRequest


def brief(request: TaskRequest) -> str:
    """Return the first thing a task hears: its goal, and what it must know for it."""
    if not request.context:
        return request.goal
    return f"{request.goal}\n\nContext:\n{request.context}"


def completion(
    request: TaskRequest,
    outcome: Outcome,
    *,
    path: str,
    asked_at: float,
    settled_at: float,
    total: Usage,
) -> str:
    """Return what wakes the session that asked for a detached task."""
    asked = dt.datetime.fromtimestamp(asked_at, dt.UTC)
    lines = [
        f"A task that you handed on in the background has ended: {path} ({request.id}).",
        f"Asked: {asked:%Y-%m-%d %H:%M:%S} UTC, in turn {request.origin.turn}.",
        f"Goal: {request.goal}",
        f"Outcome: {outcome.ending} after {settled_at - asked_at:.1f} s;"
        f" {total.tokens} tokens, {usd(total)}.",
    ]
    if outcome.error:
        lines.append(f"Error: {outcome.error}")
    if outcome.output:
        lines.append(f"Output:\n{outcome.output}")
    return "\n".join(lines)


def usd(usage: Usage) -> str:
    """Return money for people: a lower bound is marked, and "unknown" is not "free"."""
    if usage.unpriced and not usage.cost:
        return "price unknown"
    return f"{'≥ ' if usage.unpriced else ''}${usage.cost / 1_000_000:.4f}"
