"""A copy of a tree: trio's thread changes the original while a session runs."""

from copy import deepcopy

import trio

from orchestrator.delegation import Tree


async def copied(tree: Tree) -> Tree:
    """Return a copy of the current tree. Called in trio's thread."""
    await trio.lowlevel.checkpoint()
    return deepcopy(tree)
