"""The text of a call that people see before they approve it: no character is invisible.

A text that is shown in another form has its digest beside it. So two texts never look the same, and
an approval of one is never an approval of the other.
"""

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

import msgspec

SHOWN: Final = 4_000
"""How many characters of a text people are shown."""
LONGEST_RUN: Final = 20
"""The number of blanks in a row that are shown unchanged: more may push text out of sight."""

_BLANK_RUN: Final = re.compile(rf"[ \t]{{{LONGEST_RUN + 1},}}")
_EMPTY_LINES: Final = re.compile(r"\n(?:[ \t]*\n){3,}")
# These are letters or signs by their kind, and look empty.
_BLANK_LETTERS: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\ufe0f\uffa0")
_UNSEEN_KINDS: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
_MARKS: Final = "⟨⟩"


def visible(text: str) -> str:
    """Return a text with marks for invisible characters: `⟨2100 blanks⟩`, `⟨U+200B⟩`."""
    marked = _marked(text)
    if marked == text and not any(mark in text for mark in _MARKS):
        return text
    return f"{marked} ⟨sha256 {digest_of(text)}⟩"


def visible_in_short(text: str, most: int = SHOWN) -> str:
    """Return the same of a long text's beginning and end, and how much is between them."""
    if len(text) <= most:
        return visible(text)
    end = most // 4
    begin = most - end
    return (
        f"{_marked(text[:begin])} ⟨{len(text) - most} characters are not shown⟩"
        f" {_marked(text[-end:])} ⟨sha256 {digest_of(text)}⟩"
    )


def _marked(text: str) -> str:
    marked = text if text.isascii() and text.isprintable() else _with_marks(text)
    marked = _BLANK_RUN.sub(lambda run: f"⟨{len(run[0])} blanks⟩", marked)
    return _EMPTY_LINES.sub(lambda run: f"\n⟨{run[0].count(chr(10)) - 1} empty lines⟩\n", marked)


def _with_marks(text: str) -> str:
    return "".join(f"⟨U+{ord(char):04X}⟩" if _is_unseen(char) else char for char in text)


def _is_unseen(char: str) -> bool:
    if char in " \t\n" or " " < char <= "~":
        return False
    return char in _BLANK_LETTERS or unicodedata.category(char) in _UNSEEN_KINDS


def shown_arguments(arguments: Mapping[str, Any]) -> str:
    """Return the arguments of a call as JSON, with long texts shortened."""
    most = SHOWN // max(1, len(arguments))
    shown = {
        name: visible_in_short(value, most) if isinstance(value, str) else value
        for name, value in arguments.items()
    }
    return visible_in_short(as_json(shown), 3 * SHOWN)


def as_json(arguments: Mapping[str, Any]) -> str:
    return msgspec.json.encode(arguments, order="deterministic").decode()


def digest_of(text: str) -> str:
    # 128 bits: two texts with the same digest cannot be found.
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]
