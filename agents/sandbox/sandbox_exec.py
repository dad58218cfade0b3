"""The backend `sandbox-exec` of macOS. Written from its documentation, and NOT TESTED on macOS.

It is never taken for a wall, until it was tried there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from orchestrator.agents.sandbox.backend import Launch, TaskSandbox
from orchestrator.agents.sandbox.limits import with_limits, without_loader_variables

TEMPORARY: Final = ("/private/tmp", "/private/var/tmp", "/private/var/folders")


@attrs.frozen
class SandboxExec:
    """Starts commands with `sandbox-exec` (`SandboxBackend`)."""

    program: str
    """The path of `sandbox-exec`."""
    name = "sandbox-exec"
    is_wall = False
    has_own_loopback = False
    protects = True
    lacks = ("a trial: it is untested",)

    def launch(
        self, argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str], place: TaskSandbox
    ) -> Launch:
        profile = "\n".join(_profile(place))
        environ, loading = without_loader_variables(environ)
        command = with_limits(argv, place.sandbox, loading)
        return Launch(argv=[self.program, "-p", profile, *command], environ=environ)


def _profile(place: TaskSandbox) -> Iterator[str]:
    """Yield the rules of a profile. The last rule that matches decides."""
    yield "(version 1)"
    yield "(allow default)"
    if place.sandbox.network is not True:
        yield "(deny network*)"
        yield "(allow network* (local unix))"
    yield "(deny file-write*)"
    writable = (*map(str, place.writable), *TEMPORARY, "/dev")
    yield f"(allow file-write* {_paths(writable)})"
    if place.sandbox.read is not None:
        yield f"(deny file-read-data {_paths([str(Path.home())])})"
        read = [*map(str, place.sandbox.read), *map(str, place.writable)]
        yield f"(allow file-read-data {_paths(read)})"
    if place.protected:
        yield f"(deny file-write* {_paths(map(str, place.protected))})"
    opened = (*place.writable, *place.visible)
    outer = [it for it in place.hidden if any(path.is_relative_to(it) for path in opened)]
    if outer:
        # A workspace may be in a hidden home.
        yield f"(deny file-read* file-write* {_paths(map(str, outer))})"
        yield f"(allow file-read* {_paths(map(str, opened))})"
        yield f"(allow file-write* {_paths(map(str, place.writable))})"
    if inner := [it for it in place.hidden if it not in outer]:
        yield f"(deny file-read* file-write* {_paths(map(str, inner))})"


def _paths(paths: Iterable[str]) -> str:
    return " ".join(f"(subpath {_quoted(path)})" for path in paths)


def _quoted(path: str) -> str:
    text = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
