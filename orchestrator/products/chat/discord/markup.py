"""Markdown as Discord messages.

Discord reads Markdown itself, so a text stays unchanged. It is cut before a code block that fits
into the next message, else between lines, else between words, and never within a character. Code
blocks and bold text that are cut are formatted in both messages.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

LONGEST: Final = 2_000
"""The longest message, counted as JavaScript does: Discord's count is never higher."""
PART: Final = 1_800
"""The longest part, with room for a line before it that marks a repetition."""
FENCE: Final = "```"
_LANGUAGE: Final = re.compile(r"[\w+\-.#]{1,32}", re.ASCII)
_TOKEN: Final = re.compile(r"\\.|`+|\*{1,3}|_{1,2}|~~|\|\|", re.DOTALL)
_SPECIAL: Final = re.compile(r"[\\`*_~|\[\]<@]|(?<=\d)\.(?=\s)|^[>#+-]", re.MULTILINE)
_JOINERS: Final = frozenset("\u200d\ufe0e\ufe0f\u20e3")


def length(text: str) -> int:
    """Return the length of a text as JavaScript counts it."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def plain(text: str) -> str:
    """Return Markdown that shows a text literally, and fits into one message."""
    escaped = _SPECIAL.sub(r"\\\g<0>", text)
    while length(escaped) > LONGEST:
        text = text[: len(text) * 9 // 10]
        escaped = _SPECIAL.sub(r"\\\g<0>", f"{text}…")
    return escaped


def split(text: str, most: int = PART) -> list[str]:
    """Return a text in parts of at most `most`; an empty text has no parts."""
    parts: list[str] = []
    part = ""
    for block in _blocks(text):
        if length(part + block) > most and part.strip():
            parts.append(part)
            part = ""
        if length(part + block) <= most:
            part += block
            continue
        *whole, part = _cut_code(block, most) if block.startswith(FENCE) else _cut_text(block, most)
        parts.extend(whole)
    parts.append(part)
    return [it.strip("\n") for it in parts if it.strip()]


def _blocks(text: str) -> Iterator[str]:
    """Yield the lines of a text, and each code block as one item."""
    block = ""
    for line in text.splitlines(keepends=True):
        is_code = bool(block)
        fences = line.count(FENCE)
        if is_code or line.lstrip(" ").startswith(FENCE):
            block += line if is_code else line.lstrip(" ")
            if fences % 2 == is_code:
                yield block
                block = ""
        else:
            yield line
    if block:
        yield block


def _cut_code(block: str, most: int) -> list[str]:
    """Return a code block as several blocks of the same language."""
    first, _, code = block.partition("\n")
    language = first.removeprefix(FENCE).strip()
    if not _LANGUAGE.fullmatch(language):
        code, language = block.removeprefix(FENCE), ""
    code = code.rstrip()
    code = code.removesuffix(FENCE) if code.endswith(FENCE) else code
    opened = f"{FENCE}{language}\n"
    room = max(1, most - len(opened) - len(FENCE) - 2)
    pieces = [""]
    for line in code.splitlines(keepends=True):
        for piece in _chunks(line, room):
            if length(pieces[-1] + piece) > room:
                pieces.append("")
            pieces[-1] += piece
    return [f"{opened}{it.rstrip()}\n{FENCE}\n" for it in pieces if it.strip()] or [""]


def _cut_text(line: str, most: int) -> list[str]:
    """Return a long line as several, with the same formatting in each."""
    parts: list[str] = []
    opened: list[str] = []
    # Leave room for marks that are closed at the end of a piece and opened in the next.
    for piece in _chunks(line, most - 40):
        start = "".join(opened)
        opened = _open_marks(piece, opened)
        # More marks are not formatting.
        opened = opened[:6]
        parts.append(start + piece.rstrip() + "".join(reversed(opened)))
    return parts or [""]


def _open_marks(text: str, opened: list[str]) -> list[str]:
    """Return the open marks after a text, given the open marks before it."""
    stack = list(opened)
    for found in _TOKEN.finditer(text):
        mark = found.group()
        if mark.startswith("\\"):
            continue
        if stack and stack[-1] == mark:
            stack.pop()
        elif (stack and stack[-1].startswith("`")) or len(mark) > 3:
            continue  # code has no other marks
        elif not _stands_in_word(text, found):
            stack.append(mark)
    return stack


def _stands_in_word(text: str, found: re.Match[str]) -> bool:
    """Return whether a mark is part of a word (`snake_case`), or stands alone: ` * `."""
    before = text[found.start() - 1 : found.start()]
    after = text[found.end() : found.end() + 1]
    is_in_word = found.group().startswith("_") and before.isalnum() and after.isalnum()
    return is_in_word or not after.strip()


def _chunks(text: str, most: int) -> Iterator[str]:
    """Yield a text in pieces, cut at spaces if possible, and never within a character."""
    while length(text) > most:
        end = _longest_prefix(text, most)
        space = max(text.rfind(" ", end // 2, end), text.rfind("\n", end // 2, end))
        cut = space + 1 if space > 0 else max(1, _character_start(text, end))
        yield text[:cut]
        text = text[cut:]
    if text:
        yield text


def _longest_prefix(text: str, most: int) -> int:
    size = 0
    for index, character in enumerate(text):
        size += 1 + (character > "\uffff")
        if size > most:
            return index
    return len(text)


def _character_start(text: str, end: int) -> int:
    """Return the last beginning of a visible character up to `end`."""
    for index in range(end, max(end - 64, 1), -1):
        if not _continues(text, index):
            return index
    return end


def _continues(text: str, index: int) -> bool:
    """Return whether the code point at an index belongs to the character before it."""
    here, before = text[index], text[index - 1]
    if here in _JOINERS or before in {"\u200d", "\\"}:
        return True
    if "\U0001f3fb" <= here <= "\U0001f3ff":  # skin tones
        return True
    if _is_flag_letter(here) and _is_flag_letter(before):
        letters = 0
        while index > letters and _is_flag_letter(text[index - 1 - letters]):
            letters += 1
        return letters % 2 == 1
    return unicodedata.combining(here) != 0


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
