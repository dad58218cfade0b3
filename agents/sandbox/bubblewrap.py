"""The backend `bubblewrap`: commands run in their own namespaces. A wall.

The root is read-only; the workspace, the sandbox's write paths and `/tmp` are writable. A command
has no network unless the sandbox allows all of it, and sees no foreign process, no state of the
orchestrator, no credentials of the user and no socket in `/run`. It cannot gain rights.

A mount hides everything below it, so mounts are made from the top down: a hidden path in a
workspace is mounted after it, and a worktree in the hidden state folder after that folder.

Another command may replace a path in a workspace by a link while `bwrap` mounts it, and `bwrap`
follows links. So the shell that becomes the command first compares the mounts with the files that
this process has judged.
"""

import os
import shlex
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from functools import cache
from pathlib import Path
from typing import Final

import attrs

from orchestrator.agents.sandbox import sensitive_paths
from orchestrator.agents.sandbox.backend import Launch, TaskSandbox, is_unmoved
from orchestrator.agents.sandbox.limits import with_limits, without_loader_variables
from orchestrator.agents.sandbox.sandbox import Sandbox
from orchestrator.agents.sandbox.system_calls import can_filter, namespace_filter

NEWER_OPTIONS: Final = frozenset({"--disable-userns", "--size"})
"""The options that not every version has: without them it is a wall all the same."""
# The folders that every command needs, if only named folders can be read.
SYSTEM: Final = tuple(
    Path("/", name)
    for name in ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt", "nix"]
)
# /run has sockets, and through them a command could ask others to do forbidden work. These paths
# are not sockets: the addresses of name servers, and the programs of NixOS.
RUN: Final = Path("/run")
IN_RUN: Final = tuple(
    RUN / name
    for name in (
        "systemd/resolve/stub-resolv.conf",
        "systemd/resolve/resolv.conf",
        "NetworkManager/resolv.conf",
        "resolvconf/resolv.conf",
        "current-system",
        "opengl-driver",
    )
)
# Settings of the kernel that let root run a command outside. bwrap covers only some.
KERNEL: Final = tuple(
    Path("/proc", name)
    for name in [*("acpi", "asound", "bus", "fs", "irq", "mtrr", "scsi", "sys"), "sysrq-trigger"]
)
TEMPORARY: Final = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 (its own)
_STAT_FOLDERS: Final = "/usr/bin:/bin:/run/current-system/sw/bin"
_REPLACED: Final = "replaced"
"""No device and inode."""
_WAS_REPLACED: Final = (
    "the command was not started: a path of its workspace was replaced at that moment; run it again"
)


class _Mount(Enum):
    PROCESSES = auto()
    DEVICES = auto()
    TEMPORARY = auto()
    """An empty folder that can be written."""
    READABLE = auto()
    WRITABLE = auto()
    PROTECTED = auto()
    """Readable in a folder that can be written."""
    HIDDEN = auto()


_BOUND: Final = frozenset({_Mount.READABLE, _Mount.WRITABLE, _Mount.PROTECTED})
"""The mounts of a path of this machine."""


