"""Redacts text that comes in pieces.

Emitted text cannot be withdrawn, and half a secret does not look like one. So the value that may
become a secret is held back until that is decided, and nothing before it. Each kind of secret says
where such a value begins and how long it can stay undecided: no text is held back for good, in
whatever script it is written. The reader gets the rest with the whole text, which is redacted by
itself.
"""

import re
import sys
from collections.abc import Iterator
from typing import Final

import attrs

from orchestrator.agents.redaction.key_shapes import KEY_PREFIXES
from orchestrator.agents.redaction.named_values import (
    ANY_CASE,
    MAX_UNDECIDED,
    NAME_BEGINNINGS,
    REDACTED,
    SECRET_NAME,
    lowered,
    name_positions,
    unfinished_value,
)
from orchestrator.agents.redaction.private_keys import IN_BASE64, MAX_PEM_LINE, start_of_key_lines
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.redaction.shaped_secrets import WORD_START

CONTEXT: Final = 600
"""How many emitted characters are searched again: a value is recognized by its name."""
NAME_DISTANCE: Final = 200
"""How many characters of a name, its type and blanks may stand before a value in a stream."""
MAX_HELD_BACK: Final = 512
"""The most characters that are held back. The middle of a longer secret is dropped, and so is a
longer password of an address, which is recognized only at its end.

A secret is shown in part if its first characters, as many as this, have no sign of it: lines of a
private key without its first line, before the last ones; and a token (JWT) whose first part alone
is as long.
"""
KEPT: Final = 240
"""How many characters are kept of both ends of a long secret, to find its end."""
PIECE: Final = 1000
MAX_ROUNDS: Final = 10
"""How many times the end is moved back before all of a text is held back."""

_PREFIXES: Final = (*KEY_PREFIXES, "-----BEGIN ")
_PARTIAL_PREFIXES: Final = frozenset(
    prefix[:length] for prefix in _PREFIXES for length in range(1, len(prefix))
)
_PARTIAL_ENDS: Final = frozenset(prefix[-1] for prefix in _PARTIAL_PREFIXES)
_LONGEST_PREFIX: Final = max(map(len, _PREFIXES))
_WORD_START: Final = re.compile(WORD_START)
_IN_KEYS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.:"
_KEY: Final = re.compile(
    rf"{WORD_START}(?:{'|'.join(map(re.escape, KEY_PREFIXES))})[A-Za-z0-9_.-]*+\Z"
    # With the longer beginning it is a key wherever it stands.
    r"|sk-[A-Za-z0-9_-]*+\Z"
    # Telegram
    rf"|{WORD_START}[0-9]{{1,12}}(?::(?:A(?:A[A-Za-z0-9_-]*+)?)?)?\Z"
)
_END_OF_PRIVATE_KEY: Final = re.compile(r"-{1,5}(?:[A-Z][A-Z0-9 ]{0,40}-{0,4})?\Z")
_LONGEST_END: Final = 60
_MAY_BE_KEY: Final = re.compile(r"[a-z][A-Z]|[0-9+/=]|[A-Za-z]{16}")
_NAMED: Final = (
    re.compile(
        rf"{SECRET_NAME}(?:\\{{0,15}}[\"']?[ \t]*(?:=>|:=|[:=])[ \t]*+|(?P<flag>[ \t]++))", ANY_CASE
    ),
    # A value behind its type: `password: str = "..."`.
    re.compile(
        rf"{SECRET_NAME}:[ \t]*[A-Za-z_][\w.\[\]|, \t]{{0,60}}?=[ \t]*+(?=(?P<flag>)[bru\"'])",
        ANY_CASE,
    ),
)


@attrs.frozen
class _Unfinished:
    """A kind of secret that is undecided while its value reaches to the end of the text."""

    marks: tuple[str, ...]
    """In lower case. A text without any of them has no such value."""
    pattern: re.Pattern[str]
    """Its group `held` is the value."""
    limit: int = MAX_UNDECIDED
    """How many characters may be undecided."""

    reach: int = sys.maxsize
    """How many characters it may have before its last mark."""

    def starts(self, text: str, low: str) -> Iterator[tuple[int, int]]:
        last = max(map(low.rfind, self.marks))
        if last >= 0 and (found := self.pattern.search(text, max(0, last - self.reach))):
            yield found.start("held"), self.limit


