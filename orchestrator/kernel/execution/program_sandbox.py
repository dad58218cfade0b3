"""The sandboxes of programs that the orchestrator itself starts: git, and servers of agents.

An agent may have written files that such a program reads and obeys. So it runs in the sandbox of an
agent's command: by the backend of this orchestrator, without its state and without credentials.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs

from orchestrator.agents import Sandbox
from orchestrator.agents.sandbox.backend import TaskSandbox
from orchestrator.agents.sandbox.choice import SandboxChoice
from orchestrator.agents.sandbox.closed_home import home_access
from orchestrator.agents.sandbox.sensitive_paths import startup_files_in
from orchestrator.agents.tools.files.own_code import own_code_in

NO_FOLDER: Final = Path(os.devnull, "none")
"""The workspace of a program without one: no file can be there."""


@attrs.frozen(kw_only=True)
class ProgramSandbox:
    """Makes the sandbox of each program."""

    choice: SandboxChoice
    """Finds the backend."""
    hidden: tuple[Path, ...] = ()
    """The files that no program sees: the state of this orchestrator, its keys and its socket."""

    async def around(
        self,
        allowed: Sandbox,
        *,
        workspace: Path = NO_FOLDER,
        write: Iterable[Path] = (),
        visible: Iterable[Path] = (),
        protected: Iterable[Path] = (),
    ) -> TaskSandbox:
        """Return the sandbox of one program.

        Args:
            allowed: the paths that it may touch, resolved.
            workspace: the folder that it works in.
            write: other folders that it writes, resolved: one that is a link by now is left out.
            visible: the resolved paths that it reads, wherever they are.
            protected: the paths in those folders that it does not write.
        """
        backend = await self.choice.backend()
        home = Path.home()
        folders = (_real(workspace), *write)
        access = home_access(home, allowed, (*folders, *allowed.write))
        place = TaskSandbox(
            backend=backend,
            sandbox=allowed,
            workspace=folders[0],
            checkout=folders[1:],
            hidden=(*self.hidden, *access.hidden),
            # Not resolved: one of these may be a link by now, and is left out then.
            visible=(*visible, *access.visible),
            links=access.links,
            home=_real(home),
        )
        own = own_code_in(place.writable)
        return attrs.evolve(
            place, protected=(*map(_real, protected), *own, *startup_files_in(home))
        )


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