@attrs.frozen
class Bubblewrap:
    """Starts commands with `bwrap` (`SandboxBackend`)."""

    program: str
    """The path of `bwrap`."""
    newer_options: frozenset[str] = NEWER_OPTIONS
    """Those of `NEWER_OPTIONS` that it has."""
    name = "bubblewrap"
    is_wall = True
    has_own_loopback = True
    protects = True

    @property
    def lacks(self) -> tuple[str, ...]:
        lacking = {
            # The kernel does not count the processes of root.
            "a limit of processes, as root": os.geteuid() == 0,
            "sockets of virtual machines, and keyrings": not can_filter(),
        }
        return tuple(name for name, is_lacking in lacking.items() if is_lacking)

    def launch(
        self, argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str], place: TaskSandbox
    ) -> Launch:
        sandbox = place.sandbox
        arguments = [
            self.program,
            *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
            *("--unshare-cgroup-try", "--cap-drop", "ALL"),
        ]
        if "--disable-userns" in self.newer_options:
            arguments.append("--disable-userns")
        if sandbox.network is not True:
            arguments.append("--unshare-net")
        arguments += _root(sandbox)
        mounts = _mounts(place)
        for path in sorted(mounts):
            arguments += self._mount(path, mounts[path], sandbox)
        expected = _identities(place, mounts)
        for link in place.links:
            if _is_missing(link, mounts):
                arguments += ("--symlink", os.readlink(link), str(link))  # noqa: PTH115
        # At the end: until then, mounts below may need a folder in them.
        for path in sorted(mounts):
            if _is_emptied(path, mounts[path]):
                arguments += ("--remount-ro", str(path))
        if "TMPDIR" in environ:
            arguments += ("--setenv", "TMPDIR", str(TEMPORARY[0]))
        arguments += ("--chdir", os.path.realpath(cwd))
        filters = (_open_filter(),) if can_filter() else ()
        for file in filters:
            arguments += ("--seccomp", str(file))
        environ, loading = without_loader_variables(environ)
        command = with_limits(argv, sandbox, loading, first=_compared(expected))
        return Launch(argv=[*arguments, "--", *command], environ=environ, pass_fds=filters)

    def _mount(self, path: Path, kind: _Mount, sandbox: Sandbox) -> Iterator[str]:
        target = str(path)
        match kind:
            case _Mount.PROCESSES:
                yield from ("--proc", target)
            case _Mount.DEVICES:
                yield from ("--dev", target)
            case _Mount.TEMPORARY:
                if sandbox.disk is not None and "--size" in self.newer_options:
                    yield from ("--size", str(int(sandbox.disk)))
                yield from ("--perms", "1777", "--tmpfs", target)
            case _Mount.READABLE:
                yield from ("--ro-bind", target, target)
            case _Mount.WRITABLE:
                yield from ("--bind", target, target)
            case _Mount.PROTECTED | _Mount.HIDDEN if _is_emptied(path, kind):
                yield from ("--perms", "0755", "--tmpfs", target)
            case _Mount.PROTECTED:
                # It may be gone by then: git removes its folder `worktrees` with the last one.
                yield from ("--ro-bind-try", target, target)
            case _Mount.HIDDEN:
                yield from ("--ro-bind", os.devnull, target)


@cache
def stat_program() -> str | None:
    """Return the path of `stat`; no folder of a user or workspace is searched for it."""
    return shutil.which("stat", path=_STAT_FOLDERS)


def _identities(place: TaskSandbox, mounts: Mapping[Path, _Mount]) -> dict[Path, str]:
    """Return the device and inode of each file that is mounted and that a command may replace."""
    found: dict[Path, str] = {}
    shown = {*place.shown, *place.readable}
    for path, kind in mounts.items():
        is_bound = kind in _BOUND and not _is_emptied(path, kind)
        if not is_bound or not (path in shown or _is_in(path, place.writable)):
            continue
        if identity := _identity(path):
            found[path] = identity
        elif kind is not _Mount.PROTECTED:
            found[path] = _REPLACED
    return found


def _identity(path: Path) -> str:
    """Return the device and inode of a path; "" if it is gone, or a link is on the way to it."""
    try:
        file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        is_there = os.readlink(f"/proc/self/fd/{file}") == str(path)  # noqa: PTH115
        found = os.fstat(file)
    finally:
        os.close(file)
    is_real = is_there and not stat.S_ISLNK(found.st_mode)
    return f"{found.st_dev}:{found.st_ino}" if is_real else ""


def _compared(expected: Mapping[Path, str]) -> str:
    """Return a line for the shell that ends it unless these paths are these files."""
    if not expected:
        return ""
    paths = " ".join(shlex.quote(str(path)) for path in expected)
    identities = "\n".join(expected.values())
    return (
        f'[ "$({stat_program()} -c %d:%i -- {paths} 2>/dev/null)" = "{identities}" ]'
        f' || {{ echo "{_WAS_REPLACED}" >&2; exit 126; }}'
    )


@cache
def _filter() -> bytes:
    return namespace_filter(os.uname().machine)


def _open_filter() -> int:
    """Return a file with the program that judges system calls. Its reader comes to its end."""
    file = os.memfd_create("filter")
    os.write(file, _filter())
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _is_missing(link: Path, mounts: Mapping[Path, _Mount]) -> bool:
    """Return whether a link is in a folder that was covered by an empty one."""
    above = next((it for it in link.parents if it in mounts), None)
    return above is not None and link not in mounts and _is_emptied(above, mounts[above])


