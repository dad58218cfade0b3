"""The MCP App that shows the tree of a run beside the result of its call.

A client that declares the extension finds the address of the page with each tool, and the rows of
the tree in the metadata of each result. Not in its structured content: that has the schema of the
agent's answer. The page is the same for all runs, and the client hands it the result.
"""

from contextlib import suppress
from typing import Final

from mcp.server.apps import APP_MIME_TYPE

from orchestrator.delegation import Mode, Tree
from orchestrator.delegation.tree.exports.boxes import Box, chart_of
from orchestrator.ports.errors import OrchestratorError
from orchestrator.products.mcp.server.caller import Caller
from orchestrator.products.mcp.server.results import RUN, Json

URI: Final = "ui://orchestrator/tree.html"
TREE: Final = "orchestrator/tree"
"""The key of a tree in the metadata of a result."""


def tool_meta() -> Json:
    """Return the metadata of a tool whose results the page shows."""
    return {"ui": {"resourceUri": URI}}


def read_page() -> Json:
    """Return the page as a resource. It needs no network, so it declares no domain."""
    # Imported late: only clients that show pages need it.
    from orchestrator.products.mcp.server.tree_page import tree_page

    meta = {"ui": {"prefersBorder": True}}
    page = {"uri": URI, "mimeType": APP_MIME_TYPE, "text": tree_page(TREE), "_meta": meta}
    return {"contents": [page]}


async def add_tree(caller: Caller, result: Json) -> None:
    """Add the current tree to the result of a run, once it is durable."""
    meta: Json = result.get("_meta", {})
    if RUN in meta:
        # A run that was deleted meanwhile still has its answer.
        with suppress(OrchestratorError):
            found = await caller.read_run(meta[RUN])
            meta[TREE] = tree_rows(found.session.tree)
    await caller.wait_durable()


def tree_rows(tree: Tree) -> Json:
    """Return a tree as texts for the page: one row a task, and folded if it is large."""
    chart = chart_of(tree)
    return {"rows": [_row(it) for it in chart.boxes], "footer": chart.footer}


def _row(box: Box) -> Json:
    return {
        "branch": box.row.branch,
        "name": box.title,
        "status": f"{box.glyph} {box.status}".strip(),
        "kind": box.style_class,
        "mode": "" if box.mode == Mode.ROOT else box.mode,
        "time": "" if box.seconds is None else f"{box.seconds:.1f} s",
        "tokens": f"{box.tokens} tok",
        "cost": box.money,
        "about": " · ".join(filter(None, (box.collapsed, box.about))),
    }