_LOGIN_IN_URL: Final = _Unfinished(
    (":",),
    re.compile(r":\\{0,7}/\\{0,7}/[^/\s:@\"'\\<>]*+:(?P<held>[^/\s\"'\\<>]*+)\Z"),
    limit=sys.maxsize,
)
"""The password in an address."""
_NOT_IN_URLS: Final = " \t\n\"'<>"
_IN_LOGIN: Final = re.compile(r"[^/\s\"'\\<>]*+")
_BEGIN_OF_KEY: Final = "-----BEGIN "
_PRIVATE_KEY: Final = _Unfinished(
    (_BEGIN_OF_KEY.lower(),),
    re.compile(
        r"(?P<held>-----BEGIN [A-Z0-9 ]{0,40}(?:\Z|PRIVATE KEY)"
        r"(?!.*-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----))",
        re.DOTALL,
    ),
    limit=MAX_HELD_BACK,
)
_KINDS: Final = (
    # The value of a header, a login of curl, the content of an XML element.
    _Unfinished(
        ("bearer", "basic"),
        re.compile(r"(?:bearer|basic)[ \t]++(?P<held>[A-Za-z0-9._~+/=-]*+)\Z", ANY_CASE),
    ),
    _Unfinished(
        ("curl",),
        re.compile(
            r"\bcurl\b.{0,200}?[ \t]"
            r"(?P<held>(?:-u|--user)[ \t=]*\\{0,15}[\"']?[^\s\"'\\]*)\Z",
            re.DOTALL,
        ),
    ),
    _Unfinished(
        (">",),
        re.compile(rf"{SECRET_NAME}>(?P<held>[^<>\s]*+(?:<[^<>]*+)?)\Z", ANY_CASE),
        limit=MAX_HELD_BACK,
        reach=20,
    ),
    _LOGIN_IN_URL,
    _PRIVATE_KEY,
)
_SIGNS: Final = (*NAME_BEGINNINGS, *(mark for kind in _KINDS for mark in kind.marks))
"""In lower case. A text without any of them has no unfinished value that is known by its name."""
# The lines of a private key have a gap between them, and other values a quote behind them.
_ENDS_REDACTED: Final = re.compile(rf"{re.escape(REDACTED)}.{{0,120}}\Z", re.DOTALL)


def without_unfinished_secret(text: str, redactor: Redactor) -> str:
    """Return a text that was broken off, without an end that may be half a secret.

    The rest is not redacted here: it is whole, and is redacted as such.
    """
    # Nothing further back is undecided in a stream either.
    start = max(0, len(text) - MAX_HELD_BACK - CONTEXT)
    end = start + StreamRedactor(redactor).end_of_decided(text[start:])
    # Except for two that are held, or dropped, however long they get: a password of an address,
    word = max(text.rfind(sign) for sign in _NOT_IN_URLS) + 1
    end = min(end, word + _start_of_login(text[word:]))
    # and a private key, which may break off in a line that is too short to be known for one.
    key = text.rfind(_BEGIN_OF_KEY, 0, start)
    if key >= 0 and _ends_in_private_key(text[key:], redactor):
        end = key
    return text[:end]


