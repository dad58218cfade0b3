"""What many tests need: calls that delegate, and questions to a journal."""

from collections.abc import Sequence
from typing import TypeVar

from agents import Agent, ScriptedModel, ToolCall
from delegation.events import Entry, Event

EventT = TypeVar("EventT", bound=Event)


def hand_on(*goals: str, agent: str = "", background: bool | None = None) -> ToolCall:
    """Return the call by which a model delegates goals to one agent."""
    arguments: dict[str, object] = {
        "tasks": [{"goal": goal, "agent": agent} for goal in goals]
    }
    if background is not None:
        arguments["background"] = background
    return ToolCall("delegate_task", arguments)


def worker(name: str = "worker", *, seconds: float = 0, says: str = "done") -> Agent:
    """Return an agent that answers every goal alike."""
    return Agent(name, model=ScriptedModel.always(says, seconds))


def facts(entries: Sequence[Entry], kind: type[EventT]) -> list[EventT]:
    return [entry.event for entry in entries if isinstance(entry.event, kind)]
