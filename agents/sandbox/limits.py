"""The shell that limits itself and becomes a command, and the variables that only it may set."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from orchestrator.agents.sandbox.sandbox import Sandbox

SHELL: Final = "/bin/sh"


_FOR_LOADER: Final = re.compile(r"(?:D?Y?LD_\w+|GCONV_PATH|GLIBC_TUNABLES|LOCPATH)")
"""The variables that tell a program where its libraries are."""


def without_loader_variables(environ: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return an environment in two parts: the second one has the variables of the loader.

    They may name the workspace: an empty entry of `LD_LIBRARY_PATH` is the folder that a program
    starts in. So the program that makes a sandbox never gets them.
    """
    loading = {name: value for name, value in environ.items() if _FOR_LOADER.fullmatch(name)}
    return {name: value for name, value in environ.items() if name not in loading}, loading


def with_limits(
    argv: Sequence[str], sandbox: Sandbox, exported: Mapping[str, str], *, first: str = ""
) -> list[str]:
    """Return a command that limits itself and then becomes the given one.

    Its shell exports variables, after it has run the line `first`.
    """
    # As `sh`, bash counts blocks of 512 bytes, as others do; but it names this one differently.
    is_bash = Path(SHELL).resolve().name == "bash"
    limits = {"-c": 0}
    if sandbox.cpu is not None:
        limits["-t"] = max(1, round(sandbox.cpu))
    if sandbox.memory is not None:
        limits["-v"] = max(1, int(sandbox.memory) >> 10)
    if sandbox.data is not None:
        limits["-d"] = sandbox.data >> 10
    if sandbox.disk is not None:
        limits["-f"] = max(1, int(sandbox.disk) >> 9)
    if sandbox.processes is not None:
        limits["-u" if is_bash else "-p"] = int(sandbox.processes)
    # A limit that is lower already cannot be raised, and need not be.
    lines = [first] if first else []
    lines += [f"ulimit {option} {limit} 2>/dev/null" for option, limit in limits.items()]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in exported.items()]
    return [SHELL, "-c", "; ".join([*lines, 'exec "$0" "$@"']), *argv]
