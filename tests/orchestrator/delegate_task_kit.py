"""Calls of `delegate_task` and what a test reads of their answers."""

import json
from typing import Any

import trio

from orchestrator.agents import Agent, ToolCall, tool
from tests.kit import editor, last_text, run


def handed(goal: str = "", **arguments: Any) -> ToolCall:
    return ToolCall("delegate_task", {"goal": goal, **arguments} if goal else arguments)


async def answer_to(call: ToolCall, *delegates: Agent[Any], **options: Any) -> Any:
    """Return what a model reads when it hands work on within a run."""
    finished = await run(editor(call, last_text, delegates=delegates, **options))
    return json.loads(finished.output)


@tool
async def own() -> str:
    """Be the parent's tool."""
    await trio.lowlevel.checkpoint()
    return "own"


def long(characters: int) -> str:
    """Return a text in which every place is different, with letters of several bytes."""
    words = (f"{number:x}·ä😀" for number in range(characters // 4 + 1))
    return "".join(words)[:characters]


@tool
async def wait() -> str:
    """Wait for ever."""
    await trio.sleep_forever()
    return "never"
