"""The texts of files that the instructions of a turn end with: `AGENTS.md`, and a memory.

Imported late: few agents have them.
"""

from collections.abc import Sequence
from typing import Any, Final

import trio

from orchestrator.agents import Agent, ToolError
from orchestrator.agents.skills import AGENTS_FILE
from orchestrator.agents.tools.context import redact_secrets
from orchestrator.agents.tools.files.dir_entry import MissingFileError
from orchestrator.agents.tools.files.workspace import current_workspace
from orchestrator.kernel.execution.executor import TaskHost

MOST_BYTES: Final = 32_768
"""How much of `AGENTS.md` a model reads."""


async def turn_notes(agent: Agent[Any], host: TaskHost) -> Sequence[str]:
    """Return the texts that an agent asks for."""
    notes: list[str] = []
    if AGENTS_FILE in agent.skills:
        notes.append(await trio.to_thread.run_sync(_agents_file_note))
    if agent.memory is not None:
        # The last part: it changes most.
        notes.append(await host.memory_note())
    await trio.lowlevel.checkpoint()
    return notes


def _agents_file_note() -> str:
    """Return the file of the workspace with its origin; empty if the workspace has none."""
    try:
        text = _agents_file()
    except MissingFileError:
        return ""
    except ToolError as exc:
        return f"{AGENTS_FILE} of your workspace cannot be read: {exc}"
    quoted = "\n".join(f"> {line}" for line in redact_secrets(text).splitlines())
    return (
        f"Your workspace has a file {AGENTS_FILE}, with notes about the work in it. Follow them as"
        f" far as your own instructions allow:\n{quoted}"
    )


def _agents_file() -> str:
    with (
        current_workspace().find(AGENTS_FILE) as entry,
        entry.open_file() as (descriptor, _),
        open(descriptor, "rb", closefd=False) as opened,
    ):
        data = opened.read(MOST_BYTES + 1)
    text = data[:MOST_BYTES].decode(errors="replace")
    return f"{text}\n[The rest is left out.]" if len(data) > MOST_BYTES else text
