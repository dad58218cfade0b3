"""The diagram of an agent: boxes for agents, frames for combinators, and their order.

An agent that occurs again is a reference to its first box, so a team that delegates in circles has
an end.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

import attrs

from orchestrator.agents.agent import Agent
from orchestrator.agents.approval import ApprovalRule, Subject, Verdict
from orchestrator.agents.budget import Budget
from orchestrator.agents.limits import Limits
from orchestrator.agents.output.typed import type_name
from orchestrator.agents.pipelines.pipeline import Pipeline, input_of

MOST_TOOLS: Final = 3
MOST_DELEGATES: Final = 12
"""More delegates are folded into one box."""
_PATH: Final = re.compile(r"(?:\w+\.)+")
USUAL_CALLS: Final = Limits().calls


@attrs.frozen(kw_only=True)
class Box:
    """An agent, or a program over agents."""

    agent: str
    """Its name, or the text of a box that stands for several."""
    model: str = ""
    tools: str = ""
    limits: tuple[str, ...] = ()
    label: str = ""
    """A word from the combinator around it."""
    is_reference: bool = False
    """The agent has a box elsewhere, or the box stands for several agents."""
    asks: bool = False
    """A person is asked about some of its calls."""
    is_stacked: bool = False
    """It runs many times at once."""
    delegates: "tuple[Node, ...]" = ()
    delegates_note: str = ""


@attrs.frozen(kw_only=True)
class Row:
    """Parts that pass their output on, and the types on the arrows between them."""

    parts: "tuple[Node, ...]"
    types: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Frame:
    """A combinator around its parts."""

    title: str
    note: str
    parts: "tuple[Node, ...]"
    flow: Literal["row", "column", "loop"]
    types: tuple[str, ...] = ()
    """The types on the arrows of a row or a loop."""


Node: TypeAlias = Box | Row | Frame


@attrs.frozen(kw_only=True)
class Diagram:
    """The whole picture of an agent."""

    name: str
    program: str
    """The pipeline as an expression; empty for a single agent."""
    limits: str
    takes: str
    gives: str
    body: Node


def diagram_of(agent: Agent[Any, Any]) -> Diagram:
    """Return the diagram of an agent, with all agents below it."""
    reader = _Reader()
    is_made_of_parts = _shape_of(agent) is not None
    return Diagram(
        name=agent.name,
        program=_expression(agent) if is_made_of_parts else "",
        # A single agent has them in its box.
        limits=", ".join(_limits_of(agent)) if is_made_of_parts else "",
        takes=_type(input_of(agent)),
        gives=_type(agent.output),
        body=reader.node(agent, ()),
    )


class _Reader:
    """Makes the nodes of a diagram; each agent is drawn once."""

    def __init__(self) -> None:
        self._drawn: set[int] = set()

    def node(
        self,
        agent: Agent[Any, Any],
        rules: tuple[tuple[ApprovalRule, ...], ...],
        *,
        label: str = "",
        is_stacked: bool = False,
        states_output: bool = False,
    ) -> Node:
        rules = (*rules, agent.approve)
        shape = _shape_of(agent)
        if isinstance(agent, Pipeline) and shape is not None:
            parts = tuple(
                self.node(
                    part,
                    rules,
                    label=shape.labels[at] if at < len(shape.labels) else "",
                    is_stacked=at < shape.stacked,
                )
                for at, part in enumerate(agent.parts)
            )
            types = tuple(_type(part.output) for part in agent.parts)
            if shape.kind == "sequence":
                return Row(parts=parts, types=types[:-1])
            title = shape.kind if agent.name == shape.kind else f"{agent.name}: {shape.kind}"
            note = " · ".join(filter(None, (label, shape.note, *_limits_of(agent))))
            return Frame(title=title, note=note, parts=parts, flow=shape.flow, types=types)
        if id(agent) in self._drawn:
            return Box(agent=agent.name, label=label, is_reference=True, is_stacked=is_stacked)
        self._drawn.add(id(agent))
        limits = _limits_of(agent)
        if not limits or (states_output and agent.output is not str):
            limits = (*limits, f"gives {_type(agent.output)}")
        tools, asks = _tools_of(agent, rules)
        return Box(
            agent=agent.name,
            model=_model_of(agent),
            tools=tools,
            limits=limits,
            label=label,
            asks=asks,
            is_stacked=is_stacked,
            delegates=self._delegates(agent, rules),
            delegates_note=_delegates_note(agent),
        )

    def _delegates(
        self, agent: Agent[Any, Any], rules: tuple[tuple[ApprovalRule, ...], ...]
    ) -> tuple[Node, ...]:
        team = list({id(it): it for it in agent.team}.values())
        shown = team if len(team) <= MOST_DELEGATES else team[: MOST_DELEGATES - 1]
        nodes = [self.node(it, rules, states_output=True) for it in shown]
        if hidden := len(team) - len(shown):
            nodes.append(Box(agent=f"+ {hidden} more", is_reference=True))
        return tuple(nodes)


def boxes_of(node: Node) -> Iterator[Box]:
    """Yield the boxes of a node, each before its delegates."""
    if isinstance(node, Box):
        yield node
        for delegate in node.delegates:
            yield from boxes_of(delegate)
    else:
        for part in node.parts:
            yield from boxes_of(part)


def _shape_of(agent: Agent[Any, Any]) -> Any:
    return agent.shape if isinstance(agent, Pipeline) else None


def _type(output: Any) -> str:
    # Types of other modules are written with their paths.
    return "text" if output is Any else _PATH.sub("", type_name(output))


def _model_of(agent: Agent[Any, Any]) -> str:
    if isinstance(agent, Pipeline):
        return "program"
    return agent.model if isinstance(agent.model, str) else str(agent.model.name)


def _tools_of(
    agent: Agent[Any, Any], rules: tuple[tuple[ApprovalRule, ...], ...]
) -> tuple[str, bool]:
    """Return the tools of an agent in a line, and whether a person is asked about one of them."""
    names = [
        *(tool.name for tool in agent.tools if tool.task is None),
        *(f"{server.name} (MCP)" for server in agent.servers),
    ]
    asked = [name for name in names if _is_asked(name, rules)]
    shown = [f"{name} !" if name in asked else name for name in names[:MOST_TOOLS]]
    if hidden := len(names) - len(shown):
        shown.append(f"+{hidden}")
    if isinstance(agent, Pipeline):
        return "", bool(asked)
    return " · ".join(shown) or "no tools", bool(asked)


def _is_asked(tool: str, rules: tuple[tuple[ApprovalRule, ...], ...]) -> bool:
    for at, of_agent in enumerate(rules):
        is_own = at == len(rules) - 1
        for rule in of_agent:
            if not (is_own or rule.for_children) or not rule.covers_tool(Subject(tool=tool)):
                continue
            if rule.verdict is Verdict.CONFIRM:
                return True
            if rule.command is None and rule.path is None:
                break
    return False


def _limits_of(agent: Agent[Any, Any]) -> tuple[str, ...]:
    amounts: list[str] = []
    limits, budget = agent.limits, agent.budget or Budget()
    usd = _least(limits.usd, budget.usd)
    seconds = _least(limits.seconds, budget.seconds)
    tokens = _least(limits.tokens, budget.tokens)
    if usd is not None:
        amounts.append(f"${usd:,.2f}" if usd >= 0.01 or not usd else f"${usd:g}")
    if seconds is not None:
        amounts.append(f"{seconds / 60:g} min" if seconds >= 120 else f"{seconds:g} s")
    if tokens is not None:
        amounts.append(f"{tokens:,} tokens")
    if not isinstance(agent, Pipeline) and limits.calls != USUAL_CALLS:
        amounts.append(f"{limits.calls:,} calls")
    of_tree = (budget.calls, "calls in all"), (budget.tasks, "tasks"), (budget.depth, "levels")
    amounts += [f"{amount:,} {word}" for amount, word in of_tree if amount is not None]
    pairs = [amounts[at : at + 2] for at in range(0, len(amounts), 2)]
    return tuple(f"≤ {' · '.join(pair)}" for pair in pairs)


def _least(*amounts: float | None) -> float | None:
    return min((it for it in amounts if it is not None), default=None)


def _delegates_note(agent: Agent[Any, Any]) -> str:
    if isinstance(agent, Pipeline):
        return "delegates"
    more = [word for word, is_on in (("copies", agent.copies), ("forks", agent.forks)) if is_on]
    return " ".join(["may delegate", *(f"and run {' and '.join(more)}" for _ in more[:1])])


def _expression(agent: Agent[Any, Any]) -> str:
    """Return a pipeline as it is written in Python, without the arguments that are no agents."""
    shape = _shape_of(agent)
    if shape is None:
        return agent.name
    assert isinstance(agent, Pipeline), "only a pipeline has a shape"
    parts: Sequence[str] = [_expression(part) for part in agent.parts]
    if shape.kind == "sequence":
        return " >> ".join(parts)
    return f"{shape.kind}({', '.join(parts)})"
