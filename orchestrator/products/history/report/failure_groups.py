"""The failures of a run, grouped by their errors: of a thousand, most are one."""

import re
from collections.abc import Sequence
from typing import Final

import attrs

from orchestrator.delegation import TaskId, Tree, one_line
from orchestrator.delegation.tree.tally import FAILURES

ERROR_CHARACTERS: Final = 300
_NUMBERS: Final = re.compile(r"\d+")


@attrs.frozen
class FailureGroup:
    """The tasks that failed with one error."""

    error: str
    """The error of the first of them, in one line."""
    tasks: Sequence[TaskId]


def failure_groups(tree: Tree) -> list[FailureGroup]:
    """Group the failed tasks of a tree, the most frequent error first.

    Numbers in an error do not make it another one. `viewer/sources/run/failures.js` does the same.
    """
    groups: dict[str, FailureGroup] = {}
    tasks: dict[str, list[TaskId]] = {}
    for task in map(TaskId, tree.graph):
        node = tree[task]
        if node["status"] not in FAILURES:
            continue
        error = one_line(node["error"][:ERROR_CHARACTERS]) or node["status"]
        key = _NUMBERS.sub("#", error)
        members = tasks.setdefault(key, [])
        members.append(task)
        groups.setdefault(key, FailureGroup(error, members))
    return sorted(groups.values(), key=lambda group: -len(group.tasks))
