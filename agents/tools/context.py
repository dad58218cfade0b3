"""Where a tool runs: its workspace, what it may start, and what it knows of the files there.

Whoever runs an agent sets the scene for the length of its turn. A tool asks for it, because the
same tool is used by many agents at once.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from agents.errors import DefinitionError

if TYPE_CHECKING:
    from agents.tools.files.seen_files import SeenFiles
    from agents.tools.terminal.background import BackgroundCommands


@attrs.frozen(kw_only=True)
class ToolContext:
    """What the tools of one task find around them."""

    workspace: Path
    """The folder that file tools stay in, and in which commands start."""
    environ: Mapping[str, str]
    """The environment of what is started, without secrets."""
    seen_files: "SeenFiles"
    """The files that this task has read."""
    processes: "BackgroundCommands"
    """The commands that this task has started in the background."""
    redact: Callable[[str], str]
    """Takes secrets out of what is about to be written down."""


_TOOL_CONTEXT: Final[ContextVar[ToolContext]] = ContextVar("scene")


@contextmanager
def use_tool_context(context: ToolContext) -> Generator[None]:
    """Set the scene for the length of a `with`."""
    token = _TOOL_CONTEXT.set(context)
    try:
        yield
    finally:
        _TOOL_CONTEXT.reset(token)


def redact_secrets(text: str) -> str:
    """Return a text as it may be written down here."""
    scene = _TOOL_CONTEXT.get(None)
    return text if scene is None else scene.redact(text)


def current_tool_context() -> ToolContext:
    """Return where the tool that asks runs."""
    try:
        return _TOOL_CONTEXT.get()
    except LookupError:
        raise DefinitionError(
            "tools that touch the machine run where an orchestrator runs their agent, and"
            " nobody does here"
        ) from None
