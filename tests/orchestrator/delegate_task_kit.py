"""Calls of `delegate_task` and what a test reads of their answers."""

import json
from collections.abc import Sequence
from typing import Any

import trio

from agents import (
    Agent,
    AssistantMessage,
    ModelRequest,
    ScriptedModel,
    ToolCall,
    Transcript,
    tool,
)
from orchestrator import (
    Run,
    open_orchestrator,
)


class Watched(ScriptedModel):
    """A scripted model that remembers what it was sent."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.requests: list[ModelRequest] = []
        self.sent: list[list[str]] = []

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.requests.append(request)
        # As it is now: the list goes on growing.
        self.sent.append([message.text for message in request.transcript])
        return await super().answer(request)

    @property
    def tools(self) -> list[str]:
        return [tool.name for tool in self.requests[0].tools]


def handed(goal: str = "", **arguments: Any) -> ToolCall:
    return ToolCall("delegate_task", {"goal": goal, **arguments} if goal else arguments)


def last_text(transcript: Transcript) -> str:
    return transcript[-1].text


def editor(*steps: Any, delegates: Sequence[Agent[Any]], **options: Any) -> Agent:
    return Agent("editor", model=ScriptedModel(steps), delegates=delegates, **options)


async def run(agent: Agent[Any], **options: Any) -> Run[Any]:
    async with open_orchestrator(":memory:", **options) as orchestrator:
        return await orchestrator.run(agent, "go")


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
