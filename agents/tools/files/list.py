"""The tool `list_files`: the files and folders of the workspace. Links are shown, not followed."""

import os
import stat
from contextlib import closing
from typing import Final

from orchestrator.agents.tools.files.dir_entry import escape_unprintable, file_kind
from orchestrator.agents.tools.files.glob import Glob
from orchestrator.agents.tools.files.walk import FoundPath, Walk
from orchestrator.agents.tools.files.workspace import current_workspace
from orchestrator.agents.tools.tool import tool

MAX_LISTED: Final = 500
MAX_CHARACTERS: Final = 40_000
"""The most characters of one answer: below the limit of tools."""


@tool(idempotent=True, machine="read")
def list_files(path: str = ".", pattern: str = "*", *, hidden: bool = False) -> str:
    """List files and folders in the workspace, with sizes.

    Args:
        path: a folder, relative to the workspace.
        pattern: which to list: `*` all in that folder, `**/*.py` at any depth below it.
        hidden: list also what begins with a dot.
    """
    found: list[str] = []
    left_out = 0
    characters_left = MAX_CHARACTERS
    workspace = current_workspace()
    with workspace.find(path) as folder:
        walk = Walk(Glob(pattern, hidden=hidden), workspace.access)
        with closing(walk.entries(folder)) as entries:
            for entry in entries:
                if len(found) == MAX_LISTED or characters_left < 0:
                    left_out += 1
                    continue
                found.append(_listed(entry))
                characters_left -= len(found[-1]) + 1
    if not found:
        found.append(f"[nothing in {escape_unprintable(folder.path)} fits {pattern!r}]")
    if left_out:
        found.append(f"[{left_out} more; ask for a part of it, by path or pattern]")
    return "\n".join([*found, *walk.notes()])


def _listed(entry: FoundPath) -> str:
    path, status = escape_unprintable(entry.path), entry.status
    if stat.S_ISDIR(status.st_mode):
        return f"{path}/"
    if stat.S_ISREG(status.st_mode):
        return f"{path}  {_size(status.st_size)}"
    if stat.S_ISLNK(status.st_mode):
        try:
            return f"{path} -> {escape_unprintable(os.readlink(entry.name, dir_fd=entry.folder))}"
        except OSError:
            return f"{path}  (a link)"
    return f"{path}  ({file_kind(status)})"


def _size(count: int) -> str:
    if count < 1000:
        return f"{count} B"
    for unit in ("kB", "MB"):
        count_in = count / 1000
        if count_in < 1000:
            return f"{count_in:.1f} {unit}"
        count //= 1000
    return f"{count / 1000:.1f} GB"
