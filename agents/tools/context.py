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
    from agents.tools.files.seen_files import Desk
    from agents.tools.terminal.background import Processes


@attrs.frozen(kw_only=True)
class Scene:
    """What the tools of one task find around them."""

    workspace: Path
    """The folder that file tools stay in, and in which commands start."""
    environ: Mapping[str, str]
    """The environment of what is started, without secrets."""
    desk: "Desk"
    """The files that this task has read."""
    processes: "Processes"
    """The commands that this task has started in the background."""
    redact: Callable[[str], str]
    """Takes secrets out of what is about to be written down."""


_SCENE: Final[ContextVar[Scene]] = ContextVar("scene")


@contextmanager
def playing(scene: Scene) -> Generator[None]:
    """Set the scene for the length of a `with`."""
    token = _SCENE.set(scene)
    try:
        yield
    finally:
        _SCENE.reset(token)


def without_secrets(text: str) -> str:
    """Return a text as it may be written down here."""
    scene = _SCENE.get(None)
    return text if scene is None else scene.redact(text)


def current_scene() -> Scene:
    """Return where the tool that asks runs."""
    try:
        return _SCENE.get()
    except LookupError:
        raise DefinitionError(
            "tools that touch the machine run where an orchestrator runs their agent, and"
            " nobody does here"
        ) from None
