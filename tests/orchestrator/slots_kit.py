"""Agents and models for tests of slots and of the queue for them."""

from collections.abc import Sequence
from typing import Any

import trio

from agents import (
    Agent,
    AssistantMessage,
    ModelRequest,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    Usage,
)
from delegation import Rules, Tree
from orchestrator import Run, open_orchestrator
from tests.kit import hand_on

LIST = ToolCall("task", {"action": "list"})


class Gauge:
    """A model that knows how many of its calls are under way, and for which goals."""

    name = "gauge"

    def __init__(self, seconds: float = 1, *, script: Any = "done") -> None:
        self._script = ScriptedModel.always(script)
        self._seconds = seconds
        self.inside = 0
        self.peak = 0
        self.goals: list[str] = []
        """What it was asked for first, in the order in which it was asked."""

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        if len(request.transcript) == 1:
            self.goals.append(request.transcript[0].text)
        self.inside += 1
        self.peak = max(self.peak, self.inside)
        try:
            await trio.sleep(self._seconds)
            return await self._script.answer(request)
        finally:
            self.inside -= 1


class Gated:
    """A model that says nothing before its gate is open."""

    name = "gated"

    def __init__(self) -> None:
        self.gate = trio.Event()
        self.asked = trio.Event()
        self.inside = 0
        self.peak = 0
        self.answered: list[str] = []

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.asked.set()
        self.inside += 1
        self.peak = max(self.peak, self.inside)
        try:
            await self.gate.wait()
            await trio.lowlevel.checkpoint()
            self.answered.append(request.transcript[0].text)
            return AssistantMessage("done", usage=Usage(calls=1))
        finally:
            self.inside -= 1


def goals(count: int, start: int = 1) -> list[str]:
    return [f"part {number}" for number in range(start, start + count)]


def gauged(gauge: Gauge | Gated, name: str = "worker") -> Agent:
    return Agent(name, model=gauge)


def editor(*steps: Any, delegates: Sequence[Agent[Any]]) -> Agent:
    return Agent("editor", model=ScriptedModel(steps), delegates=delegates)


async def run(agent: Agent[Any], **rules: Any) -> Run[Any]:
    async with open_orchestrator(":memory:", rules=Rules(**rules)) as orchestrator:
        return await orchestrator.run(agent, "go")


def last_text(transcript: Transcript) -> str:
    return transcript[-1].text


def paths(tree: Tree) -> dict[str, str]:
    return {tree[task]["path"]: task for task in tree.graph}


def statuses(tree: Tree) -> dict[str, str]:
    return {tree[task]["path"]: tree[task]["status"] for task in tree.graph}


def going_on(*calls: Any, then: str = "news") -> ScriptedModel:
    """Return a model that makes its calls once, and then says something whatever it hears.

    It is a function of the transcript, so that it goes on wherever a crash left it.
    """

    def say(transcript: Transcript) -> Any:
        answered = sum(isinstance(message, ToolMessage) for message in transcript)
        return calls[answered] if answered < len(calls) else then

    return ScriptedModel.always(say)


def bush(gauge: Gauge) -> Agent:
    return Agent("bush", model=gauge, copies=True)


def growing(fan: int, depth: int) -> Any:
    """Return the script of an agent that splits its goal until it is deep enough."""

    def say(transcript: Transcript) -> Any:
        level = transcript[0].text.count("/")
        if level == depth or len(transcript) > 1:
            return "up"
        return hand_on(*(f"{transcript[0].text}/{n}" for n in range(fan)))

    return say
