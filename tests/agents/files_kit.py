"""Helpers for tests of the file tools: a task that works in a folder."""

from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.agents import CallId, Tool, ToolCall, ToolError
from orchestrator.agents.redaction.redactor import redacted
from orchestrator.agents.sandbox.backend import TaskSandbox
from orchestrator.agents.sandbox.sandbox import Sandbox
from orchestrator.agents.sandbox.unconfined import UNCONFINED
from orchestrator.agents.tools.context import ToolContext, use_tool_context
from orchestrator.agents.tools.files.seen_files import FileRegistry, SeenFiles


class Worker:
    """A task, as far as its tools see it."""

    def __init__(
        self,
        workspace: Path,
        registry: FileRegistry | None = None,
        who: str = "/editor",
        hidden: tuple[Path, ...] = (),
        protected: tuple[Path, ...] = (),
    ) -> None:
        self._scene = ToolContext(
            workspace=workspace,
            make_sandbox=lambda: TaskSandbox(
                backend=UNCONFINED,
                sandbox=Sandbox(),
                workspace=workspace.resolve(),
                hidden=hidden,
                protected=protected,
            ),
            environ={},
            seen_files=SeenFiles(registry or FileRegistry(), who),
            processes=cast("Any", None),  # No file tool starts any.
            redact=redacted,
        )

    async def use(self, used: Tool, /, **arguments: Any) -> str:
        with use_tool_context(self._scene):
            answer = await used.run(ToolCall(used.name, arguments, id=CallId("1")))
        return answer if isinstance(answer, str) else answer.text

    async def refused(self, used: Tool, /, **arguments: Any) -> str:
        """Return why a tool says no."""
        with pytest.raises(ToolError) as caught:
            await self.use(used, **arguments)
        return str(caught.value)
