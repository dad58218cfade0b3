"""The workloads with delegation-orchestrator, in memory."""

from contextvars import ContextVar

import trio
from harness import answers, measure_all, report

from orchestrator import Agent, ToolCall, open_orchestrator
from orchestrator.agents import AssistantMessage, ToolMessage
from orchestrator.delegation import Rules

opened = ContextVar("opened")
RULES = Rules(children_per_call=1_000_000, depth=250, live_tasks=None, detached=None)


class Scripted:
    name = "scripted"

    def __init__(self, children=0):
        self.children = children

    async def answer(self, request):
        answers.count += 1
        await trio.lowlevel.checkpoint()
        if self.children and not isinstance(request.transcript[-1], ToolMessage):
            tasks = [{"goal": "say ok"} for _ in range(self.children)]
            return AssistantMessage("", (ToolCall("delegate_task", {"tasks": tasks}),))
        return AssistantMessage("ok")


def fan_out(children):
    child = Agent("child", model=Scripted())
    return runner(Agent("parent", model=Scripted(children), delegates=[child]))


def chain(depth):
    agent = Agent("last", model=Scripted())
    for level in range(depth):
        agent = Agent(f"level{level}", model=Scripted(1), delegates=[agent])
    return runner(agent)


def runner(agent):
    async def run():
        assert (await opened.get().run(agent, "go")).output == "ok"

    return run


async def measure():
    async with open_orchestrator(":memory:", rules=RULES) as orchestrator:
        opened.set(orchestrator)
        return await measure_all(fan_out, chain)


report("delegation-orchestrator", trio.run(measure))
