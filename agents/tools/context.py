"""The context of a tool call: workspace, environment, files that were read, background commands.

The executor sets it for the length of a turn. It is no argument of a tool, because one tool serves
many agents at once.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from orchestrator.agents.errors import DefinitionError

if TYPE_CHECKING:
    from orchestrator.agents.sandbox.backend import TaskSandbox
    from orchestrator.agents.tools.files.seen_files import SeenFiles
    from orchestrator.agents.tools.terminal.background import BackgroundCommands


class ToolContext(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The surroundings of one task's tools."""

    workspace: Path
    """The folder of file tools, and the start folder of commands."""
    make_sandbox: "Callable[[], TaskSandbox]"
    """Makes `sandbox` when it is first used: it looks at many paths, and most tools at none."""
    workspace_top: Path | None = None
    """A folder above it that a person has named. Agents may change the folders between the two, so
    each opening of the workspace walks them again, without links."""
    environ: Mapping[str, str]
    """The environment of commands, without secrets."""
    seen_files: "SeenFiles"
    """The files that this task has read."""
    processes: "BackgroundCommands"
    """The commands that this task has started in the background."""
    redact: Callable[[str], str]
    """Removes secrets from a text."""

    @cached_property
    def sandbox(self) -> "TaskSandbox":
        """The sandbox of its commands and file tools."""
        return self.make_sandbox()


_TOOL_CONTEXT: Final[ContextVar[ToolContext]] = ContextVar("tool context")


@contextmanager
def use_tool_context(context: ToolContext) -> Generator[None]:
    """Set the context for the length of a `with`."""
    token = _TOOL_CONTEXT.set(context)
    try:
        yield
    finally:
        _TOOL_CONTEXT.reset(token)


def redact_secrets(text: str) -> str:
    """Return a text without secrets, as far as the task of this call knows them."""
    context = _TOOL_CONTEXT.get(None)
    return text if context is None else context.redact(text)


def commands_are_walled() -> bool:
    """Return whether a wall holds the commands of the running task inside its sandbox."""
    context = _TOOL_CONTEXT.get(None)
    return context is not None and context.sandbox.is_wall


def current_tool_context() -> ToolContext:
    """Return the context of the running tool call."""
    try:
        return _TOOL_CONTEXT.get()
    except LookupError:
        raise DefinitionError(
            "tools for files and commands need a ToolContext, which an orchestrator sets"
            " around a turn"
        ) from None
