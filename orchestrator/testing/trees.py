"""Tree assertions: compare a tree with indented text."""

import difflib
import re
import textwrap
from collections.abc import Sequence
from typing import Any, Final

import attrs

from orchestrator.agents import DefinitionError
from orchestrator.delegation import TaskId, Tree, printable
from orchestrator.delegation.tree.rows import Row
from orchestrator.kernel.doors.one_shot import Run
from orchestrator.kernel.doors.session import Session

ANY: Final = "..."
INDENT: Final = 2


@attrs.frozen
class _Node:
    line: str
    children: "tuple[_Node, ...]"


def assert_tree(tree: Run[Any] | Session | Tree, expected: str) -> None:
    """Compare a tree with indented text, one line for each task: `NAME STATUS MODE: ABOUT`.

    A line may leave out parts at its end, which are then not compared. `...` matches any text: a
    name, a status or a part of them. A line with only `...` matches any number of tasks with their
    descendants. So this matches an editor with two researchers and any other children:

        editor succeeded
          researcher[1] succeeded joined
          researcher[2] failed: ...timeout...
          ...

    Args:
        tree: a run, a session, or a tree.
        expected: the expected tree.

    Raises:
        AssertionError: the trees differ; the message is a diff.
    """
    if not isinstance(tree, Tree):
        tree = tree.tree
    wanted = _parsed(expected)
    rows = {row.task: row for row in tree.rows()}
    found = _actual_node(tree, tree.root, rows)
    if not _nodes_match(wanted, [found]):
        diff = _difference(_indented_lines(wanted), _indented_lines((found,)))
        raise AssertionError(f"the trees differ (- expected, + found):\n{diff}")


def _parsed(text: str) -> tuple[_Node, ...]:
    lines = [line for line in textwrap.dedent(text).splitlines() if line.strip()]
    if not lines:
        raise DefinitionError("an expected tree needs at least one line")
    nodes, rest = _nodes(lines, 0)
    if rest:
        raise DefinitionError(f"each level must be indented by {INDENT} spaces: {rest[0]!r} is not")
    return nodes


def _nodes(lines: Sequence[str], depth: int) -> tuple[tuple[_Node, ...], Sequence[str]]:
    nodes: list[_Node] = []
    while lines and _depth(lines[0]) == depth:
        line = lines[0].strip()
        children, lines = _nodes(lines[1:], depth + INDENT)
        nodes.append(_Node(line, children))
    return tuple(nodes), lines


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _actual_node(tree: Tree, task: TaskId, rows: dict[TaskId, Row]) -> _Node:
    row = rows[task]
    line = f"{row.name} {row.status} {row.mode}: {printable(row.about)}"
    return _Node(line, tuple(_actual_node(tree, child, rows) for child in tree.children(task)))


def _nodes_match(wanted: Sequence[_Node], found: Sequence[_Node]) -> bool:
    """Return whether the tasks match, in order."""
    if not wanted:
        return not found
    first, rest = wanted[0], wanted[1:]
    if first.line == ANY and not first.children:
        return any(_nodes_match(rest, found[count:]) for count in range(len(found) + 1))
    return (
        bool(found)
        and _line_matches(first.line, found[0].line)
        and _nodes_match(first.children, found[0].children)
        and _nodes_match(rest, found[1:])
    )


def _line_matches(wanted: str, found: str) -> bool:
    """Return whether a line matches the expected parts."""
    words, colon, about = wanted.partition(":")
    found_words, _, found_about = found.partition(": ")
    pairs = zip(words.split(), [*found_words.split(), "", "", ""], strict=False)
    if not all(_text_matches(word, found_word) for word, found_word in pairs):
        return False
    return not colon or _text_matches(about.strip(), found_about)


def _text_matches(wanted: str, found: str) -> bool:
    pattern = ".*".join(map(re.escape, wanted.split(ANY)))
    return re.fullmatch(pattern, found) is not None


def _indented_lines(nodes: Sequence[_Node], indent: str = "") -> list[str]:
    lines: list[str] = []
    for node in nodes:
        lines += [indent + node.line, *_indented_lines(node.children, indent + " " * INDENT)]
    return lines


def _difference(wanted: Sequence[str], found: Sequence[str]) -> str:
    # A matching line is shown as written, so that the diff has only the differences.
    shown = [
        next(
            (
                candidate
                for candidate in wanted
                if candidate.strip() != ANY and _same(candidate, line)
            ),
            line,
        )
        for line in found
    ]
    return "\n".join(line.rstrip() for line in difflib.ndiff(wanted, shown) if line[0] != "?")


def _same(wanted: str, found: str) -> bool:
    return _depth(wanted) == _depth(found) and _line_matches(wanted, found.strip())
