"""The output of a command in bounded memory: its beginning, its end, and the size of the gap.

Bytes come in, printable text is stored. The conversion happens on the way in, so that reading,
counting, searching and cutting all see the same text:

* invalid UTF-8 becomes U+FFFD; a character may be split between two chunks;
* escape sequences (colours, titles, links) are removed, and any other control character but tab
  and new line becomes U+FFFD: a command cannot control the terminal of a reader;
* every carriage return ends a line, so each state of a progress bar is a line of its own.

Adding a chunk costs its own length, however much came before.
"""

import codecs
import io
import re
from collections import deque
from typing import Final

import attrs

HEAD: Final = 50_000
TAIL: Final = 150_000
LINES: Final = 200
# Small chunks are joined at this length: a command that writes single bytes costs no object each.
PIECE: Final = 4096
# An escape sequence may be split between chunks. A longer one is not an escape sequence.
HELD_BACK: Final = 4096

# Half a word may be half a secret, which the redactor does not recognize: where a text is cut, the
# cut word is dropped. A key has no blank in it, and is shorter than this.
LONGEST_WORD: Final = 1_000
_BLANK: Final = re.compile(r"\s")
# Control sequences; strings up to BEL or ESC \, such as titles and links; and all others.
_ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]*[0-OQ-WYZ\\`-~])"
)
_BEGUN_ESCAPE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*\x1b?|[ -/]*)\Z")
# With the marks of direction, which show a text in another order than it has.
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@attrs.frozen(kw_only=True)
class LogView:
    """Some lines of an output."""

    text: str
    begin: int
    """The number of the first line, counted from 0."""
    end: int
    """The number of the next line."""
    total: int
    """How many lines there were, with those in the gap."""


class OutputBuffer:
    """The first and the last characters of an output that may be endless."""

    def __init__(self, *, head: int = HEAD, tail: int = TAIL) -> None:
        self.total = 0
        """How many characters have come, those in the gap included."""
        self._head = head
        self._tail = tail
        self._decoder = io.IncrementalNewlineDecoder(
            codecs.getincrementaldecoder("utf-8")("replace"), translate=True
        )
        self._held = ""
        self._first = io.StringIO()
        self._last: deque[str] = deque()
        self._loose: list[str] = []
        self._loose_length = 0
        self._last_length = 0
        self._new_lines = 0
        self._is_line_open = False
        self._is_finished = False
        self._last_total = 0

    def write(self, chunk: bytes | bytearray) -> str:
        """Add a chunk, and return its text.

        The end of a chunk may be returned with the next one: half a character is not text yet.
        """
        return self._add(self._decoder.decode(chunk), final=False)

    def finish(self) -> str:
        """End the output, and return the text that was held back."""
        self._is_finished = True
        return self._add(self._decoder.decode(b"", final=True), final=True)

    @property
    def dropped(self) -> int:
        """How many characters are in the gap."""
        begin, end = self._gap()
        return end - begin

    def text(self) -> str:
        """Return the beginning and the end, with a line about the gap between, if there is one."""
        return self.since(0)[0]

    def tail_text(self, characters: int) -> str:
        """Return the last characters, from the beginning of a word on."""
        text = self.since(self.total - characters)[0]
        return text if characters >= self.total else _without_first_word(text)

    def since(self, mark: int) -> tuple[str, int]:
        """Return what came since a mark, and the mark for the next time.

        The first mark is 0. A line stands for the gap, if there is one.
        """
        mark = min(max(mark, 0), self.total)
        begin, end = self._gap()
        after = "" if mark == self.total else self._ending()[max(0, mark - end) :]
        if mark >= end:
            return after, self.total
        before = self._first.getvalue()[mark:]
        if begin == end:
            return before + after, self.total
        before, after = without_last_word(before), _without_first_word(after)
        missing = self.total - mark - len(before) - len(after)
        return f"{before}\n{self._missing(missing)}\n{after}", self.total

    def before(self, mark: int, characters: int) -> str:
        """Return the last characters before a mark, as far as they are stored."""
        begin, end = self._gap()
        if begin == end:
            stored, start = self._first.getvalue() + self._ending(), 0
        elif mark >= end:
            stored, start = self._ending(), end
        else:
            stored, start = self._first.getvalue(), 0
        return stored[max(0, mark - characters - start) : max(0, mark - start)]

    def open_word_length(self) -> int:
        """Return the length of an unfinished word at the end, which may be half a secret.

        It is 0 if nothing came since the last call: a command that waits for input has
        finished its word.
        """
        has_grown, self._last_total = self._last_total < self.total, self.total
        if self._is_finished or not has_grown:
            return 0
        last = self.before(self.total, LONGEST_WORD)
        found = _BLANK.search(last[::-1])
        return len(last) if found is None else found.start()

    def lines(self, offset: int | None = None, limit: int = LINES) -> LogView:
        """Return some lines, and which they are; the last ones if `offset` is None."""
        total = self._new_lines + self._is_line_open
        begin = total - limit if offset is None else min(offset, total)
        begin = max(begin, 0)
        end = min(begin + limit, total)
        gap, gap_end = self._gap()
        ending = self._ending()
        if gap == gap_end:
            shown = (self._first.getvalue() + ending).split("\n")[begin:end]
            return LogView(text="\n".join(shown), begin=begin, end=end, total=total)
        first, ending = (without_last_word(self._first.getvalue()), _without_first_word(ending))
        beginning = first.split("\n")
        shown = beginning[begin:end]
        resumes_at = self._new_lines - ending.count("\n")
        if begin <= resumes_at and end >= len(beginning):
            shown.append(self._missing(self.total - len(first) - len(ending)))
        shown += ending.split("\n")[max(0, begin - resumes_at) : max(0, end - resumes_at)]
        return LogView(text="\n".join(shown), begin=begin, end=end, total=total)

    def _missing(self, characters: int) -> str:
        return f"[{characters} of {self.total} characters are left out here]"

    def _gap(self) -> tuple[int, int]:
        """Return where the gap between beginning and end starts and stops."""
        begin = min(self._head, self.total)
        return begin, max(begin, self.total - self._tail)

    def _ending(self) -> str:
        _, end = self._gap()
        stored = "".join((*self._last, *self._loose))
        return stored[len(stored) - (self.total - end) :]

    def _add(self, text: str, *, final: bool) -> str:
        text = self._printable(text, final=final)
        if not text:
            return text
        head_left = max(0, self._head - self.total)
        self.total += len(text)
        self._new_lines += text.count("\n")
        self._is_line_open = not text.endswith("\n")
        if head_left:
            self._first.write(text[:head_left])
        self._add_to_tail(text[max(head_left, len(text) - self._tail) :])
        return text

    def _add_to_tail(self, text: str) -> None:
        if not text:
            return
        self._loose.append(text)
        self._loose_length += len(text)
        self._last_length += len(text)
        if self._loose_length >= PIECE:
            self._last.append("".join(self._loose))
            self._loose.clear()
            self._loose_length = 0
        while self._last and self._last_length - len(self._last[0]) >= self._tail:
            self._last_length -= len(self._last.popleft())

    def _printable(self, text: str, *, final: bool) -> str:
        text, self._held = self._held + text, ""
        if "\x1b" in text:
            begun = _BEGUN_ESCAPE.search(text, max(0, len(text) - HELD_BACK))
            if begun and not final:
                text, self._held = text[: begun.start()], text[begun.start() :]
            text = _ESCAPES.sub("", text)
        return _CONTROLS.sub("\ufffd", text)


def without_last_word(text: str) -> str:
    """Return a text without its last word, or without the last part of an endless one."""
    return text[: len(text) - _length_of_word(text[: -LONGEST_WORD - 2 : -1])]


def _without_first_word(text: str) -> str:
    """Return a text without its first word, or without the first part of an endless one."""
    return text[_length_of_word(text) :]


def _length_of_word(text: str) -> int:
    """Return the length of the word at the cut end of a text; 0 if it is the whole text."""
    found = _BLANK.search(text[:LONGEST_WORD])
    if found is not None:
        return found.start()
    return LONGEST_WORD if len(text) > LONGEST_WORD else 0
