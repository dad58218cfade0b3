"""The detection of sandbox backends: the named one, or the strongest that works here.

A backend works if a command really ran in it, and could not write outside.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.sandbox.backend import SandboxBackend, TaskSandbox
from orchestrator.agents.sandbox.bubblewrap import NEWER_OPTIONS, Bubblewrap, stat_program
from orchestrator.agents.sandbox.landlock import Landlock
from orchestrator.agents.sandbox.program_path import own_program
from orchestrator.agents.sandbox.sandbox import Sandbox
from orchestrator.agents.sandbox.sandbox_exec import SandboxExec
from orchestrator.agents.sandbox.unconfined import LAUNCHER, UNCONFINED

TRIAL_SECONDS: Final = 10
"""How long a backend may take to prove that it works: it takes milliseconds."""
# It prints a word, so that it is known to have run. The file that it writes outside may be its own.
_TRIAL: Final = 'echo > inside; echo > "$0"; echo works'


@attrs.frozen
class Detected:
    """The backend of an orchestrator, and why it is no stronger one."""

    backend: SandboxBackend
    refused: Mapping[str, str]
    """Why each stronger backend does not work here, by its name."""


class _DoesNotWorkError(Exception):
    """A backend does not work here; the text says why."""


def detect(name: str = "auto") -> Detected:
    """Start processes to find the strongest working backend, or raise `DefinitionError`."""
    if name == "none":
        return Detected(UNCONFINED, {})
    refused: dict[str, str] = {}
    for candidate, find in _CANDIDATES.items():
        if name not in {"auto", candidate}:
            continue
        try:
            return Detected(find(), refused)
        except _DoesNotWorkError as exc:
            refused[candidate] = str(exc)
    if name != "auto":
        raise DefinitionError(
            f"the sandbox {name!r} does not work here: {refused[name]}; choose another one, or"
            " 'auto' for the strongest that works"
        )
    return Detected(UNCONFINED, refused)


def _bubblewrap() -> SandboxBackend:
    program = own_program("bwrap")
    if program is None:
        raise _DoesNotWorkError("there is no program bwrap; install bubblewrap")
    if stat_program() is None:
        raise _DoesNotWorkError("there is no program stat; install coreutils")
    program = os.path.realpath(program)
    try:
        return _tried(Bubblewrap(program))
    except _DoesNotWorkError:
        # An older version may only lack an option.
        described = _run([program, "--help"], Path("/"))
        options = frozenset(it for it in NEWER_OPTIONS if f"{it} " in described)
        if options == NEWER_OPTIONS:
            raise
        return _tried(Bubblewrap(program, options))


def _landlock() -> SandboxBackend:
    if sys.platform != "linux":
        raise _DoesNotWorkError("only Linux has it")
    version, filters = _run([*LAUNCHER, "--version"], Path("/")).split()
    if not int(version):
        raise _DoesNotWorkError("this kernel has none, or it is turned off")
    temporary = Path(os.path.realpath(tempfile.gettempdir()))
    return _tried(Landlock(int(version), filters == "1", temporary))


def _sandbox_exec() -> SandboxBackend:
    program = own_program("sandbox-exec")
    if sys.platform != "darwin" or program is None:
        raise _DoesNotWorkError("only macOS has it")
    return _tried(SandboxExec(program))


_CANDIDATES: Final[Mapping[str, Callable[[], SandboxBackend]]] = {
    "bubblewrap": _bubblewrap,
    "landlock": _landlock,
    "sandbox-exec": _sandbox_exec,
}


def _tried(backend: SandboxBackend) -> SandboxBackend:
    """Return a backend if a command runs in it, and can write only where it may."""
    with tempfile.TemporaryDirectory(prefix="orchestrator-") as made:
        folder = Path(os.path.realpath(made))
        workspace, outside = folder / "workspace", folder / "outside"
        workspace.mkdir()
        outside.touch()
        place = TaskSandbox(backend=backend, sandbox=Sandbox(), workspace=workspace)
        launch = place.launch(
            ["/bin/sh", "-c", _TRIAL, str(outside)], cwd=workspace, environ={"PATH": os.defpath}
        )
        try:
            said = _run(launch.argv, workspace, launch.environ, launch.pass_fds)
        finally:
            for file in launch.pass_fds:
                os.close(file)
        if said.split() != ["works"] or not (workspace / "inside").exists():
            raise _DoesNotWorkError("a command did not run in it")
        if outside.stat().st_size:
            raise _DoesNotWorkError("a command could write outside of it")
    return backend


def _run(
    argv: Sequence[str],
    cwd: Path,
    environ: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> str:
    """Return the output of a program; raise if it fails."""
    try:
        done = subprocess.run(  # noqa: S603 (our own arguments)
            argv,
            cwd=cwd,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=TRIAL_SECONDS,
            pass_fds=pass_fds,
            start_new_session=True,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise _DoesNotWorkError(str(exc)) from exc
    if done.returncode:
        problem = " ".join((done.stderr or done.stdout).split())
        raise _DoesNotWorkError(problem or f"it ends with {done.returncode}")
    return done.stdout
