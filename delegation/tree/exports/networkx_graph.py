"""Trees as networkx graphs, for all of its algorithms: every task, every attribute."""

from typing import TYPE_CHECKING

# Only imported for a graph: networkx is the slowest import of all.
import networkx as nx

from orchestrator.delegation.task import TaskId

if TYPE_CHECKING:
    from orchestrator.delegation.tree.tree import Tree


def networkx_graph(tree: "Tree") -> "nx.DiGraph[TaskId]":
    """Return a new graph of the current tree."""
    graph: nx.DiGraph[TaskId] = nx.DiGraph()
    for task, node in tree.nodes().items():
        graph.add_node(task, **node.attributes())
    for above, below, kind in tree.edges():
        graph.add_edge(above, below, kind=kind)
    return graph
