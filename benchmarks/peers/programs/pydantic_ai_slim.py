"""The workloads with Pydantic AI: a tool of the parent runs the child."""

from harness import answers, main
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel


def scripted(children=0):
    async def answer(messages, info):
        await answers.wait()
        if children and not isinstance(messages[-1].parts[-1], ToolReturnPart):
            parts = [ToolCallPart("delegate", {"goal": "say ok"}) for _ in range(children)]
            return ModelResponse(parts=parts)
        return ModelResponse(parts=[TextPart("ok")])

    return FunctionModel(answer)


def parent_of(child, children):
    agent = Agent(scripted(children))

    @agent.tool_plain
    async def delegate(goal: str) -> str:
        """Delegate a task."""
        answer = (await child.run(goal)).output
        assert answer == "ok"
        return answer

    return agent


def fan_out(children):
    return runner(parent_of(Agent(scripted()), children))


def chain(depth):
    agent = Agent(scripted())
    for _ in range(depth):
        agent = parent_of(agent, 1)
    return runner(agent)


def runner(agent):
    async def run():
        assert (await agent.run("go")).output == "ok"

    return run


main("pydantic-ai-slim", fan_out, chain)
