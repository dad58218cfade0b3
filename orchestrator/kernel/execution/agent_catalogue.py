"""The agents of a file, which a worker finds by the names from a root agent down.

Two processes have the same agent if its fingerprint is the same: name, instructions, tools, the
type of its answer, and its place. Functions are not compared, only the schemas that models see.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from orchestrator.agents import Agent, DefinitionError
from orchestrator.kernel.execution.agent_registry import ROOT, agent_below, reachable_agents


def fingerprint(agent: Agent[Any]) -> str:
    """Return a digest that is equal for the same agent in every process."""
    instructions = agent.instructions
    described = [
        agent.name,
        instructions
        if isinstance(instructions, str)
        else getattr(instructions, "__qualname__", type(instructions).__qualname__),
        agent.language,
        [[tool.name, tool.description, tool.parameters, tool.place] for tool in agent.tools],
        agent.answer_schema,
    ]
    # Agents without a place keep the fingerprint that they had before agents had places.
    if agent.place:
        described.append(agent.place)
    encoded = msgspec.json.encode(described, order="deterministic")
    return hashlib.sha256(encoded).hexdigest()[:12]


class AgentCatalogue:
    """Finds agents by the path that a writer names."""

    def __init__(self, agents: Mapping[str, Agent[Any]]) -> None:
        self._roots = dict(agents)
        # A program may delegate to agents that are no global of the file.
        for agent in agents.values():
            for reachable in reachable_agents(agent):
                self._roots.setdefault(reachable.name, reachable)
        self._lineages: dict[tuple[str, ...], tuple[Agent[Any], ...]] = {}

    def lineage(self, path: Sequence[str]) -> Sequence[Agent[Any]]:
        """Return the agents from the root to the named agent, or raise `DefinitionError`."""
        key = tuple(path)
        if key not in self._lineages:
            self._lineages[key] = self._found(key)
        return self._lineages[key]

    def _found(self, path: tuple[str, ...]) -> tuple[Agent[Any], ...]:
        found: list[Agent[Any]] = []
        for step in path:
            if found and not step.startswith(ROOT):
                found.append(agent_below(found[-1], step))
            elif (name := step.removeprefix(ROOT)) in self._roots:
                found.append(self._roots[name])
            else:
                raise DefinitionError(f"there is no agent {name!r}")
        if not found:
            raise DefinitionError("no agent is named")
        return tuple(found)

    @property
    def version(self) -> str:
        """The fingerprint of all agents together."""
        return _digest(sorted({fingerprint(agent) for agent in self._every_agent()}))

    def places(self) -> set[str]:
        """Return the places that its agents and their tools name."""
        agents = self._every_agent()
        of_tools = {tool.place for agent in agents for tool in agent.tools}
        return (of_tools | {agent.place for agent in agents}) - {""}

    def _every_agent(self) -> Iterable[Agent[Any]]:
        return {id(agent): agent for agent in self._roots.values()}.values()


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
