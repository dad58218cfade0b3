"""The workloads with Microsoft's Agent Framework: a tool of the parent runs the child."""

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
)
from harness import answers, main


class Scripted(FunctionInvocationLayer, BaseChatClient):
    def __init__(self, children=0):
        super().__init__()
        self.children = children

    async def _inner_get_response(self, *, messages, stream, options, **kwargs):
        await answers.wait()
        if self.children and messages[-1].role != "tool":
            calls = [
                Content.from_function_call(
                    call_id=f"c{it}", name="delegate", arguments='{"goal":"say ok"}'
                )
                for it in range(self.children)
            ]
            return ChatResponse(messages=[Message(role="assistant", contents=calls)])
        return ChatResponse(messages=[Message(role="assistant", contents=["ok"])])


def parent_of(child, children):
    async def delegate(goal: str) -> str:
        """Delegate a task."""
        answer = (await child.run(goal)).text
        assert answer == "ok"
        return answer

    return Agent(Scripted(children), name="parent", tools=[delegate])


def fan_out(children):
    return runner(parent_of(Agent(Scripted(), name="child"), children))


def chain(depth):
    agent = Agent(Scripted(), name="last")
    for _ in range(depth):
        agent = parent_of(agent, 1)
    return runner(agent)


def runner(agent):
    async def run():
        assert (await agent.run("go")).text == "ok"

    return run


main("agent-framework-core", fan_out, chain)
