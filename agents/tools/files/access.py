"""The rights of a call on a file, judged on opening, by the path that was walked.

The rules of the call decide, and the sandbox of its task, which also binds its commands.
"""

import os
from collections.abc import Iterator

import attrs

from orchestrator.agents.approved_call import ApprovedCall
from orchestrator.agents.errors import RefusedBy, ToolError
from orchestrator.agents.sandbox.backend import TaskSandbox
from orchestrator.agents.tools.files.dir_entry import escape_unprintable


class FileAccess:
    """Judges the files of one call. Without a call or a sandbox, no rule or wall binds it."""

    def __init__(
        self, call: ApprovedCall | None = None, sandbox: TaskSandbox | None = None
    ) -> None:
        self._call = call
        self._sandbox = sandbox and _within_workspace(sandbox)
        self._hidden_files = _identities(sandbox)
        self._left_out = {"file": 0, "folder": 0}
        self._hidden = 0

    def require(self, path: str, found: str, real: str, *, writes: bool) -> None:
        """Raise `ToolError` if the call must not use what its path has led to."""
        if self._call is not None and not self._call.may_open(found, real):
            raise ToolError(
                f"{escape_unprintable(path)!r} leads to {escape_unprintable(found)!r}, which the"
                " rules of this run do not allow for this call",
                refused_by=RefusedBy.APPROVAL,
            )
        if self._sandbox is None:
            return
        if not self._sandbox.may_read(real):
            raise _hidden(path)
        if writes and not self._sandbox.may_write(real):
            raise ToolError(
                f"{escape_unprintable(path)!r} is read-only in the sandbox of this task"
            )

    def require_visible(self, file: os.stat_result, path: str) -> None:
        """Raise `ToolError` if an open file is hidden by another name."""
        if _identity(file) in self._hidden_files:
            raise _hidden(path)

    def may_meet(self, found: str, real: str, *, is_folder: bool) -> bool:
        """Return whether the call may show an entry of a walk, and count the hidden ones."""
        if self._call is not None and not self._call.may_meet(found, real):
            self._left_out["folder" if is_folder else "file"] += 1
            return False
        if self._sandbox is not None and not self._sandbox.may_read(real):
            self._hidden += 1
            return False
        return True

    def notes(self) -> Iterator[str]:
        """Yield a line for each kind of entry that was left out, with the reason."""
        counts = [
            f"{count} {noun}{'s' * (count != 1)}" for noun, count in self._left_out.items() if count
        ]
        if counts:
            yield (
                "[left out, because the rules of this run deny them or ask about them:"
                f" {' and '.join(counts)}]"
            )
        if self._hidden:
            yield f"[left out, because the sandbox of this task hides them: {self._hidden}]"


def _hidden(path: str) -> ToolError:
    return ToolError(
        f"{escape_unprintable(path)!r} is hidden in the sandbox of this task: no tool of an agent"
        " reads or writes credentials, or the files of the orchestrator itself"
    )


def _within_workspace(sandbox: TaskSandbox) -> TaskSandbox:
    """Return the same sandbox for files of the workspace: a walk meets thousands of them."""
    folder = sandbox.workspace
    hidden = [
        path
        for path in sandbox.hidden
        if path.is_relative_to(folder) or folder.is_relative_to(path)
    ]
    return attrs.evolve(sandbox, hidden=tuple(hidden), visible=())


def _identities(sandbox: TaskSandbox | None) -> frozenset[tuple[int, int]]:
    """Return which files are hidden, whatever they are called."""
    found: set[tuple[int, int]] = set()
    for path in () if sandbox is None else sandbox.hidden:
        try:
            found.add(_identity(path.stat()))
        except OSError:
            continue  # It is not there, and has no other name then.
    return frozenset(found)


def _identity(file: os.stat_result) -> tuple[int, int]:
    return file.st_dev, file.st_ino
