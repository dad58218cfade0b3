"""A pipeline as a team file writes it: the key `pipelines`, with a script over a team."""

from collections.abc import Mapping
from typing import Final

from orchestrator.agents import Agent, DefinitionError
from orchestrator.agents.nearest_name import did_you_mean
from orchestrator.agents.script import script_pipeline
from orchestrator.agents.turn_plan import SCRIPT
from orchestrator.products.agent_files.located import Located

KEYS: Final = ("agent", "instructions", "script")
EXAMPLE: Final = 'review: {script: await agent("reviewer", goal)}'


def read_pipelines(
    pipelines: Located, agents: Mapping[str, Agent[str]], lead: str | None
) -> dict[str, Agent[str]]:
    """Return the pipelines of a team file; a script without an agent calls the team of the lead."""
    found: dict[str, Agent[str]] = {}
    for name, pipeline in pipelines.as_mapping("pipelines", EXAMPLE).items():
        if name in agents or name == SCRIPT:
            pipeline.refuse(f"there is an agent called {name!r}: give the pipeline another name")
        found[name] = _read_pipeline(name, pipeline, agents, lead)
    return found


def _read_pipeline(
    name: str, pipeline: Located, agents: Mapping[str, Agent[str]], lead: str | None
) -> Agent[str]:
    fields = pipeline.as_mapping(f"pipeline {name!r}", EXAMPLE)
    for key, value in fields.items():
        if key not in KEYS:
            value.refuse(f"a pipeline has no key {key!r}; {did_you_mean(key, KEYS)}")
    if "script" not in fields:
        pipeline.refuse(f"pipeline {name!r} has no 'script': write {EXAMPLE!r}")
    agent = fields["agent"].as_text("agent") if "agent" in fields else lead
    if agent is None:
        pipeline.refuse(f"say whose agents pipeline {name!r} calls, with the key 'agent'")
    if agent not in agents:
        where = fields.get("agent", pipeline)
        where.refuse(f"there is no agent {agent!r}; {did_you_mean(agent, agents)}")
    about = fields["instructions"].as_text("instructions") if "instructions" in fields else ""
    code = fields["script"].as_text("script")
    try:
        return script_pipeline(name, code, agents[agent], about)
    except DefinitionError as exc:
        raise pipeline.error(str(exc)) from exc
