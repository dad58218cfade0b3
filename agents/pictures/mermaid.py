"""Diagrams as Mermaid flowcharts, as many Markdown viewers draw them."""

from collections.abc import Iterator
from typing import Any, Final

from orchestrator.agents.agent import Agent
from orchestrator.agents.pictures.diagram import Box, Frame, Node, Row, diagram_of

INDENT: Final = "  "


def escaped(words: str) -> str:
    """Return words that Mermaid only shows: it reads HTML, and its own entities begin with '#'."""
    return "".join(
        character
        if character.isalnum() or character in " .,:;!?-_/()×·↓✓✗◐⊘…≤"
        else f"#{ord(character)};"
        for character in words
    )


def mermaid(agent: Agent[Any, Any]) -> str:
    """Return a flowchart of an agent: solid arrows pass outputs on, dotted ones delegate."""
    diagram = diagram_of(agent)
    chart = _Chart()
    inside = list(chart.node(diagram.body, INDENT))
    first, last = chart.ends[id(diagram.body)]
    return "\n".join(
        [
            "flowchart LR",
            f"{INDENT}input(( )) -->|{_quoted(diagram.takes)}| {first}",
            *inside,
            f"{INDENT}{last} -->|{_quoted(diagram.gives)}| output(( ))",
        ]
    )


class _Chart:
    """Gives each box and frame an id, and writes their lines."""

    def __init__(self) -> None:
        self._names = 0
        self.ends: dict[int, tuple[str, str]] = {}
        """The ids that an arrow to a node, and an arrow from it, has."""

    def node(self, node: Node, indent: str) -> Iterator[str]:
        if isinstance(node, Box):
            yield from self._box(node, indent)
        elif isinstance(node, Row):
            yield from self._row(node, node.types, indent)
        else:
            yield from self._frame(node, indent)

    def _new_id(self, node: Node) -> str:
        self._names += 1
        name = f"n{self._names}"
        self.ends[id(node)] = (name, name)
        return name

    def _box(self, box: Box, indent: str) -> Iterator[str]:
        name = self._new_id(box)
        lines = [box.agent, box.label, box.model, box.tools, *box.limits]
        label = "<br/>".join(escaped(line) for line in lines if line)
        shape = f'[["{label}"]]' if box.is_stacked else f'["{label}"]'
        yield f"{indent}{name}{shape}"
        for delegate in box.delegates:
            yield from self.node(delegate, indent)
            yield f"{indent}{name} -.-> {self.ends[id(delegate)][0]}"

    def _row(self, row: Row | Frame, types: tuple[str, ...], indent: str) -> Iterator[str]:
        for part in row.parts:
            yield from self.node(part, indent)
        for before, after, written in zip(row.parts, row.parts[1:], types, strict=False):
            source, target = self.ends[id(before)][1], self.ends[id(after)][0]
            yield f"{indent}{source} -->|{_quoted(written)}| {target}"
        ends = self.ends[id(row.parts[0])][0], self.ends[id(row.parts[-1])][1]
        self.ends.setdefault(id(row), ends)

    def _frame(self, frame: Frame, indent: str) -> Iterator[str]:
        name = self._new_id(frame)
        title = escaped(" · ".join(filter(None, (frame.title, frame.note))))
        yield f'{indent}subgraph {name}["{title}"]'
        inner = indent + INDENT
        if frame.flow == "row":
            yield from self._row(frame, frame.types, inner)
        else:
            for part in frame.parts:
                yield from self.node(part, inner)
        if frame.flow == "loop" and len(frame.parts) == 2:
            first, second = (self.ends[id(part)][0] for part in frame.parts)
            yield f"{inner}{first} -->|{_quoted(frame.types[0])}| {second}"
            yield f"{inner}{second} -->|{_quoted(frame.types[1])}| {first}"
        yield f"{indent}end"


def _quoted(words: str) -> str:
    return f'"{escaped(words)}"'
