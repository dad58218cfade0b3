"""Text that comes in pieces, without the secrets in it.

What is told cannot be taken back, and half a secret does not look like one. So what could be the
beginning of one is held back until it is known what it is. Whoever keeps the whole tells the rest.
"""

import re
from itertools import chain
from typing import Final

from agents.redaction.key_shapes import KEY_PREFIXES
from agents.redaction.named_values import ANY_CASE, SECRET_NAME, SECRET_NAME_WORDS
from agents.redaction.redactor import Redactor

CONTEXT: Final = 600
"""How many characters are looked at that were told before: a value is known by its name."""
LONGEST: Final = 4000
"""How much may be held back before nothing more is told."""
PART: Final = 1000
LOOKS: Final = 10
"""How often a text is looked at before all of it is held back."""
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
    # A header's value, a login of curl, what stands in an element of XML.
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
    # A private key, and the lines of one whose beginning nobody has shown.
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
            r"(?:(?:\s|\\+[nr])++[A-Za-z0-9+/=]{16,}+)*+"
            r"(?:\\+\Z|(?:\s|\\+[nr])++(?:[A-Za-z0-9+/=]*+|-{1,5}(?:[A-Z][A-Z0-9 ]*-{0,4})?))?)\Z"
        ),
    ),
)
"""What is open as long as it reaches to the end: what must be there for it, and the pattern."""
_NAMED: Final = (
    re.compile(rf"{SECRET_NAME}\\{{0,15}}[\"']?[ \t]*(?:=>|:=|[:=])", ANY_CASE),
    re.compile(
        rf"(?:--[\w.-]*|\blogin[ \t]+\S{{1,80}}[ \t]+[\w.-]*){SECRET_NAME}[ \t]+",
        ANY_CASE,
    ),
)


class StreamRedactor:
    """One text, as far as it may be told."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._before = ""
        """The last of what was told, as it was said."""
        self._held = ""
        self._is_silent = False

    def add(self, text: str) -> str:
        """Take some more of the text, and return what may be told now."""
        # A part at a time: to look at a text takes longer than it is long.
        parts = [text[at : at + PART] for at in range(0, len(text), PART)]
        return "".join(map(self._add, parts))

    def _add(self, text: str) -> str:
        if self._is_silent:
            return ""
        begin = len(self._before)
        said = self._before + self._held + text
        end = max(begin, self._safe_end(said))
        if len(said) - end > LONGEST:
            # To look at so much again and again takes too long.
            self._is_silent = True
        told = self._redacted(said[:end]) if end > begin else ""
        self._held = said[end:]
        self._before = said[max(0, end - CONTEXT) : end]
        return told

    def _safe_end(self, said: str) -> int:
        """Return how much of a text can be judged by itself: nothing in it is open."""
        end = len(said)
        for _ in range(LOOKS):
            known = self._undecided_start(said[:end])
            if known == end:
                return end
            end = known
        return 0

    def _redacted(self, said: str) -> str:
        """Return what is new in a text, without its secrets."""
        if not self._redactor.may_hold_secret(said.encode(errors="replace")):
            return said[len(self._before) :]
        before, after = map(self._redactor.redact, (self._before, said))
        if not after.startswith(before):
            # What was told turns out to be part of a secret: nothing is told behind it.
            self._is_silent = True
            return ""
        return after[len(before) :]

    def _undecided_start(self, said: str) -> int:
        """Return where that begins of which nobody knows yet what it will be."""
        end = len(said) - self._redactor.partial_secret_length(said)
        word = _LAST_WORD.search(said, max(0, len(said) - _LONGEST_WORD))
        if word is not None and word[0] in _PARTIAL_PREFIXES:
            end = min(end, word.start())
        run = _word_start(said, len(said))
        if _MAY_BE_KEY.search(said, run):
            end = min(end, run)
        low = said.lower()
        for marks, pattern in _UNFINISHED:
            if any(mark in low for mark in marks) and (found := pattern.search(said)):
                end = min(end, found.start("held"))
        if any(name in low for name in SECRET_NAME_WORDS):
            end = _undecided_value_start(said, end)
        # Where a part of it is open, the whole is.
        return end if end == len(said) else _word_start(said, end)


def _undecided_value_start(said: str, end: int) -> int:
    """Return where the first value begins that stands under a name and is open."""
    found = chain.from_iterable(it.finditer(said, 0, end) for it in _NAMED)
    for value in sorted((it.end() for it in found), reverse=True):
        # It is judged by the line behind it, too.
        if value <= said.rfind("\n", 0, max(0, said.rfind("\n", 0, end))):
            break
        end = min(end, _word_start(said, value))
    return end


def _word_start(said: str, end: int) -> int:
    """Return where the word begins that stands before a place."""
    return 1 + max(said.rfind(blank, 0, end) for blank in _DELIMITERS)