class StreamRedactor:
    """Redacts one text, piece by piece."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._emitted = ""
        """The last emitted characters, before redaction."""
        self._held_back = ""
        self._is_in_login = False
        """Whether a long password of an address goes on: it is dropped up to its end."""
        self._is_stopped = False
        self._gave_up = False
        """Whether a value was undecided for too long: its end may make it a secret."""
        self._has_sign = False
        """Whether the last characters have a sign of a secret."""

    @property
    def held_back(self) -> int:
        """How many characters are held back now."""
        return len(self._held_back)

    def add(self, text: str) -> str:
        """Add a piece of the text, and return the part that may be emitted now."""
        if len(text) <= PIECE:
            return self._add(text)
        # In small pieces: the search is slower than linear.
        pieces = [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
        return "".join(map(self._add, pieces))

    def _add(self, text: str) -> str:
        if self._is_in_login:
            text = _IN_LOGIN.sub("", text, count=1)
            self._is_in_login = not text
        if self._is_stopped or not text:
            return ""
        begin = len(self._emitted)
        known = self._emitted + self._held_back + text
        self._has_sign = self._has_sign_in(known, begin)
        end = max(begin, self.decided_end(known, begin))
        held = len(known) - end
        if held > MAX_HELD_BACK:
            if self._ends_in_secret(known):
                known = self._shortened(known, end)
            else:
                end = len(known) - MAX_HELD_BACK
                login = _start_of_login(known)
                if begin <= login <= end:
                    known, self._is_in_login = f"{known[:login]}{REDACTED}", True
                    end = len(known)
        emitted = self._redacted(known[:end]) if end > begin else ""
        self._held_back = known[end:]
        self._emitted = known[max(0, end - CONTEXT) : end]
        return emitted

    def end_of_decided(self, text: str) -> int:
        """Return the end of the longest start of a whole text that is fully decided."""
        self._has_sign = True
        return self.decided_end(text)

    def decided_end(self, text: str, begin: int = 0) -> int:
        """Return the end of the longest start of a text that is fully decided.

        Args:
            text: the text.
            begin: where its new end begins: the values before are decided.
        """
        end = len(text)
        for _ in range(MAX_ROUNDS):
            start = self._undecided_start(text[:end], begin)
            if start == end:
                return end
            end = start
        return 0

    def _has_sign_in(self, text: str, begin: int) -> bool:
        """Return whether a text has a sign of a secret, or the name of one."""
        # Without a sign before, a sign can only end in the new part: most words have none.
        new = text if self._has_sign else text[max(0, begin - self._redactor.longest_mark) :]
        low = lowered(new)
        for sign in _SIGNS:
            if sign in low:
                return True
        return self._redactor.may_hold_secret(new.encode(errors="replace"))

    def _redacted(self, text: str) -> str:
        """Return the new part of a text, without its secrets."""
        begin = len(self._emitted)
        if not self._has_sign:
            return text[begin:]
        # Only the new end is searched: the text before it has no unfinished secret.
        first_name = 0 if self._gave_up else max(0, begin - NAME_DISTANCE)
        if not self._redactor.finds_secret_after(text, begin, first_name):
            return text[begin:]
        before, after = map(self._redactor.redact, (self._emitted, text))
        if after.startswith(before):
            return after[len(before) :]
        # Emitted text turns out to be part of a secret: the text after the secret is emitted.
        return f"{REDACTED}{_common_end(after, text[begin:])}"

    def _ends_in_secret(self, text: str) -> bool:
        """Return whether a text is redacted up to its end."""
        redacted = self._redactor.redact(text)
        return redacted != text and _ENDS_REDACTED.search(redacted) is not None

    def _shortened(self, text: str, end: int) -> str:
        """Return a text without the middle of the long secret at its end."""
        head, tail = text[: end + KEPT].rstrip("\\"), text[-KEPT:]
        # Not in the middle of an escaped quote, which would close the value.
        while tail and not tail[0].isalnum():
            tail = tail[1:]
        shortened = head + tail[1:]
        if not self._ends_in_secret(shortened):
            # Its end cannot be found: no text after it is emitted.
            self._is_stopped = True
        return shortened

    def _undecided_start(self, text: str, begin: int) -> int:
        """Return the offset of the first character that may belong to an unfinished secret."""
        length = len(text)
        end = length - self._redactor.partial_secret_length(text)
        is_secret: bool | None = None
        for start, limit in _undecided_values(text, begin, has_sign=self._has_sign):
            if start >= end:
                continue
            if length - start > limit:
                # It has been undecided for too long, unless it is secret as it stands.
                if is_secret is None:
                    is_secret = self._ends_in_secret(text)
                if not is_secret:
                    self._gave_up = True
                    continue
            end = start
        return end


def _undecided_values(text: str, begin: int, *, has_sign: bool) -> Iterator[tuple[int, int]]:
    """Yield where values begin that reach to the end, and how long each may be undecided."""
    length = len(text)
    may_begin_key = text[-1:] in _PARTIAL_ENDS
    for start in range(max(0, length - _LONGEST_PREFIX), length) if may_begin_key else ():
        if text[start:] in _PARTIAL_PREFIXES and _WORD_START.match(text, start):
            yield start, MAX_UNDECIDED
            break
    run = len(text.rstrip(_IN_KEYS))
    if run < length and (key := _KEY.search(text, run)) is not None:
        yield key.start(), MAX_HELD_BACK
    if (start := _lines_of_private_key(text)) < length:
        yield start, MAX_HELD_BACK
    if not has_sign:
        return
    low = lowered(text)
    for kind in _KINDS:
        for mark in kind.marks:
            if mark in low:
                yield from kind.starts(text, low)
                break
    yield from _named_values(text, low, begin)


def _named_values(text: str, low: str, begin: int) -> Iterator[tuple[int, int]]:
    """Yield where values after the names of secrets begin, if they reach to the end."""
    for position in name_positions(low, max(0, begin - NAME_DISTANCE)):
        for pattern in _NAMED:
            name = pattern.match(text, position)
            if name is not None and name.end() >= begin:
                limit = unfinished_value(text, name)
                if limit is not None:
                    yield name.end(), limit


def _lines_of_private_key(text: str) -> int:
    """Return where lines begin that may be of a private key whose beginning was cut off."""
    length = len(text)
    first = max(0, length - MAX_HELD_BACK)
    if found := _END_OF_PRIVATE_KEY.search(text, max(0, length - _LONGEST_END)):
        end = found.start()
        begin = start_of_key_lines(text, end, first)
        return begin if begin < end else length
    bare = text.rstrip("\\")
    end = len(bare.rstrip(IN_BASE64))
    if bare.startswith(("\\n", "\\r"), max(0, end - 1)):
        end += 1  # an escaped line end
    if len(bare) - end > MAX_PEM_LINE:
        return length
    begin = start_of_key_lines(text, end, first)
    begins_line = text.endswith(("\n", "\\n"), max(0, end - 2), end)
    may_be_key = begin < end or begins_line or _MAY_BE_KEY.search(bare, end)
    return begin if may_be_key else length


def _start_of_login(text: str) -> int:
    """Return where a text begins that may be the password of an address, or where all ends."""
    return next((start for start, _ in _LOGIN_IN_URL.starts(text, ":")), len(text))


def _ends_in_private_key(text: str, redactor: Redactor) -> bool:
    """Return whether the private key goes on to the end of the text that begins with it."""
    is_open = any(_PRIVATE_KEY.starts(text, text.lower()))
    return is_open and _ENDS_REDACTED.fullmatch(redactor.redact(text)) is not None


def _common_end(text: str, other: str) -> str:
    """Return the longest common ending of two texts."""
    length = 0
    while length < min(len(text), len(other)) and text[-1 - length] == other[-1 - length]:
        length += 1
    return text[len(text) - length :]
