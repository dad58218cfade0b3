"""The workloads with Agno: a tool of the parent runs the child, without telemetry."""

from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse
from harness import answers, main


class Scripted(Model):
    def __init__(self, children=0):
        super().__init__(id="scripted")
        self.children = children

    async def ainvoke(self, messages, assistant_message, **kwargs):
        await answers.wait()
        if self.children and messages[-1].role != "tool":
            calls = [
                {
                    "id": f"c{it}",
                    "type": "function",
                    "function": {"name": "delegate", "arguments": '{"goal":"say ok"}'},
                }
                for it in range(self.children)
            ]
            return ModelResponse(role="assistant", tool_calls=calls)
        return ModelResponse(role="assistant", content="ok")

    # The workloads call neither without asyncio nor in streams, and no provider answers them.
    invoke = invoke_stream = ainvoke_stream = ainvoke
    _parse_provider_response = _parse_provider_response_delta = ainvoke


def agent_with(model, tools=()):
    return Agent(model=model, tools=list(tools) or None, telemetry=False)


def parent_of(child, children):
    async def delegate(goal: str) -> str:
        """Delegate a task."""
        answer = (await child().arun(goal)).content
        assert answer == "ok"
        return answer

    return lambda: agent_with(Scripted(children), [delegate])


def fan_out(children):
    return runner(parent_of(lambda: agent_with(Scripted()), children))


def chain(depth):
    def make():
        return agent_with(Scripted())

    for _ in range(depth):
        make = parent_of(make, 1)
    return runner(make)


def runner(make):
    async def run():
        assert (await make().arun("go")).content == "ok"

    return run


main("agno", fan_out, chain)
