"""The nodes of a tree: type checkers refuse an attribute that no node has.

It is never run: see `joins.py`.
"""

from typing import Literal, assert_type

from orchestrator import Tree
from orchestrator.agents import Usage
from orchestrator.delegation import Ending, Mode, Reason, Status, TaskId, TaskNode


def reads(tree: Tree, task: TaskId) -> None:
    node = tree[task]
    assert_type(node, TaskNode)
    assert_type(tree.nodes()[task], TaskNode)
    assert_type(node.parent, TaskId | None)
    assert_type(node.mode, Mode)
    assert_type(node.status, Status | Ending)
    assert_type(node.reason, Reason | Literal[""])
    assert_type(node.started, float | None)
    assert_type(node.usage, Usage)
    print(node.usgae)  # type: ignore[attr-defined]  # pyright: ignore
    print(tree[task]["usage"])  # type: ignore[index]  # pyright: ignore
    print({it.stauts for it in tree.nodes().values()})  # type: ignore[attr-defined]  # pyright: ignore
    tree.set_status(task, "succeeded")  # type: ignore[arg-type]  # pyright: ignore
    print(node.ended - node.requested)  # type: ignore[operator]  # pyright: ignore
