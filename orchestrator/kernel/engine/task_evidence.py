"""The evidence of a task that ends: the effects of its tools, and its unsuccessful children."""

from collections.abc import Mapping
from typing import Any

import msgspec

from orchestrator.agents import Agent, Pipeline
from orchestrator.agents.tools.evidence import UnsuccessfulChild, evidence_of
from orchestrator.delegation import Ledger, TaskRecord


def task_evidence(
    task: TaskRecord, agent: Agent[Any] | None, ledger: Ledger
) -> Mapping[str, Any] | msgspec.UnsetType:
    """Return the evidence of a task in the form that facts have; `agent` is None without tools."""
    if isinstance(agent, Pipeline):
        # A program does not claim: it decides by the endings of its children.
        return msgspec.UNSET
    unsuccessful: list[UnsuccessfulChild] = []
    for id_ in task.children.by_call.values():
        child = ledger.tasks.get(id_)
        if child is None:
            continue
        if child.outcome is None or not child.outcome.succeeded:
            ending = "" if child.outcome is None else child.outcome.ending.value
            unsuccessful.append(UnsuccessfulChild(child.path, ending))
    tools = () if agent is None else agent.tools
    found = evidence_of(
        task.transcript[task.first_step :],
        has_tools=agent is not None and bool(agent.tools or agent.servers or agent.memory),
        effects=[it.machine for it in tools if isinstance(it.machine, str)],
        children=unsuccessful,
    )
    return msgspec.UNSET if found is None else msgspec.to_builtins(found)
