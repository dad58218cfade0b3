"""The workloads with LangGraph: `Send` starts a compiled child graph for each task.

The nodes call the scripted model directly, which costs less than a chat model of LangChain.
"""

import operator
from typing import Annotated, TypedDict

from harness import answers, main
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send


class Task(TypedDict):
    goal: str
    results: Annotated[list[str], operator.add]


def leaf():
    async def answer(state):
        await answers.wait()
        return {"results": ["ok"]}

    graph = StateGraph(Task)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    return graph.compile()


def parent_of(child, children):
    async def plan(state):
        await answers.wait()
        return {}

    async def delegate(state):
        return {"results": (await child.ainvoke({"goal": state["goal"]}, LIMIT))["results"]}

    async def answer(state):
        await answers.wait()
        return {}

    graph = StateGraph(Task)
    graph.add_node("plan", plan)
    graph.add_node("delegate", delegate)
    graph.add_node("answer", answer)
    graph.add_edge(START, "plan")
    sends = [Send("delegate", {"goal": "say ok"}) for _ in range(children)]
    graph.add_conditional_edges("plan", lambda state: sends, ["delegate"])
    graph.add_edge("delegate", "answer")
    graph.add_edge("answer", END)
    return graph.compile()


LIMIT = {"recursion_limit": 10_000}


def fan_out(children):
    return runner(parent_of(leaf(), children), children)


def chain(depth):
    graph = leaf()
    for _ in range(depth):
        graph = parent_of(graph, 1)
    return runner(graph, 1)


def runner(graph, results):
    async def run():
        state = await graph.ainvoke({"goal": "go"}, LIMIT)
        assert len(state["results"]) == results

    return run


main("langgraph", fan_out, chain)
