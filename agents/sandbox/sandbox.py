"""The value `Sandbox`: the rights of an agent's tools. Descendants can only tighten it.

It states the wish. The backend states how much of it is enforced: see `SandboxBackend`.
"""

import os
from pathlib import Path
from typing import Any, Final

import attrs

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.sandbox.network.allowed_hosts import AllowedHosts

PROCESSES: Final = 4096
"""Enough for any build; a fork bomb ends here."""
DISK: Final = 16 << 30
"""Larger than what commands write on purpose; `yes > file` ends here."""
MEMORY_SHARE: Final = 0.75
"""A process that needs more of the machine's memory than this stops the others."""


def _network(given: Any) -> bool | tuple[str, ...]:
    return given if isinstance(given, bool) else _listed(given, "network")


def _paths(given: Any) -> tuple[Path, ...]:
    return tuple(Path(path) for path in _listed(given, "write"))


def _optional_paths(given: Any) -> tuple[Path, ...] | None:
    if given is None:
        return None
    return tuple(Path(path) for path in _listed(given, "read"))


def _optional_names(given: Any) -> tuple[str, ...] | None:
    return None if given is None else _listed(given, "environment")


def _listed(given: Any, field: str) -> tuple[Any, ...]:
    # A string is a sequence of letters, and each letter would be taken for a name.
    if isinstance(given, str | os.PathLike) or not hasattr(given, "__iter__"):
        raise DefinitionError(
            f"a sandbox: {field} is {given!r}, and must be a list; write [{given!r}]"
        )
    return tuple(given)


@attrs.frozen(kw_only=True)
class Sandbox:
    """The rights of the commands and file tools of an agent and its descendants.

    Relative paths are inside the workspace of the agent.
    """

    network: bool | tuple[str, ...] = attrs.field(default=False, converter=_network)
    """True is all of it, False none; a list names the hosts that can be reached, by a proxy."""
    record_network: bool = False
    """Whether each request to a named host is a fact of the journal."""
    write: tuple[Path, ...] = attrs.field(default=(), converter=_paths)
    """The writable paths besides the workspace and a temporary folder."""
    read: tuple[Path, ...] | None = attrs.field(default=None, converter=_optional_paths)
    """The readable paths besides those and the system's own folders. None means everything except
    the state of the orchestrator and the home, whose toolchains and caches are readable."""
    environment: tuple[str, ...] | None = attrs.field(default=None, converter=_optional_names)
    """The variables that commands get, besides PATH, HOME and the like; None is all but secrets."""
    cpu: float | None = None
    """How many seconds of processor time each process may use."""
    memory: int | None = None
    """How many bytes of address space each process may use. None is three quarters of the memory of
    this machine; then only memory that the process has written counts."""
    processes: int | None = PROCESSES
    """How many processes and threads a command may have at once."""
    disk: int | None = DISK
    """How many bytes a file may have, and all temporary files together."""

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.network, bool):
            AllowedHosts.parse(self.network)
        for field in ("cpu", "memory", "processes", "disk"):
            limit = getattr(self, field)
            if limit is None:
                continue
            # True is an int, and no amount.
            if isinstance(limit, bool) or not isinstance(limit, int | float):
                raise DefinitionError(f"a sandbox: {field} is {limit!r}, no number")
            if not limit > 0:
                raise DefinitionError(
                    f"a sandbox: {field} is {limit!r}, and must be more than 0; None is no limit"
                )

    @property
    def data(self) -> int | None:
        """How many bytes of memory each process may write; None if `memory` limits it."""
        if self.memory is not None:
            return None
        return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * MEMORY_SHARE)

    def at(self, workspace: Path) -> "Sandbox":
        """Return the same with real absolute paths, relative ones being inside a workspace."""
        return attrs.evolve(
            self,
            write=[_real(workspace, path) for path in self.write],
            read=None if self.read is None else [_real(workspace, path) for path in self.read],
        )

    def within(self, parent: "Sandbox") -> "Sandbox":
        """Return what both allow. The paths of both are real ones: see `at`."""
        return Sandbox(
            network=_common_network(self.network, parent.network),
            record_network=self.record_network or parent.record_network,
            write=_common_paths(self.write, parent.write),
            read=self.read
            if parent.read is None
            else parent.read
            if self.read is None
            else _common_paths(self.read, parent.read),
            environment=_common_names(self.environment, parent.environment),
            cpu=_least(self.cpu, parent.cpu),
            memory=_least(self.memory, parent.memory),
            processes=_least(self.processes, parent.processes),
            disk=_least(self.disk, parent.disk),
        )


def _real(workspace: Path, path: Path) -> Path:
    given = path.expanduser()
    real = Path(os.path.realpath(workspace / given))
    # Agents write in the workspace: one of them may have made a link of it.
    is_inside = not given.is_absolute() and ".." not in given.parts
    if is_inside and not real.is_relative_to(os.path.realpath(workspace)):
        raise DefinitionError(
            f"a sandbox: {str(path)!r} is a link that leads out of the workspace, to {real}; name"
            " that folder itself, if it is meant"
        )
    return real


def _common_network(
    own: bool | tuple[str, ...], parent: bool | tuple[str, ...]
) -> bool | tuple[str, ...]:
    if isinstance(own, bool):
        return parent if own else False
    if isinstance(parent, bool):
        return own if parent else False
    return AllowedHosts.parse(own).within(AllowedHosts.parse(parent)).entries()


def _common_names(
    own: tuple[str, ...] | None, parent: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    if own is None or parent is None:
        return parent if own is None else own
    return tuple(name for name in own if name in parent)


def _common_paths(own: tuple[Path, ...], parent: tuple[Path, ...]) -> tuple[Path, ...]:
    inner = [path for path in own if any(path.is_relative_to(it) for it in parent)]
    inner += [path for path in parent if any(path.is_relative_to(it) for it in own)]
    return tuple(dict.fromkeys(inner))


def _least(*limits: Any) -> Any:
    return min((limit for limit in limits if limit is not None), default=None)
