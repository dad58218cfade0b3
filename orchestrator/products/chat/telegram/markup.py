"""Markdown as Telegram messages: plain text with entities, which cannot fail to parse."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, cast

from orchestrator.products.chat.platform import TextPart

if TYPE_CHECKING:
    from telegramify_markdown import MessageEntity
    from telegramify_markdown.config import RenderConfig

LONGEST: Final = 4096
"""The length of a message in UTF-16 units, as Telegram counts."""
ENTITY_FIELDS: Final = ("type", "offset", "length", "url", "language")
ROOM: Final = 128
"""The free units in each part, for a line that marks a repetition."""


def split_markdown(text: str) -> Sequence[TextPart]:
    """Return a text as parts of at most 4,096 units; cut formatting continues in the next part."""
    # Imported late: it takes a tenth of a second, and only sending needs it.
    from telegramify_markdown import convert

    plain, entities = convert(text, latex_escape=False, config=_rendering())
    fields = [_fields_of(it) for it in entities]
    # The units before each character, and after the last.
    units = [0, *accumulate(2 if ord(it) > 0xFFFF else 1 for it in plain)]
    parts: list[TextPart] = []
    for start, end in _cuts(plain, units):
        shown = plain[start:end].rstrip()
        if shown.strip():
            first, last = units[start], units[start + len(shown)]
            parts.append(TextPart(shown, _clipped(fields, first, last)))
    return parts or [TextPart(text.strip()[: LONGEST // 4] or "…")]


def _cuts(text: str, units: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the beginning and end of each part: between lines or words, if possible."""
    start = 0
    while start < len(text):
        end = bisect_right(units, units[start] + LONGEST - ROOM) - 1
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


def _fields_of(entity: "MessageEntity") -> dict[str, Any]:
    fields = {name: getattr(entity, name, None) for name in ENTITY_FIELDS}
    return {name: value for name, value in fields.items() if value is not None}


@cache
def _rendering() -> "RenderConfig":
    from telegramify_markdown.config import RenderConfig

    # The library's own symbols would be words that no agent wrote.
    config = RenderConfig.isolated()
    symbols = config.markdown_symbol
    symbols.heading_level_1 = symbols.heading_level_2 = ""
    symbols.heading_level_3 = symbols.heading_level_4 = ""
    symbols.link = symbols.image = ""
    symbols.unordered_list_item = "•"
    return config


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
