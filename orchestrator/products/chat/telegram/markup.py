"""Markdown as Telegram messages: plain text with entities, which cannot fail to parse."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, cast

from orchestrator.products.chat.markdown import Run, gap_between, pieces_of
from orchestrator.products.chat.platform import TextPart

LONGEST: Final = 4096
"""The length of a message in UTF-16 units, as Telegram counts."""
MOST_ENTITIES: Final = 100
"""The most entities of a message: Telegram ignores the others."""
ROOM: Final = 128
"""The free units in each part, for a line that marks a repetition."""
STYLES: Final = {"bold": "bold", "italic": "italic", "strike": "strikethrough"}


def split_markdown(text: str) -> Sequence[TextPart]:
    """Return a text as parts of at most 4,096 units; cut formatting continues in the next part."""
    rendered = _Rendered()
    rendered.write(text)
    plain = "".join(rendered.texts)
    entities = sorted(rendered.entities, key=lambda it: int(it["offset"]))
    # The units before each character, and after the last.
    units = [0, *accumulate(2 if ord(it) > 0xFFFF else 1 for it in plain)]
    parts: list[TextPart] = []
    for start, end in _cuts(plain, units, entities):
        shown = plain[start:end].rstrip()
        if shown.strip():
            first, last = units[start], units[start + len(shown)]
            parts.append(TextPart(shown, _clipped(entities, first, last)))
    return parts or [TextPart("…", [])]


class _Rendered:
    """A text without marks, and its entities."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.entities: list[dict[str, Any]] = []
        self._units = 0
        self._last: dict[str, dict[str, Any]] = {}
        """The last entity of each type."""

    def write(self, markdown: str) -> None:
        """Add a text."""
        before = None
        for piece in pieces_of(markdown):
            self._add(gap_between(before, piece) + piece.prefix)
            start = self._units
            for run in piece.runs:
                self._run(run)
            if piece.kind == "quote":
                self._mark("blockquote", start)
            elif piece.kind == "preformatted":
                language = {"language": piece.language} if piece.language else {}
                self._mark("pre", start, **language)
            before = piece

    def _run(self, run: Run) -> None:
        start = self._units
        self._add(run.text)
        if "code" in run.styles:
            # Code has no other style.
            self._mark("code", start)
            return
        for style in sorted(run.styles):
            self._mark(STYLES[style], start)
        if run.url and run.url != run.text:
            if run.url.startswith(("http://", "https://")):
                self._mark("text_link", start, url=run.url)
            elif (address := run.url.removeprefix("mailto:")) != run.text:
                self._add(f" ({address})")

    def _add(self, text: str) -> None:
        self.texts.append(text)
        self._units += utf16_length(text)

    def _mark(self, type_: str, start: int, **more: str) -> None:
        """Add an entity from an offset to here, or continue the one before it."""
        last = self._last.get(type_)
        if last is not None and last["offset"] + last["length"] == start and not more:
            last["length"] = self._units - last["offset"]
        elif self._units > start:
            new = {"type": type_, "offset": start, "length": self._units - start, **more}
            self.entities.append(new)
            self._last[type_] = new


def _cuts(
    text: str, units: Sequence[int], entities: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[int, int]]:
    """Yield the beginning and end of each part: between lines or words, if possible."""
    start = 0
    while start < len(text):
        last = units[start] + LONGEST - ROOM
        more = [it for it in entities if it["offset"] + it["length"] > units[start]]
        if len(more) > MOST_ENTITIES:
            last = min(last, more[MOST_ENTITIES]["offset"])
        end = bisect_right(units, last) - 1
        if end < len(text):
            middle = (start + end) // 2
            for gap in ("\n\n", "\n", " "):
                if (at := text.rfind(gap, middle, end)) > 0:
                    end = at + len(gap)
                    break
        yield start, end
        start = end


def _clipped(
    entities: Sequence[Mapping[str, Any]], first: int, last: int
) -> list[Mapping[str, Any]]:
    """Return the parts of entities between two offsets, relative to the first."""
    found: list[Mapping[str, Any]] = []
    for entity in entities:
        start = max(entity["offset"], first)
        end = min(entity["offset"] + entity["length"], last)
        if start < end:
            found.append({**entity, "offset": start - first, "length": end - start})
    return found


def utf16_length(text: str) -> int:
    """Return the length of a text as Telegram counts."""
    return len(text.encode("utf-16-le", errors="surrogatepass")) // 2


def marked(part: TextPart, mark: str) -> TextPart:
    """Return a part with a line before its text."""
    if not mark:
        return part
    before = f"{mark}\n\n"
    shift = utf16_length(before)
    entities = cast("Sequence[Mapping[str, Any]]", part.formatting or ())
    moved = [{**entity, "offset": entity["offset"] + shift} for entity in entities]
    return TextPart(before + part.text, moved)
