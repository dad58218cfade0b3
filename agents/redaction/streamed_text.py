"""Redacts text that comes in pieces.

Emitted text cannot be withdrawn, and half a secret does not look like one. So text that may be the
beginning of a secret is held back until that is decided. The reader gets the rest with the whole
text, which is redacted by itself.
"""

import re
from itertools import chain
from typing import Final

from agents.redaction.key_shapes import KEY_PREFIXES
from agents.redaction.named_values import ANY_CASE, SECRET_NAME, SECRET_NAME_WORDS
from agents.redaction.redactor import Redactor

CONTEXT: Final = 600
"""How many emitted characters are searched again: a value is recognized by its name."""
MAX_HELD_BACK: Final = 4000
"""How many characters may be held back before nothing more is emitted."""
PIECE: Final = 1000
MAX_ROUNDS: Final = 10
"""How many times the end is moved back before all of a text is held back."""
_PREFIXES: Final = (*KEY_PREFIXES, "-----BEGIN ")
_PARTIAL_PREFIXES: Final = frozenset(
    prefix[:length] for prefix in _PREFIXES for length in range(1, len(prefix))
)
_LAST_WORD: Final = re.compile(
    r"(?:(?<=\\[nrt])|(?<![A-Za-z0-9\\]))[A-Za-z_.-]{1,11}\Z"
)
_LONGEST_WORD: Final = 12
_MAY_BE_KEY: Final = re.compile(
    "|".join(map(re.escape, KEY_PREFIXES)) + r"|:/|:\\|[a-z][A-Z]|[0-9+/=]"
)
_DELIMITERS: Final = " \n\t\r\"'<>"
_UNFINISHED: Final = (
    # The value of a header, a login of curl, the content of an XML element.
    (
        ("bearer", "basic"),
        re.compile(r"(?:bearer|basic)[ \t]+(?P<held>[A-Za-z0-9._~+/=-]*)\Z", ANY_CASE),
    ),
    (
        ("curl",),
        re.compile(
            r"\bcurl\b.{0,200}?[ \t]"
            r"(?P<held>(?:-u|--user)[ \t=]*\\{0,15}[\"']?[^\s\"'\\]*)\Z",
            re.DOTALL,
        ),
    ),
    ((">",), re.compile(rf"{SECRET_NAME}>(?P<held>[^<>\s]*(?:<[^<>]*)?)\Z", ANY_CASE)),
    # A private key, and the lines of one whose beginning was not part of the text.
    (
        ("-----begin ",),
        re.compile(
            r"(?P<held>-----BEGIN [A-Z0-9 ]{0,40}(?:\Z|PRIVATE KEY)"
            r"(?!.*-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----))",
            re.DOTALL,
        ),
    ),
    (
        ("",),
        re.compile(
            r"(?P<held>(?:(?<=\\[nr])|(?<![A-Za-z0-9+/=\\]))[A-Za-z0-9+/=]{16,}+"
            # Atomic, not possessive: before 3.11.5, Python repeats groups wrongly.
            r"(?>(?:(?>(?:\s|\\+[nr])+)[A-Za-z0-9+/=]{16,}+)*)"
            r"(?:\\+\Z|(?>(?:\s|\\+[nr])+)"
            r"(?:[A-Za-z0-9+/=]*+|-{1,5}(?:[A-Z][A-Z0-9 ]*-{0,4})?))?)\Z"
        ),
    ),
)
"""Secrets that are undecided while they reach to the end of the text: marks, and a pattern."""
_NAMED: Final = (
    re.compile(rf"{SECRET_NAME}\\{{0,15}}[\"']?[ \t]*(?:=>|:=|[:=])", ANY_CASE),
    re.compile(
        rf"(?:--[\w.-]*|\blogin[ \t]+\S{{1,80}}[ \t]+[\w.-]*){SECRET_NAME}[ \t]+",
        ANY_CASE,
    ),
)


def without_unfinished_secret(text: str, redactor: Redactor) -> str:
    """Return a text that was broken off, without an end that may be half a secret.

    The rest is not redacted here: it is whole, and is redacted as such.
    """
    # Nothing further back is undecided in a stream either.
    start = max(0, len(text) - MAX_HELD_BACK - CONTEXT)
    return text[: start + StreamRedactor(redactor).decided_end(text[start:])]


class StreamRedactor:
    """Redacts one text, piece by piece."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._emitted = ""
        """The last emitted characters, before redaction."""
        self._held_back = ""
        self._is_stopped = False

    def add(self, text: str) -> str:
        """Add a piece of the text, and return what may be emitted now."""
        # In small pieces: the search is slower than linear.
        pieces = [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
        return "".join(map(self._add, pieces))

    def _add(self, text: str) -> str:
        if self._is_stopped:
            return ""
        begin = len(self._emitted)
        known = self._emitted + self._held_back + text
        end = max(begin, self.decided_end(known))
        if len(known) - end > MAX_HELD_BACK:
            # Searching so much again and again takes too long.
            self._is_stopped = True
        emitted = self._redacted(known[:end]) if end > begin else ""
        self._held_back = known[end:]
        self._emitted = known[max(0, end - CONTEXT) : end]
        return emitted

    def decided_end(self, text: str) -> int:
        """Return the end of the longest beginning of a text in which nothing is undecided."""
        end = len(text)
        for _ in range(MAX_ROUNDS):
            start = self._undecided_start(text[:end])
            if start == end:
                return end
            end = start
        return 0

    def _redacted(self, text: str) -> str:
        """Return the new part of a text, without its secrets."""
        if not self._redactor.may_hold_secret(text.encode(errors="replace")):
            return text[len(self._emitted) :]
        before, after = map(self._redactor.redact, (self._emitted, text))
        if not after.startswith(before):
            # Emitted text turns out to be part of a secret: nothing after it is emitted.
            self._is_stopped = True
            return ""
        return after[len(before) :]

    def _undecided_start(self, text: str) -> int:
        """Return the offset of the first character that may belong to an unfinished secret."""
        end = len(text) - self._redactor.partial_secret_length(text)
        word = _LAST_WORD.search(text, max(0, len(text) - _LONGEST_WORD))
        if word is not None and word[0] in _PARTIAL_PREFIXES:
            end = min(end, word.start())
        word_start = _word_start(text, len(text))
        if _MAY_BE_KEY.search(text, word_start):
            end = min(end, word_start)
        low = text.lower()
        for marks, pattern in _UNFINISHED:
            if any(mark in low for mark in marks) and (found := pattern.search(text)):
                end = min(end, found.start("held"))
        if any(name in low for name in SECRET_NAME_WORDS):
            end = _undecided_value_start(text, end)
        # A word is held back as a whole.
        return end if end == len(text) else _word_start(text, end)


def _undecided_value_start(text: str, end: int) -> int:
    """Return the offset of the first undecided value after a secret name."""
    names = chain.from_iterable(pattern.finditer(text, 0, end) for pattern in _NAMED)
    for value in sorted((name.end() for name in names), reverse=True):
        # The line after a value decides about it, too.
        if value <= text.rfind("\n", 0, max(0, text.rfind("\n", 0, end))):
            break
        end = min(end, _word_start(text, value))
    return end


def _word_start(text: str, end: int) -> int:
    """Return the offset of the beginning of the word before an offset."""
    return 1 + max(text.rfind(blank, 0, end) for blank in _DELIMITERS)