def _is_emptied(path: Path, kind: _Mount) -> bool:
    """Return whether an empty folder is mounted that cannot be written."""
    if kind is _Mount.HIDDEN:
        return path.is_dir()
    # A protected folder that is missing is made by the mount, and stays empty.
    return kind is _Mount.PROTECTED and not path.exists()


def _root(sandbox: Sandbox) -> Iterator[str]:
    if sandbox.read is None:
        yield from ("--ro-bind", "/", "/")
        return
    for folder in SYSTEM:
        if folder.is_symlink():
            yield from ("--symlink", str(folder.readlink()), str(folder))
        elif folder.exists():
            yield from ("--ro-bind", str(folder), str(folder))


def _mounts(place: TaskSandbox) -> dict[Path, _Mount]:
    """Return the mounts. Of two reasons for the same path, the later one holds."""
    writable = [it for it in place.writable if is_unmoved(it) and it.exists()]
    # If one of these is a link, it leads to another of them, or nowhere.
    empty = [it for it in (*TEMPORARY, RUN) if it.is_dir() and not it.is_symlink()]
    granted = [it for it in place.granted(covered=empty) if it in writable]
    readable = [it for it in (*IN_RUN, *place.readable) if it.exists()]
    # All else is there already, and devices are the sandbox's own.
    covered = (*empty, *place.hidden)
    shown = [
        it
        for it in place.shown
        if place.sandbox.read is not None or is_below(it, covered)
        if not is_below(it, (Path("/dev"), Path("/proc"))) and it not in empty
    ]
    readable += shown
    if place.proxy_port is not None:
        # The interpreter opens the listener of the proxy, before it becomes the command.
        readable.append(Path(os.path.realpath(sys.base_prefix)))
    # The task's worktree folder is beside the folders of other worktrees, which are protected.
    own = [it for it in _own_worktrees(place) if is_below(it, writable)]
    # A command may have made `.git` a link: a mount there would open the folder that it leads to.
    settings = (Path(os.path.realpath(it)) for it in _settings_in({*writable, *own}))
    inner = {
        **{
            path: _Mount.PROTECTED
            for path in (*place.protected, *settings)
            if is_below(path, writable)
        },
        **{
            path: _Mount.HIDDEN
            for path in place.hidden
            # A path that does not exist cannot be covered.
            if path.exists() and path not in writable
            if is_below(path, (*writable, *shown)) or not is_below(path, (*empty, *place.hidden))
        },
    }
    closed = [path for path, kind in inner.items() if kind is _Mount.PROTECTED]
    # A folder with a mount inside can be renamed, with all its files, unless it is a mount itself.
    holders = [
        above
        for path in inner
        for above in path.parents
        if is_below(above, writable) and not is_below(above, closed)
    ]
    return {
        Path("/proc"): _Mount.PROCESSES,
        **{path: _Mount.READABLE for path in KERNEL if path.exists()},
        Path("/dev"): _Mount.DEVICES,
        **dict.fromkeys(empty, _Mount.TEMPORARY),
        **dict.fromkeys(readable, _Mount.READABLE),
        **dict.fromkeys(holders, _Mount.WRITABLE),
        **dict.fromkeys(granted, _Mount.WRITABLE),
        **inner,
        **dict.fromkeys(own, _Mount.WRITABLE),
    }


def _own_worktrees(place: TaskSandbox) -> Iterator[Path]:
    """Yield the folders in a repository of the git worktrees that a task works in."""
    # The workspace may be a worktree that the user made.
    found = sensitive_paths.git_folder_of_worktree(place.workspace)
    for folder in (*place.checkout, *([found] if found else [])):
        if folder.parent.name == "worktrees" and (folder / "HEAD").is_file():
            yield folder


def _settings_in(writable: Iterable[Path]) -> Iterator[Path]:
    """Yield what programs for version control obey and run, in folders that can be written."""
    for folder in writable:
        for git_folder in (folder, folder / ".git"):
            if (git_folder / "HEAD").is_file():
                sensitive_paths.make_git_settings(git_folder)
        yield from sensitive_paths.repository_settings(folder)
        if (folder / "HEAD").is_file():
            yield from sensitive_paths.git_settings(folder)


def _is_in(path: Path, folders: Sequence[Path]) -> bool:
    return path in folders or is_below(path, folders)


def is_below(path: Path, folders: Sequence[Path]) -> bool:
    """Return whether a path leads into one of these folders, and is not the folder itself."""
    return any(path != folder and path.is_relative_to(folder) for folder in folders)
