"""Trees as GraphML, which networkx, Gephi, yEd and others read: every task, every attribute.

`None` is left out, because GraphML has no such value; `usage` and `total` are spread out
(`usage_calls`, ...); lists are JSON. networkx reads back an equal graph.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from orchestrator.agents import Usage
from orchestrator.delegation.tree.exports.xml import escaped

if TYPE_CHECKING:
    from orchestrator.delegation.tree.tree import Tree

HEAD: Final = """\
<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">"""
USED: Final = Usage.__struct_fields__
TYPES: Final = {
    "requested": "double",
    "started": "double",
    "ended": "double",
    "micro_usd": "long",
    **{f"{which}_{name}": "long" for which in ("usage", "total") for name in USED},
}
"""Of those attributes of a node that are no strings."""


def graphml(tree: "Tree") -> str:
    """Return the graph, whatever its size."""
    return "\n".join(_lines(tree))


def flat(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a node as GraphML has types for them."""
    found: dict[str, Any] = {}
    for name, value in node.items():
        if isinstance(value, Usage):
            found |= {f"{name}_{part}": getattr(value, part) or 0 for part in USED}
        elif value is not None:
            found[name] = value
    return found


def _lines(tree: "Tree") -> Iterator[str]:
    nodes = {task: flat(node.attributes()) for task, node in tree.nodes().items()}
    names = dict.fromkeys(name for node in nodes.values() for name in node)
    keys = {name: f"d{number}" for number, name in enumerate(names)}
    yield HEAD
    for name, key in keys.items():
        kind = TYPES.get(name, "string")
        yield f'<key id="{key}" for="node" attr.name="{name}" attr.type="{kind}"/>'
    yield '<key id="kind" for="edge" attr.name="kind" attr.type="string"/>'
    for name in ("root", "turns"):
        yield f'<key id="{name}" for="graph" attr.name="{name}" attr.type="string"/>'
    yield '<graph edgedefault="directed">'
    yield _data("root", tree.root)
    yield _data("turns", msgspec.json.encode(tree.turns).decode())
    for task, node in nodes.items():
        data = "".join(_data(keys[name], value) for name, value in node.items())
        yield f'<node id="{escaped(task)}">{data}</node>'
    for above, below, kind in tree.edges():
        ends = f'source="{escaped(above)}" target="{escaped(below)}"'
        yield f"<edge {ends}>{_data('kind', kind)}</edge>"
    yield "</graph>\n</graphml>"


def _data(key: str, value: object) -> str:
    text = escaped(value) if isinstance(value, str) else repr(value)
    return f'<data key="{key}">{text}</data>'
