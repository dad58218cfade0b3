"""The sandbox backend that an orchestrator uses: the named one, or the strongest that works here.

The backend holds for one orchestrator: a container or a setting of the system may change for the
next.
"""

from typing import TYPE_CHECKING, Final, Literal, get_args

import trio

from orchestrator.agents.errors import DefinitionError

if TYPE_CHECKING:
    from orchestrator.agents.sandbox.backend import SandboxBackend
    from orchestrator.agents.sandbox.detection import Detected

SandboxName = Literal["auto", "bubblewrap", "landlock", "sandbox-exec", "none"]
SANDBOX_NAMES: Final[tuple[str, ...]] = get_args(SandboxName)


class SandboxChoice:
    """The backend of one orchestrator, found when it is needed first."""

    def __init__(self, name: str = "auto") -> None:
        if name not in SANDBOX_NAMES:
            raise DefinitionError(
                f"there is no sandbox {name!r}; there are {', '.join(SANDBOX_NAMES)}"
            )
        self._name = name
        self._found: Detected | None = None
        self._lock = trio.Lock()

    async def backend(self) -> "SandboxBackend":
        """Return the backend; try what works the first time.

        Raises:
            DefinitionError: the named one does not work here.
        """
        return (await self.detect()).backend

    async def detect(self) -> "Detected":
        """Return the backend, and why it is no stronger one."""
        # Imported late: most agents run no command.
        from orchestrator.agents.sandbox.detection import detect

        async with self._lock:
            if self._found is None and self._name == "none":
                self._found = detect(self._name)  # nothing has to be tried
            if self._found is None:
                self._found = await trio.to_thread.run_sync(detect, self._name)
            return self._found
