"""A server of the official SDK that has two skills (SEP-2640), on stdio."""

import hashlib
from collections.abc import Sequence
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.extension import Extension, MethodBinding, ResourceBinding
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.resources import TextResource
from mcp_types import PaginatedRequestParams

REFUNDS = """---
name: refunds
description: Refund a customer
license: MIT
metadata:
  version: 2.1
---

Ask for the number of the order, and read references/limits.md.
"""
SKILLS = {
    "skill://acme/refunds": {
        "SKILL.md": REFUNDS,
        "references/limits.md": "At most 50 euros.",
        "scripts/pay.py": "print('paid')",
    },
    "skill://audits": {"SKILL.md": "---\nname: audits\ndescription: Audit\n---\nCount twice.\n"},
}
FRONT_MATTER: dict[str, dict[str, Any]] = {
    "skill://acme/refunds": {
        "name": "refunds",
        "description": "Refund a customer",
        "license": "MIT",
        "metadata": {"version": 2.1},
    },
    "skill://audits": {"name": "audits", "description": "Audit"},
}


def entry(root: str) -> dict[str, Any]:
    files = [
        {
            "uri": f"{root}/{path}",
            "digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}",
            "size": len(text.encode()),
        }
        for path, text in SKILLS[root].items()
    ]
    return {"uri": f"{root}/SKILL.md", "frontmatter": FRONT_MATTER[root], "resources": files}


async def list_skills(  # noqa: RUF029 (the SDK awaits it)
    _context: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None
) -> dict[str, Any]:
    """Return a page with one skill."""
    roots = sorted(SKILLS, reverse=True)
    at = int(params.cursor) if params is not None and params.cursor else 0
    page: dict[str, Any] = {"skills": [entry(roots[at])], "ttlMs": 0, "cacheScope": "public"}
    return page | ({"nextCursor": str(at + 1)} if at + 1 < len(roots) else {})


class Skills(Extension):
    """Declares the skills, and serves their files as resources."""

    identifier = "io.modelcontextprotocol/skills"

    def methods(self) -> Sequence[MethodBinding]:
        return [MethodBinding("skills/list", PaginatedRequestParams, list_skills)]

    def resources(self) -> Sequence[ResourceBinding]:
        return [
            ResourceBinding(TextResource(uri=f"{root}/{path}", name=path, text=text))
            for root, files in SKILLS.items()
            for path, text in files.items()
        ]


server = MCPServer("skills", extensions=[Skills()])


@server.tool()
def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded {order}"


if __name__ == "__main__":
    server.run()
