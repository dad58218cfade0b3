"""The workloads with AutoGen: a tool of the parent runs a new child agent."""

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResultMessage,
    RequestUsage,
)
from autogen_core.tools import FunctionTool
from harness import answers, main

INFO = {
    "vision": False,
    "function_calling": True,
    "json_output": False,
    "family": "unknown",
    "structured_output": False,
    "multiple_system_messages": False,
}
USED = RequestUsage(prompt_tokens=1, completion_tokens=1)


class Scripted(ChatCompletionClient):
    component_type = "model"
    model_info = INFO
    capabilities = INFO

    def __init__(self, children=0):
        self.children = children

    async def create(self, messages, **kwargs):
        await answers.wait()
        if self.children and not isinstance(messages[-1], FunctionExecutionResultMessage):
            content = [
                FunctionCall(id=f"c{it}", name="delegate", arguments='{"goal":"say ok"}')
                for it in range(self.children)
            ]
            return CreateResult(
                finish_reason="function_calls", content=content, usage=USED, cached=False
            )
        return CreateResult(finish_reason="stop", content="ok", usage=USED, cached=False)

    # The workloads do not stream.
    create_stream = create

    async def close(self):
        pass

    def actual_usage(self):
        return USED

    total_usage = actual_usage

    def count_tokens(self, *args, **kwargs):
        return 1

    remaining_tokens = count_tokens


def leaf():
    return AssistantAgent("child", Scripted())


def parent_of(make, children):
    async def delegate(goal: str) -> str:
        answer = (await make().run(task=goal)).messages[-1].content
        assert answer == "ok"
        return answer

    tool = FunctionTool(delegate, "Delegate a task.")
    return lambda: AssistantAgent(
        "parent", Scripted(children), tools=[tool], reflect_on_tool_use=True
    )


def fan_out(children):
    return runner(parent_of(leaf, children))


def chain(depth):
    make = leaf
    for _ in range(depth):
        make = parent_of(make, 1)
    return runner(make)


def runner(make):
    async def run():
        assert (await make().run(task="go")).messages[-1].content == "ok"

    return run


main("autogen-agentchat", fan_out, chain)
