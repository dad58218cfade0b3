"""The backend `landlock`: the kernel restricts the files and sockets of a command, without root.

Landlock only allows, and a right on a folder holds for everything in it. So:

* a hidden path is left out while its neighbours are allowed, and its name stays visible;
* a path in a writable folder cannot be protected;
* `/tmp` is not writable: `TMPDIR` leads to the command's own folder.

Landlock judges no UDP and no sockets that have a path, such as Docker's or the desktop's. A seccomp
filter forbids those sockets. A command sees other processes and their names, but cannot signal or
read them. It may change modes and times of files that the user owns.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from orchestrator.agents.sandbox.backend import Launch, TaskSandbox
from orchestrator.agents.sandbox.unconfined import launched, limit_settings

HAS_TCP: Final = 4
HAS_SCOPES: Final = 6
# The folders that every command needs, if only named folders can be read.
SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/nix"),
    *("/proc", "/sys"),
)
DEVICES: Final = (
    *("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"),
    # Not /dev/pts: it has the terminals of the user, with the typed text.
    *("/dev/tty",),
)


@attrs.frozen
class Landlock:
    """Starts commands that the kernel restricts (`SandboxBackend`)."""

    version: int
    """That of the kernel's interface."""
    filters_sockets: bool
    """Whether the launcher can forbid sockets that Landlock does not judge."""
    temporary: Path
    """Where the temporary folders of commands are made."""
    name = "landlock"
    has_own_loopback = False
    protects = False

    @property
    def is_wall(self) -> bool:
        return self.version >= HAS_SCOPES and self.filters_sockets

    @property
    def lacks(self) -> tuple[str, ...]:
        lacking = {
            "TCP": self.version < HAS_TCP,
            "signals to other processes": self.version < HAS_SCOPES,
            "UDP, and sockets that have a path": not self.filters_sockets,
        }
        return (
            *(name for name, is_lacking in lacking.items() if is_lacking),
            "hosts by name: a port of the proxy is open on all of them",
            "names of hidden files",
            "settings of a repository, and agent files, in the workspace",
            "modes and attributes of the user's files",
            "System V memory and queues",
        )

    def launch(
        self, argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str], place: TaskSandbox
    ) -> Launch:
        temporary = str(self.temporary / f"orchestrator-{os.urandom(8).hex()}")
        return launched(
            argv,
            {**environ, "TMPDIR": temporary},
            [
                *limit_settings(place.sandbox),
                "landlock=1",
                *([f"port={place.proxy_port}"] if place.proxy_port else []),
                *(["network=1"] if place.sandbox.network is True else []),
                f"temporary={temporary}",
                f"rule=write:{temporary}",
                *(f"rule=use:{device}" for device in DEVICES),
                *_rules(place),
            ],
        )


def _rules(place: TaskSandbox) -> Iterator[str]:
    yield "rule=list:/"
    read = place.sandbox.read
    readable = (Path("/"),) if read is None else (*map(Path, SYSTEM), *place.readable)
    # Among the devices are the terminals of the user, and for root the disks.
    hidden = (*place.hidden, Path("/dev"))
    for path in (*readable, *place.shown):
        yield from (f"rule=read:{it}" for it in _without(path, hidden))
    for path in place.granted():
        yield from (f"rule=write:{it}" for it in _without(path, place.hidden))


def _without(path: Path, hidden: Sequence[Path]) -> Iterator[Path]:
    """Yield paths that together cover a path except its hidden parts."""
    if path in hidden:
        return
    inside = [it for it in hidden if it.is_relative_to(path)]
    if not inside:
        yield path
        return
    try:
        entries = [*path.iterdir()]
    except OSError:
        return
    for below in entries:
        # A right on a link would be a right on its target.
        if not below.is_symlink():
            yield from _without(below, inside)
