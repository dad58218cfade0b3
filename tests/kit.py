"""Agents, runs and reads of transcripts that many tests share."""

import json
from collections.abc import Sequence
from typing import Any

from agents import Agent, Model, ScriptedModel, ToolMessage, Transcript
from delegation import Tree
from orchestrator import Run, open_orchestrator
from orchestrator.testing import facts, hand_on

__all__ = [
    "dispatched",
    "editor",
    "facts",
    "hand_on",
    "last_text",
    "run",
    "statuses",
    "tool_answers",
    "worker",
    "worker_on",
]


def worker(name: str = "worker", *, seconds: float = 0, says: str = "done") -> Agent:
    """Return an agent that answers every goal alike."""
    return worker_on(ScriptedModel.always(says, seconds), name)


def worker_on(model: Model, name: str = "worker") -> Agent:
    """Return an agent without tools on a model."""
    return Agent(name, model=model)


def editor(*steps: Any, delegates: Sequence[Agent[Any]], **options: Any) -> Agent:
    """Return an agent that follows a script and may delegate."""
    return Agent("editor", model=ScriptedModel(steps), delegates=delegates, **options)


async def run(agent: Agent[Any], goal: str = "go", **options: Any) -> Run[Any]:
    """Run an agent in an orchestrator of its own, which gets the options."""
    async with open_orchestrator(":memory:", **options) as orchestrator:
        return await orchestrator.run(agent, goal)


def last_text(transcript: Transcript) -> str:
    """Return the text of the last message: the step of a script that repeats what it read."""
    return transcript[-1].text


def tool_answers(transcript: Transcript) -> list[Any]:
    """Return the answers of tools, read as JSON; refusals are their plain texts."""
    return [
        message.text if message.failed else json.loads(message.text)
        for message in transcript
        if isinstance(message, ToolMessage)
    ]


def dispatched(transcript: Transcript) -> list[str]:
    """Return the ids of all detached tasks for which there is a receipt."""
    return [
        task["task_id"]
        for answer in tool_answers(transcript)
        if isinstance(answer, dict) and answer.get("status") == "dispatched"
        for task in answer["tasks"]
    ]


def statuses(tree: Tree) -> dict[str, str]:
    """Return the status of each task by its path."""
    return {tree[task]["path"]: tree[task]["status"] for task in tree.graph}
