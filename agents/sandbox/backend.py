"""The port that starts a command: a backend enforces the sandbox of a task on it.

A backend that is a wall keeps every command inside, apart from faults of the kernel. Any other
backend is a fence: it stops accidents.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import attrs

from orchestrator.agents.sandbox.network.requests import NetworkRequest
from orchestrator.agents.sandbox.sandbox import Sandbox

SUPERVISOR_VARIABLE: Final = "ORCHESTRATOR_SUPERVISOR"
"""Marks a process that ends by itself after the last process of its command."""


@attrs.frozen(kw_only=True)
class Launch:
    """How to start a process."""

    argv: Sequence[str]
    environ: Mapping[str, str]
    pass_fds: tuple[int, ...] = ()
    """Open descriptors that it inherits. The caller that starts it closes them afterwards."""


class SandboxBackend(Protocol):
    """Starts commands in a sandbox."""

    @property
    def name(self) -> str: ...
    @property
    def is_wall(self) -> bool:
        """Whether a command can neither write nor reach more than its sandbox allows."""
        ...

    @property
    def has_own_loopback(self) -> bool:
        """Whether a command without all of the network has a network namespace of its own."""
        ...

    @property
    def protects(self) -> bool:
        """Whether files in a folder that can be written can be kept from being written."""
        ...

    @property
    def lacks(self) -> Sequence[str]:
        """The rules that it does not enforce, in a few words each."""
        ...

    def launch(
        self, argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str], place: "TaskSandbox"
    ) -> Launch:
        """Return how to start a command so that it stays in a sandbox. It starts in `cwd`."""
        ...


def _ignore_request(_: NetworkRequest) -> None:
    """Ignore a request."""


@attrs.frozen(kw_only=True)
class TaskSandbox:
    """The sandbox of one task: the rights that it and all its ancestors allow, and the folders."""

    backend: SandboxBackend
    sandbox: Sandbox
    """The rights that they all allow, with real paths."""
    workspace: Path
    """The real path of the folder that the task works in. It can be read and written."""
    checkout: tuple[Path, ...] = ()
    """The folders of the git worktree that the task works in. They can be written, too."""
    hidden: tuple[Path, ...] = ()
    """Real paths that no command sees, even in the workspace: the state of the orchestrator, and
    credentials."""
    protected: tuple[Path, ...] = ()
    """Real paths that no command writes, even in the workspace: the code that the orchestrator
    runs."""
    visible: tuple[Path, ...] = ()
    """Further real paths that a command reads, also in a temporary or hidden folder."""
    links: tuple[Path, ...] = ()
    """The links in a hidden home that lead to a visible path."""
    home: Path | None = None
    """The real path of the user's home, where programs look for start-up files."""
    on_request: Callable[[NetworkRequest], None] = _ignore_request
    """Called with each request that a command has made by its proxy."""
    proxy_port: int | None = None
    """The port of loopback that a command has to reach, if its hosts are named."""

    @property
    def is_wall(self) -> bool:
        """Whether a command of the task can do nothing but what its sandbox allows."""
        backend = self.backend
        names_hosts = not isinstance(self.sandbox.network, bool)
        return (
            backend.is_wall
            and (backend.protects or not self.may_be_replaced)
            # Only startup files that are there can be protected: others could be made.
            and not (self.home and _is_in(self.home, self.writable))
            and (backend.has_own_loopback or not names_hosts)
        )

    @property
    def writable(self) -> tuple[Path, ...]:
        """The folders and files that can be written, with all that is in them."""
        return (self.workspace, *self.checkout, *self.sandbox.write)

    def granted(self, *, covered: Sequence[Path] = ()) -> list[Path]:
        """Return the writable paths to name to the kernel now.

        A command may have replaced a writable path by a link, which the kernel would follow. So a
        path inside another such folder is not named again, and a path that now leads elsewhere is
        not named. Folders in `covered` are covered by others, as hidden ones are.
        """
        covered = (*covered, *self.hidden)
        return [
            path
            for path in self.writable
            if is_unmoved(path)
            if not any(
                path != outer
                and path.is_relative_to(outer)
                and not any(path.is_relative_to(it) and it.is_relative_to(outer) for it in covered)
                for outer in self.writable
            )
        ]

    @property
    def readable(self) -> list[Path]:
        """The readable paths of the sandbox that have not become links since."""
        return [path for path in self.sandbox.read or () if is_unmoved(path)]

    @property
    def shown(self) -> list[Path]:
        """The visible paths that exist, are no links, and cannot be written."""
        return [
            path
            for path in self.visible
            if is_unmoved(path) and path.exists() and not _is_in(path, self.writable)
        ]

    @property
    def may_be_replaced(self) -> list[Path]:
        """The protected paths that are in a folder that can be written."""
        return [path for path in self.protected if _is_in(path, self.writable)]

    def launch(self, argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str]) -> Launch:
        """Return how to start a command of the task."""
        return self.backend.launch(argv, cwd=cwd, environ=environ, place=self)

    def may_write(self, real: str | os.PathLike[str]) -> bool:
        """Return whether a file at a real path may be written."""
        path = Path(real)
        return (
            not self._is_hidden(path)
            and not _is_in(path, self.protected)
            and _is_in(path, self.writable)
        )

    def may_read(self, real: str | os.PathLike[str]) -> bool:
        """Return whether a file at a real path may be read."""
        path = Path(real)
        if self._is_hidden(path):
            return False
        read = self.sandbox.read
        return read is None or _is_in(path, (*self.writable, *read))

    def _is_hidden(self, path: Path) -> bool:
        # A folder of the task may be in a hidden one, as a worktree is in the state folder. Inside
        # such a folder only paths that are hidden themselves are hidden.
        own = [it for it in (*self.writable, *self.visible) if _is_in(path, [it])]
        return any(
            path.is_relative_to(hidden) and not any(folder.is_relative_to(hidden) for folder in own)
            for hidden in self.hidden
        )


def is_unmoved(path: Path) -> bool:
    """Return whether a path that was a real one leads nowhere else by now."""
    return os.path.realpath(path) == str(path)


def _is_in(path: Path, folders: Sequence[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)
