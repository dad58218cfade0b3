r"""Text of models, tools and strangers for a terminal: it is shown, and can do nothing.

A terminal obeys control characters, and characters that are not seen let a text say one thing to a
person and another to a program. The first become blanks, the others are shown as `\u200b`.
"""

import re
from typing import Any, Final

import msgspec

from orchestrator.lazy_pattern import lazy_pattern

ONE_LINE_CHARACTERS: Final = 60

_CONTROLS: Final = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029"
"""Control characters except line ends and tabs, and the other ends of lines."""
_DIRECTIONS: Final = r"\u202a-\u202e\u2066-\u2069"
"""Those that change the direction of the text after them."""
_UNSEEN: Final = (
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2060-\u2065\u206a-\u206f"
    r"\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff"
)
"""Marks, joiners, fillers, variation selectors and tags, which have no width."""
_EMOJI: Final = r"\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff"
_JOINING: Final = r"\u0600-\u0dff"
"""Scripts whose letters are written otherwise beside a joiner: there it is seen."""

CONTROLS: Final = lazy_pattern(f"[{_CONTROLS}{_DIRECTIONS}]")
UNSEEN: Final = lazy_pattern(
    # Characters that belong to an emoji before them, or to two letters, are left unchanged.
    rf"(?<=[{_EMOJI}0-9#*])\ufe0f|(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])"
    rf"|(?<=[{_JOINING}])[\u200c\u200d](?=[{_JOINING}])"
    rf"|([{_UNSEEN}\ud800-\udfff])"
)
OBEYED_OR_UNSEEN: Final = lazy_pattern(rf"[{_CONTROLS}{_DIRECTIONS}{_UNSEEN}]")
"""The characters that a format with escapes escapes. Reading them back restores the text."""


def printable(words: str) -> str:
    """Return a text without control sequences, and with all of its characters to be seen."""
    words = CONTROLS.sub(" ", words)
    return words if words.isascii() else UNSEEN.sub(_shown, words)


def _shown(found: re.Match[str]) -> str:
    return found[0] if found[1] is None else _escape(found[1])


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def one_line(words: str) -> str:
    """Return the beginning of a text, on one line."""
    words = " ".join(printable(words).split())
    if len(words) <= ONE_LINE_CHARACTERS:
        return words
    return words[: ONE_LINE_CHARACTERS - 1] + "…"


def json_text(value: Any) -> str:
    """Return a value as JSON that a terminal may print."""
    return printable_json(msgspec.json.encode(value).decode())


def printable_json(text: str) -> str:
    """Return JSON with escapes in place of characters that a terminal obeys or does not show."""
    # They can only be inside strings.
    return text if text.isascii() and "\x7f" not in text else _escape_json(text)


def _escape_json(text: str) -> str:
    return OBEYED_OR_UNSEEN.sub(lambda found: _json_escape(found[0]), text)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
