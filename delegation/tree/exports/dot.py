"""Trees in the language of Graphviz."""

from typing import TYPE_CHECKING, Final

from orchestrator.delegation.tree.exports.boxes import MAX_BOXES, Box, chart_of

if TYPE_CHECKING:
    from orchestrator.delegation.tree.tree import Tree

HEAD: Final = """\
digraph run {
  rankdir=LR;
  node [shape=box, style=rounded, fontname="sans-serif", fontsize=11, color="#59636e"];
  edge [color="#59636e", arrowsize=0.7];"""
COLOURS: Final = {"bad": "#cf222e", "busy": "#0969da", "wait": "#9a6700", "ok": "#1a7f37"}


def dot(tree: "Tree", *, rows: int = MAX_BOXES) -> str:
    """Return a digraph: dashed arrows to detached tasks, bold ones to tasks that need one."""
    chart = chart_of(tree, rows=rows)
    lines = [HEAD]
    for box in chart.boxes:
        lines.append(f"  {box.name} [label={_quoted(*_lines(box))}{_colour(box)}];")
        if box.above is not None:
            style = " [style=dashed]" if box.is_detached else ""
            lines.append(f"  {box.above} -> {box.name}{style};")
    lines += (f"  {need} -> {name} [style=bold, constraint=false];" for need, name in chart.needs)
    if chart.footer:
        lines.append(f"  label={_quoted(chart.footer)};")
    return "\n".join([*lines, "}"])


def _lines(box: Box) -> list[str]:
    title = f"{box.glyph} {box.title}".strip()
    return [title, *filter(None, (box.about, box.collapsed))]


def _colour(box: Box) -> str:
    colour = COLOURS.get(box.style_class, "")
    return f', color="{colour}"' if colour else ""


def _quoted(*lines: str) -> str:
    # A backslash begins an escape of theirs, so \n between lines is put in last.
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(escaped) + '"'
