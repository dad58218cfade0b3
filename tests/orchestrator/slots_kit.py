"""Agents and models for tests of slots and of the queue for them."""

from typing import Any

from orchestrator import Run
from orchestrator.agents import Agent, Model, ScriptedModel, ToolCall, ToolMessage, Transcript
from orchestrator.delegation import Rules, Tree
from orchestrator.testing import CountingModel
from tests.kit import hand_on, run

LIST = ToolCall("task", {"action": "list"})


def counting(seconds: float = 1, script: Any = "done") -> CountingModel:
    """Return a model that takes so many seconds, and counts its calls."""
    return CountingModel(ScriptedModel.always(script, seconds))


def goals(count: int, start: int = 1) -> list[str]:
    return [f"part {number}" for number in range(start, start + count)]


async def run_under(agent: Agent[Any], **rules: Any) -> Run[Any]:
    return await run(agent, rules=Rules(**rules))


def paths(tree: Tree) -> dict[str, str]:
    return {tree[task].path: task for task in tree}


def going_on(*calls: Any, then: str = "news") -> ScriptedModel:
    """Return a model that makes its calls once, and then answers alike, whatever it reads.

    It is a function of the transcript, so that it goes on wherever a crash left it.
    """

    def say(transcript: Transcript) -> Any:
        answered = sum(isinstance(message, ToolMessage) for message in transcript)
        return calls[answered] if answered < len(calls) else then

    return ScriptedModel.always(say)


def bush(model: Model) -> Agent:
    return Agent("bush", model=model, copies=True)


def growing(fan: int, depth: int) -> Any:
    """Return the script of an agent that splits its goal until it is deep enough."""

    def say(transcript: Transcript) -> Any:
        level = transcript[0].text.count("/")
        if level == depth or len(transcript) > 1:
            return "up"
        return hand_on(*(f"{transcript[0].text}/{n}" for n in range(fan)))

    return say
