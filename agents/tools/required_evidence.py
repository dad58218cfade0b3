"""Checks that require evidence of a task: a file that it wrote, a command that succeeded.

They are for `Agent(checks=[...])`: an answer without the evidence is sent back to the model.
"""

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from orchestrator.agents.errors import DefinitionError, OutputError
from orchestrator.agents.tools.evidence import Evidence
from orchestrator.agents.tools.task_context import TaskContext

EvidenceCheck = Callable[[TaskContext[Any], object], None]


def wrote(path: str) -> EvidenceCheck:
    """Return a check that the task has written a file with its tools.

    Args:
        path: the path in the workspace, or a pattern such as `reports/*.md`.
    """
    _require_text("wrote", path)

    def check(task: TaskContext[Any], _: object) -> None:
        files = _evidence(task).files
        if not any(fnmatchcase(it.path, path) for it in files):
            raise OutputError(f"you have not written {path}: write it, then answer again")

    return check


def ran(command: str, *, exit_code: int = 0) -> EvidenceCheck:
    """Return a check that the last run of a command ended with an exit code.

    Args:
        command: a text in the command line, such as `pytest`.
        exit_code: the required exit code.
    """
    _require_text("ran", command)

    def check(task: TaskContext[Any], _: object) -> None:
        runs = [it for it in _evidence(task).commands if command in it.command]
        if not runs:
            raise OutputError(f"you have not run {command}: run it, then answer again")
        if runs[-1].exit_code != exit_code:
            raise OutputError(
                f"{command} must end with exit code {exit_code}, and you {runs[-1]}: correct that,"
                " run it again, then answer again"
            )

    return check


def _evidence(task: TaskContext[Any]) -> Evidence:
    return task.evidence or Evidence()


def _require_text(check: str, text: object) -> None:
    if not isinstance(text, str) or not text.strip():
        raise DefinitionError(f"{check}() needs a text, and got {text!r}")
