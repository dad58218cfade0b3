"""The subject of a call, which approval rules match, computed on the machine that has its files."""

import os
from pathlib import Path

from orchestrator.agents import ToolCall
from orchestrator.agents.approval import Subject


def subject_of(call: ToolCall, workspace: Path) -> Subject:
    """Return the subject of a call for approval rules."""
    command, path = call.arguments.get("command"), call.arguments.get("path")
    relative, real = relative_and_real(path, workspace) if isinstance(path, str) else (None, None)
    return Subject(
        tool=call.name,
        command=command if isinstance(command, str) else None,
        path=relative,
        real_path=real,
    )


def relative_and_real(path: str, workspace: Path) -> tuple[str, str]:
    """Return the path of a file in the workspace, and its real path, all links resolved."""
    if "\0" in path:
        return path, path
    root = os.path.realpath(workspace)
    real = os.path.realpath(os.path.join(root, path))  # noqa: PTH118 (keeps `path` as it is)
    is_inside = os.path.commonpath([root, real]) == root
    return os.path.relpath(real, root) if is_inside else real, real
