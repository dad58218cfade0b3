"""The backend `none`: commands have all rights of the user. A fence, for their resources only.

They gain no rights (`no_new_privs`), have resource limits, and have a supervisor that keeps all
their processes in one tree.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from orchestrator.agents.sandbox.backend import (
    SUPERVISOR_VARIABLE,
    Launch,
    SandboxBackend,
    TaskSandbox,
)
from orchestrator.agents.sandbox.limits import without_loader_variables
from orchestrator.agents.sandbox.sandbox import Sandbox

LAUNCHER: Final = (
    *(sys.executable, "-I", "-S", "-c"),
    "import sys; sys.path.append(sys.argv.pop(1)); from launcher import main; main()",
    str(Path(__file__).resolve().parent),
)
"""A program of its own. It is imported there, since a script would be compiled each time; not here,
for it needs modules that some systems lack."""


class Unconfined:
    """Starts commands with their limits and nothing else (`SandboxBackend`)."""

    name = "none"
    is_wall = False
    has_own_loopback = False
    protects = False
    lacks = ("files", "network", "processes of others")

    def launch(
        self, argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str], place: TaskSandbox
    ) -> Launch:
        return launched(argv, environ, limit_settings(place.sandbox))


def launched(argv: Sequence[str], environ: Mapping[str, str], settings: Iterable[str]) -> Launch:
    """Return how to start a command with the launcher and its settings."""
    unset = [f"unset={SUPERVISOR_VARIABLE}"]
    if "LC_CTYPE" not in environ:
        # Python sets it, where nothing else says which letters there are.
        unset.append("unset=LC_CTYPE")
    environ, loading = without_loader_variables(environ)
    exported = [f"set={name}:{value}" for name, value in loading.items()]
    return Launch(
        argv=[*LAUNCHER, *unset, *exported, *settings, "--", *argv],
        environ={**environ, SUPERVISOR_VARIABLE: "1"},
    )


def limit_settings(sandbox: Sandbox) -> Iterator[str]:
    """Yield the limits of a sandbox as the launcher reads them."""
    yield "limit=CORE:0"
    limits = {
        "CPU": sandbox.cpu,
        "AS": sandbox.memory,
        "DATA": sandbox.data,
        "FSIZE": sandbox.disk,
        "NPROC": sandbox.processes,
    }
    for name, limit in limits.items():
        if limit is not None:
            yield f"limit={name}:{max(1, round(limit))}"


UNCONFINED: Final[SandboxBackend] = Unconfined()
