"""Resource limits of one command, which a shell sets before it becomes the command."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from orchestrator.agents.sandbox.sandbox import Sandbox

SHELL: Final = "/bin/sh"


def with_limits(argv: Sequence[str], sandbox: Sandbox) -> list[str]:
    """Return a command that limits itself and then becomes the given one."""
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
    lines = [f"ulimit {option} {limit} 2>/dev/null" for option, limit in limits.items()]
    return [SHELL, "-c", "; ".join([*lines, 'exec "$0" "$@"']), *argv]
