"""The machine that an orchestrator runs on, by the name that facts of commands and folders have.

A process says that a command has ended only on the machine of that command, and works in a folder
only where that folder is.
"""

import socket
from collections.abc import Mapping
from typing import Final

import msgspec

HOST_VARIABLE: Final = "ORCHESTRATOR_HOST"
FILES_HOST_VARIABLE: Final = "ORCHESTRATOR_WORKSPACE_HOST"


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The names of this machine and of its file system."""

    name: str
    files: str
    """The name of the file system: machines that share folders share this name."""
    is_only: bool = False
    """The journal is a file of this machine: whatever it names was here, under any name."""

    def runs(self, host: str) -> bool:
        """Return whether processes on a host can be seen from here."""
        return self.is_only or host in {"", self.name}

    def has_files_of(self, host: str) -> bool:
        """Return whether the folders of a host are here."""
        return self.is_only or host in {"", self.files}


ANY_HOST: Final = Host(name="", files="", is_only=True)
"""For a run whose tools have no effect."""


def host_of(given: str | None, environ: Mapping[str, str], *, spans_hosts: bool) -> Host:
    """Return this machine.

    Args:
        given: its name, if the caller has named it.
        environ: may name it, and its file system.
        spans_hosts: other machines can open the journal. A journal that they cannot open was
            written here, also if this machine has another name since; unless it is named on
            purpose.
    """
    named = given or environ.get(HOST_VARIABLE, "")
    name = named or socket.gethostname()
    return Host(
        name=name,
        files=environ.get(FILES_HOST_VARIABLE) or name,
        is_only=not (spans_hosts or named),
    )
