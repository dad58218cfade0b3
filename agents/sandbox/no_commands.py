"""The backend of a task that has no tool for commands: it starts none."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from orchestrator.agents.errors import ToolError
from orchestrator.agents.sandbox.backend import Launch, SandboxBackend, TaskSandbox


class NoCommands:
    """Refuses to start commands (`SandboxBackend`), where none was looked for that could."""

    name = "none"
    is_wall = False
    has_own_loopback = False
    protects = False
    lacks = ("commands",)

    def launch(
        self, argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str], place: TaskSandbox
    ) -> Launch:
        raise ToolError(
            "no tool of this agent says that it runs commands, so there is no sandbox for them;"
            ' define the tool that runs this one with @tool(machine="command")'
        )


NO_COMMANDS: Final[SandboxBackend] = NoCommands()
