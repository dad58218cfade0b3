"""The folders and the environment that the tools of an orchestrator use."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from orchestrator.agents.sandbox.choice import SandboxChoice
from orchestrator.delegation import SessionRecord
from orchestrator.kernel.execution.workspace.host import ANY_HOST, FILES_HOST_VARIABLE, Host
from orchestrator.kernel.state_files import real_paths


class WorkspaceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The folders and the environment of an orchestrator."""

    workspace: Path
    """The folder of all agents that name no other."""
    environ: Mapping[str, str]
    """The environment of their commands, without secrets."""
    state: Path
    """The folder of the worktrees."""
    sandbox: SandboxChoice
    """Finds the backend that starts their commands."""
    host: Host = ANY_HOST
    """The machine that they are on."""
    hidden: tuple[Path, ...] = ()
    """The files that no command sees: the state of this orchestrator, its keys and its socket."""


NO_WORKSPACE: Final = WorkspaceSettings(
    workspace=Path(), environ={}, state=Path(), sandbox=SandboxChoice("none")
)
"""For a run whose tools have no effect."""


def resolve_workspace_settings(
    environ: Mapping[str, str],
    workspace: str | os.PathLike[str] | None,
    state: Path,
    sandbox: SandboxChoice,
    *,
    host: Host,
    hidden: Iterable[Path] = (),
) -> WorkspaceSettings:
    """Return the settings with absolute paths: a process may change its folder."""
    return WorkspaceSettings(
        workspace=Path.cwd() if workspace is None else Path(workspace).absolute(),
        environ=environ,
        state=state,
        sandbox=sandbox,
        host=host,
        hidden=tuple(real_paths(hidden)),
    )


def elsewhere(session: SessionRecord, host: Host) -> str:
    """Return why a session cannot continue with its files here; "" if it can."""
    if host.has_files_of(session.workspace_host):
        return ""
    return (
        f"its workspace is on {session.workspace_host}, and this machine is {host.files}: go on"
        f" with it there, or share the folder and give both machines one {FILES_HOST_VARIABLE}"
    )
