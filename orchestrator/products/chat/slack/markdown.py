"""Converts the Markdown of models to Slack's rich text.

Elements that Slack lacks are shown as text: a table as aligned lines, a picture as a link. HTML is
text. Only web and mail addresses become links.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import attrs
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from orchestrator.products.chat.slack.rich_text import Kind, Piece, RichText, Run, split_pieces

DEEPEST: Final = 8
"""The deepest indentation of a list in Slack."""
SCHEMES: Final = ("http://", "https://", "mailto:")
RULE: Final = Run("―" * 12)
STYLES: Final = {"strong": "bold", "em": "italic", "s": "strike"}
_ADDRESS: Final = re.compile(r"https?://[^\s<>\"'\]}*~`]+")
_BEHIND: Final = ".,;:!?_"
"""The punctuation that may follow an address."""


def rich_texts(markdown: str) -> list[RichText]:
    """Return a text as messages, each short enough for Slack."""
    parser = MarkdownIt("commonmark", {"html": False})
    parser.enable(["table", "strikethrough"])
    tree = SyntaxTreeNode(parser.parse(markdown))
    return split_pieces([it for it in _pieces(tree.children) if it.text.strip()])


def _pieces(nodes: Sequence[SyntaxTreeNode]) -> Iterator[Piece]:
    for node in nodes:
        match node.type:
            case "bullet_list" | "ordered_list":
                yield from _items(node, 0)
            case "blockquote":
                yield _quote(node)
            case "fence" | "code_block":
                yield Piece("preformatted", (Run(node.content.rstrip("\n")),))
            case "table":
                yield Piece("preformatted", (Run(_table(node)),))
            case "hr":
                yield Piece("section", (RULE,))
            case "heading":
                runs = _runs(node.children, frozenset({"bold"}))
                yield Piece("section", tuple(runs))
            case _:
                yield Piece("section", tuple(_runs(node.children)))


def _items(list_: SyntaxTreeNode, indent: int) -> Iterator[Piece]:
    """Yield the items of a list, of its nested lists, and their other content."""
    kind: Kind = "ordered" if list_.type == "ordered_list" else "bullet"
    first = int(list_.attrs.get("start", 1))
    for number, item in enumerate(list_.children, first):
        runs: list[Run] = []
        others: list[Piece] = []
        for node in item.children:
            if node.type in {"bullet_list", "ordered_list"}:
                others += _items(node, min(indent + 1, DEEPEST))
            elif node.type == "paragraph" and not others:
                # Further paragraphs of an item stay in the item.
                runs += [Run("\n")] * bool(runs) + [*_runs(node.children)]
            else:
                others += _pieces([node])
        runs = runs or [Run(" ")]
        yield Piece(kind, tuple(runs), indent=indent, number=number)
        yield from others


def _quote(node: SyntaxTreeNode) -> Piece:
    """Return a quotation. Slack allows no lists or code in it, so these become text."""
    runs: list[Run] = []
    for piece in _pieces(node.children):
        runs += [Run("\n")] * bool(runs)
        match piece.kind:
            case "section":
                runs += piece.runs
            case "preformatted":
                runs.append(Run(piece.text, frozenset({"code"})))
            case "bullet" | "ordered" | "quote":
                runs.append(Run(piece.plain))
    return Piece("quote", tuple(runs))


def _table(node: SyntaxTreeNode) -> str:
    """Return a table as lines for a font of one width."""
    rows = [
        ["".join(run.text for run in _runs(cell.children)) for cell in row.children]
        for part in node.children
        for row in part.children
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def _runs(nodes: Sequence[SyntaxTreeNode], styles: frozenset[str] = frozenset()) -> Iterator[Run]:
    for node in nodes:
        match node.type:
            case "softbreak" | "hardbreak":
                yield Run("\n", styles)
            case "code_inline":
                yield Run(node.content, styles | {"code"})
            case "strong" | "em" | "s":
                yield from _runs(node.children, styles | {STYLES[node.type]})
            case "link":
                text = "".join(run.text for run in _runs(node.children))
                yield _link(text, str(node.attrs.get("href", "")), styles)
            case "image":
                yield _link(node.content, str(node.attrs.get("src", "")), styles)
            case "text":
                yield from _with_links(Run(node.content, styles))
            case _:
                yield from _runs(node.children, styles)


def _link(text: str, url: str, styles: frozenset[str]) -> Run:
    if url.startswith(SCHEMES):
        return Run(text or url, styles, url)
    return Run(f"{text} ({url})" if url and url != text else text, styles)


def _with_links(run: Run) -> Iterator[Run]:
    """Yield a text with its addresses as links, since Slack does not find them itself."""
    at = 0
    for found in _ADDRESS.finditer(run.text):
        address = found[0].rstrip(_BEHIND)
        while address.endswith(")") and address.count(")") > address.count("("):
            address = address[:-1].rstrip(_BEHIND)
        if run.text[at : found.start()]:
            yield attrs.evolve(run, text=run.text[at : found.start()])
        yield attrs.evolve(run, text=address, url=address)
        at = found.start() + len(address)
    if run.text[at:]:
        yield attrs.evolve(run, text=run.text[at:])
