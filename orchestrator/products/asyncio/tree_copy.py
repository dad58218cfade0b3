"""A copy of a tree: trio's thread changes the tree itself while a session runs."""

from copy import deepcopy

import trio

from orchestrator.delegation import Tree


async def copied(tree: Tree) -> Tree:
    """Return a copy of a tree as it is now. Trio's thread makes it."""
    await trio.lowlevel.checkpoint()
    return deepcopy(tree)
