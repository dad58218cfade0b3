"""The Markdown of models as pieces of text with styles, for platforms that do not read Markdown.

Every word arrives. Elements that platforms lack are shown as text: a table as aligned lines, a
picture as a link. HTML and definitions of references are text. Only web and mail addresses become
links.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias

import attrs
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

Kind: TypeAlias = Literal["section", "bullet", "ordered", "quote", "preformatted"]
ITEMS: Final = frozenset({"bullet", "ordered"})
BULLET: Final = "•"
DEEPEST: Final = 8
"""The deepest indentation of a list, as in Slack."""
SCHEMES: Final = ("http://", "https://", "mailto:")
RULE: Final = "―" * 12
STYLES: Final = {"strong": "bold", "em": "italic", "s": "strike"}
_LANGUAGE: Final = re.compile(r"[\w+\-.#]{1,32}", re.ASCII)
_ADDRESS: Final = re.compile(r"https?://[^\s<>\"'\]}*~`]+")
_BEHIND: Final = ".,;:!?_"
"""The punctuation that may follow an address."""


@attrs.frozen
class Run:
    """Characters of one style; a link if it has a URL."""

    text: str
    styles: frozenset[str] = frozenset()
    url: str = ""


@attrs.frozen
class Piece:
    """A paragraph, an item of a list, a quotation, or code."""

    kind: Kind
    runs: tuple[Run, ...]
    indent: int = 0
    """The number of lists around an item's own list."""
    number: int = 1
    """The number of an item."""
    language: str = ""
    """The language of code, if its author names one."""

    @property
    def text(self) -> str:
        return "".join(run.text for run in self.runs)

    @property
    def prefix(self) -> str:
        """The text before an item: its bullet or number."""
        match self.kind:
            case "bullet":
                return f"{'  ' * self.indent}{BULLET} "
            case "ordered":
                return f"{'  ' * self.indent}{self.number}. "
            case "quote" | "section" | "preformatted":
                return ""

    @property
    def plain(self) -> str:
        """Return the piece without styles."""
        if self.kind == "quote":
            return "\n".join(f"> {line}" for line in self.text.splitlines())
        return self.prefix + self.text


def gap_between(before: Piece | None, piece: Piece) -> str:
    """Return the line ends between two pieces."""
    if before is None:
        return ""
    return "\n" if before.kind in ITEMS and piece.kind in ITEMS else "\n\n"


def pieces_of(markdown: str) -> list[Piece]:
    """Return the pieces of a text; a text that is only marks is one paragraph."""
    parser = MarkdownIt("commonmark", {"html": False})
    # A line such as "[ERROR]: disk" would define a reference, and vanish.
    parser.enable(["table", "strikethrough"]).disable("reference")
    tree = SyntaxTreeNode(parser.parse(markdown))
    found = _Reader(re.split(r"\r\n?|\n", markdown)).pieces(tree.children)
    pieces = [it for it in found if it.text.strip() or it.kind in ITEMS]
    if not pieces and markdown.strip():
        return [Piece("section", (Run(markdown.strip()),))]
    return pieces


@attrs.frozen
class _Reader:
    """Reads the nodes of a text."""

    lines: Sequence[str]
    """The lines of the text."""

    def pieces(self, nodes: Sequence[SyntaxTreeNode]) -> Iterator[Piece]:
        """Yield the pieces of nodes."""
        for node in nodes:
            match node.type:
                case "bullet_list" | "ordered_list":
                    yield from self._items(node, 0)
                case "blockquote":
                    yield self._quote(node)
                case "fence" | "code_block":
                    yield _code(node)
                case "table":
                    yield Piece("preformatted", (Run(self._table(node)),))
                case "hr":
                    yield Piece("section", (Run(RULE),))
                case "heading":
                    runs = _runs(node.children, frozenset({"bold"}))
                    yield Piece("section", tuple(runs))
                case _:
                    yield Piece("section", tuple(_runs(node.children)))

    def _items(self, list_: SyntaxTreeNode, indent: int) -> Iterator[Piece]:
        """Yield the items of a list, of its nested lists, and their other content."""
        kind: Kind = "ordered" if list_.type == "ordered_list" else "bullet"
        for item in list_.children:
            runs: list[Run] = []
            others: list[Piece] = []
            for node in item.children:
                if node.type in {"bullet_list", "ordered_list"}:
                    others += self._items(node, min(indent + 1, DEEPEST))
                elif node.type == "paragraph" and not others:
                    # Further paragraphs of an item stay in the item.
                    runs += [Run("\n")] * bool(runs) + [*_runs(node.children)]
                else:
                    others += self.pieces([node])
            number = int(item.info) if kind == "ordered" else 1
            yield Piece(kind, tuple(runs or [Run(" ")]), indent=indent, number=number)
            yield from others

    def _quote(self, node: SyntaxTreeNode) -> Piece:
        """Return a quotation. Platforms allow no lists or code in it, so these become text."""
        runs: list[Run] = []
        for piece in self.pieces(node.children):
            runs += [Run("\n")] * bool(runs)
            match piece.kind:
                case "section":
                    runs += piece.runs
                case "preformatted":
                    runs.append(Run(piece.text, frozenset({"code"})))
                case "bullet" | "ordered":
                    runs += [Run(piece.prefix), *piece.runs]
                case "quote":
                    runs += [Run("> "), *piece.runs]
        return Piece("quote", tuple(runs))

    def _table(self, node: SyntaxTreeNode) -> str:
        """Return a table as lines for a font of one width, or as written if words would be lost."""
        rows = [
            ["".join(map(_flat, _runs(cell.children))) for cell in row.children]
            for part in node.children
            for row in part.children
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            for row in rows
        ]
        lines.insert(1, "  ".join("-" * width for width in widths))
        shown = "\n".join(line.rstrip() for line in lines)
        first, last = node.map or (0, 0)
        written = "\n".join(self.lines[first:last])
        # Markdown ignores the cells of a row that the head has no column for.
        return written if _words(written) - _words(shown) else shown


def _words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text))


def _code(node: SyntaxTreeNode) -> Piece:
    """Return code; the line that opens it is part of it, unless it names a language."""
    opening, code = node.info.strip(), node.content.rstrip("\n")
    language = opening if code and _LANGUAGE.fullmatch(opening) else ""
    text = code if language or not opening else f"{opening}\n{code}"
    return Piece("preformatted", (Run(text),), language=language)


def _flat(run: Run) -> str:
    """Return a run as text, with the address of a link."""
    return run.text if run.url in {"", run.text} else f"{run.text} ({run.url})"


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
