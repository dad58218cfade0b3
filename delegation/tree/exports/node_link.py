"""Trees as node-link JSON, which networkx, d3 and others read: every task, every attribute.

`networkx.node_link_graph(data, edges="edges")` reads back an equal graph, with `usage` and `total`
as dictionaries.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from orchestrator.delegation.tree.safe_text import json_text

if TYPE_CHECKING:
    from orchestrator.delegation.tree.tree import Tree


def node_link(tree: "Tree") -> dict[str, Any]:
    """Return the graph as plain values."""
    return {
        "directed": True,
        "multigraph": False,
        "graph": {"root": tree.root, "turns": [list(turn) for turn in tree.turns]},
        "nodes": [{"id": task, **plain(tree, task)} for task in tree],
        "edges": [
            {"source": above, "target": below, "kind": kind} for above, below, kind in tree.edges()
        ],
    }


def plain(tree: "Tree", task: Any) -> dict[str, Any]:
    """Return the attributes of a task as JSON has types for them."""
    attributes: dict[str, Any] = msgspec.to_builtins(tree[task].attributes())
    return attributes


def node_link_json(tree: "Tree") -> str:
    """Return the graph as JSON, whatever its size."""
    return json_text(node_link(tree))
