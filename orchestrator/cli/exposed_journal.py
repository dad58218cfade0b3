"""A warning about a journal in the folder that agents work in."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from orchestrator.agents import Agent
from orchestrator.cli.options import journals_of
from orchestrator.ports.execution import reachable_agents
from orchestrator.ports.files import is_inside


def warn_of_exposed_journal(
    agents: Iterable[Agent[Any]], journal: str | None, workspace: Path | None = None
) -> None:
    """Warn about a journal that a command of an agent could reach by an ordinary path."""
    journals = journals_of(journal)
    folder = Path.cwd() if workspace is None else workspace
    path = Path(journals.address)
    if journals.folder is None or not is_inside(path, folder):
        return
    if any(tool.machine for it in agents for one in reachable_agents(it) for tool in one.tools):
        print(
            f"warning: the journal {path} is in the folder that agents work in. File tools leave it"
            " alone, and so do commands in a sandbox that is a wall; elsewhere, a command can"
            " change it. Name another folder with --journal",
            file=sys.stderr,
        )
