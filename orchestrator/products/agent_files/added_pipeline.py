"""Adds a pipeline to the text of a team file: the rest of the file stays unchanged."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orchestrator.agents import Agent, DefinitionError
from orchestrator.agents.turn_plan import SCRIPT
from orchestrator.products.agent_files.source_text import read_text
from orchestrator.products.agent_files.team_file import read_team
from orchestrator.products.agent_files.yaml_text import read_yaml

PIPELINES: Final = re.compile(r"^pipelines:[ \t]*(?:#.*)?\n", re.MULTILINE)


def with_pipeline(file: Path, name: str, code: str, *, agent: str = "") -> str:
    """Return the text of a team file with one more pipeline, or raise `DefinitionError`.

    The pipeline has the key `agent` if the file itself defines that agent.
    """
    # A name that an agent cannot have is refused.
    Agent(name, model="none")
    text = read_text(file)
    team = read_team(file)
    known: Mapping[str, object] = (
        {} if team.pipelines is None else team.pipelines.as_mapping("pipelines", "")
    )
    if name == SCRIPT or name in known or any(it.name.value == name for it in team.entries):
        raise DefinitionError(f"{file} has an agent or a pipeline {name!r} already")
    lines = [f"  {name}:"]
    if any(it.name.value == agent for it in team.entries):
        lines.append(f"    agent: {agent}")
    # A number says where the text begins, if its first line is indented.
    lines.append(f"    script: |{'2' * code.startswith(' ')}")
    lines += [f"      {line}".rstrip() for line in code.splitlines()]
    added = "\n".join(lines) + "\n"
    text = text if text.endswith("\n") else f"{text}\n"
    if (heading := PIPELINES.search(text)) is not None:
        changed = f"{text[: heading.end()]}{added}{text[heading.end() :]}"
    else:
        changed = f"{text}\npipelines:\n{added}"
    _require_script(changed, file, name, code)
    return changed


def _require_script(text: str, file: Path, name: str, code: str) -> None:
    """Refuse a text whose pipeline has another script."""
    pipelines = read_yaml(text, file).as_mapping("a team", "").get("pipelines")
    found = None if pipelines is None else pipelines.as_plain().get(name)
    if found is None or _meaning(found["script"]) != _meaning(code):
        raise DefinitionError(
            f"{file}: the script cannot be added to this file: write it there by hand"
        )


def _meaning(code: str) -> list[str]:
    return [line.rstrip() for line in code.strip().splitlines()]
