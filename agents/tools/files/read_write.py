"""The tools `read_file`, `write_file` and `edit_file`, inside the workspace.

Writes are atomic. A file is overwritten or edited only if the task has read its current version:
check and change happen under one lock for all tasks of the process. Another program that writes in
that moment can still lose its change.
"""

import re
import time
from bisect import bisect_left
from collections.abc import Callable
from difflib import get_close_matches
from itertools import islice, takewhile
from typing import Annotated, Final, TypeAlias

import msgspec

from orchestrator.agents.errors import ToolError
from orchestrator.agents.redaction.named_values import REDACTED
from orchestrator.agents.tools.context import current_tool_context, redact_secrets
from orchestrator.agents.tools.evidence import LARGE, file_change
from orchestrator.agents.tools.files.dir_entry import (
    DirEntry,
    escape_unprintable,
    require_regular_file,
)
from orchestrator.agents.tools.files.hidden_lines import HiddenLines
from orchestrator.agents.tools.files.line_reader import (
    BOM,
    MAX_WHOLE_BYTES,
    FileReader,
    binary_kind,
    digest_of,
    fingerprint,
    read_head,
    skip_lines,
    split_lines,
)
from orchestrator.agents.tools.files.list import list_files
from orchestrator.agents.tools.files.own_code import require_not_own_code
from orchestrator.agents.tools.files.search import search_files
from orchestrator.agents.tools.files.seen_files import Fingerprint
from orchestrator.agents.tools.files.workspace import current_workspace
from orchestrator.agents.tools.result_text import ToolResult
from orchestrator.agents.tools.terminal.output_buffer import LONGEST_WORD
from orchestrator.agents.tools.tool import tool

__all__ = ["FILES", "edit_file", "list_files", "read_file", "search_files", "write_file"]

DEFAULT_LINES: Final = 1_000
MAX_CHARACTERS: Final = 40_000
"""The most characters of one answer: below the limit of tools."""
SHOWN_OF_LINE: Final = 2_000
COMPARED_LINES: Final = 200
COMPARED_CHARACTERS: Final = 100
"""Of each line, in the search for lines like one that was not found."""
MAX_REPLACEMENTS: Final = 100_000
MAX_SECONDS: Final = 10.0
"""Of one call: a file with holes may have more bytes than any disk."""

Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


@tool(idempotent=True, machine="read")
def read_file(path: str, offset: Positive = 1, limit: Positive = DEFAULT_LINES) -> str:
    """Read a text file in the workspace, with numbers in front of its lines.

    A long file comes in pages. You have to read a file before you overwrite or edit it.

    Args:
        path: relative to the workspace.
        offset: the first line, counted from 1.
        limit: how many lines.
    """
    context = current_tool_context()
    with current_workspace().find(path) as entry:
        with entry.open_file() as (descriptor, status):
            if (kind := binary_kind(read_head(descriptor))) is not None:
                raise ToolError(
                    f"{escape_unprintable(entry.path)} is not a text that can be read here: it"
                    f" is {kind} of {status.st_size:,} bytes"
                )
            contents = FileReader(descriptor, status)
            answer = _page(contents, offset, limit, escape_unprintable(entry.path))
            context.seen_files.note_read(entry.real, contents.fingerprint())
            return answer


@tool(machine="write")
def write_file(path: str, content: str) -> ToolResult:
    """Write a whole file in the workspace; folders on the way are made.

    A file that is there already is overwritten, if you have read it and it has not changed
    since. To change a part of a file, use edit_file.

    Args:
        path: relative to the workspace.
        content: all that is to be in the file.
    """
    data = _encoded(content)
    context = current_tool_context()
    before: bytes | None = None
    with current_workspace().find(path, writes=True, make_folders=True) as entry:
        require_not_own_code(entry.real, entry.path)
        with context.seen_files.registry.lock_file(entry.real):
            if is_there := (found := entry.status()) is not None:
                require_regular_file(found, entry.path)
                _require_writable(found.st_mode, entry)
                with entry.open_file() as (descriptor, found):
                    now = _current_version(FileReader(descriptor, found))
                    context.seen_files.require_seen(
                        entry.real, now, path=escape_unprintable(entry.path)
                    )
                before = _compared(entry)
                if REDACTED in content:
                    _require_no_secrets(entry, context.redact)
            written = entry.replace(data, found)
            context.seen_files.note_written(entry.real, fingerprint(written, digest_of(data)))
    lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    text = (
        f"{'overwrote' if is_there else 'created'} {escape_unprintable(entry.path)}:"
        f" {_counted(lines, 'line')}, {_counted(len(data), 'byte')}"
    )
    evidence = file_change(entry.path, before, data, is_new=not is_there)
    return ToolResult(text, evidence=evidence)


@tool(machine="write")
def edit_file(
    path: str,
    old: str,
    new: str,
    *,
    all: bool = False,  # noqa: A002
) -> ToolResult:
    """Replace text in a file of the workspace that you have read.

    The old text must be in the file exactly once, so give enough lines around it; the line numbers
    that read_file shows are no part of it. Line endings stay as they are in the file. Lines in
    which something is hidden from you (***) cannot be edited.

    Args:
        path: relative to the workspace.
        old: the text to replace, exactly as it is in the file, spaces and all.
        new: the text to put there.
        all: replace it wherever it is.
    """
    wanted, replacement = (_encoded(text).replace(b"\r\n", b"\n") for text in (old, new))
    if not wanted:
        raise ToolError("old is empty: say which text to replace; write_file writes a whole file")
    if wanted == replacement:
        raise ToolError("old and new are the same: nothing would change")
    context = current_tool_context()
    with current_workspace().find(path, writes=True) as entry:
        require_not_own_code(entry.real, entry.path)
        with context.seen_files.registry.lock_file(entry.real):
            with entry.open_file() as (descriptor, status):
                _require_writable(status.st_mode, entry)
                if status.st_size > MAX_WHOLE_BYTES:
                    raise ToolError(
                        f"{escape_unprintable(entry.path)} has {status.st_size:,} bytes, and files"
                        f" of more than {MAX_WHOLE_BYTES:,} are not edited: change it with a"
                        " command, or write it anew"
                    )
                contents = FileReader(descriptor, status)
                data = b"".join(contents.chunks())
            now = contents.fingerprint()
            context.seen_files.require_seen(entry.real, now, path=escape_unprintable(entry.path))
            if (kind := binary_kind(data)) is not None:
                raise ToolError(f"{escape_unprintable(entry.path)} is {kind}: only text is edited")
            text = _EditableText(data)
            hidden = HiddenLines(text.plain, context.redact)
            offsets = text.find_all(wanted, apart=len(wanted) if all else 1)
            if hidden:
                offsets = text.outside(hidden, offsets, len(wanted))
            if not offsets:
                shown = hidden.shown.encode()
                raise ToolError(_not_found(shown, wanted, escape_unprintable(entry.path)))
            if len(offsets) > 1 and not all:
                raise ToolError(
                    f"old is in {escape_unprintable(entry.path)} {len(offsets)} times, in the lines"
                    f" {_numbers(text, offsets)}: give more of the lines around the one you"
                    " mean, or all=true to replace every one"
                )
            before, data = data, text.replaced(offsets, len(wanted), replacement)
            hidden.require_hidden_in(
                data.replace(b"\r\n", b"\n").decode(errors="replace"),
                added=new * len(offsets),
                path=escape_unprintable(entry.path),
            )
            written = entry.replace(data, status)
            context.seen_files.note_written(entry.real, fingerprint(written, digest_of(data)))
    said = (
        f"edited {escape_unprintable(entry.path)}: replaced {_counted(len(offsets), 'place')},"
        f" in line {_numbers(text, offsets)}"
    )
    return ToolResult(said, evidence=file_change(entry.path, before, data))


FILES: Final = (read_file, write_file, edit_file, list_files, search_files)
"""All tools for the files of a workspace."""


class _EditableText:
    """A text with plain line ends for the search, and the real line ends for the replacement."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._plain = data.replace(b"\r\n", b"\n")
        self._returns: list[int] = []
        """The offsets in the plain text at which a carriage return was removed."""
        if len(self._plain) < len(data):
            end = data.find(b"\r\n")
            while end >= 0:
                self._returns.append(end - len(self._returns))
                end = data.find(b"\r\n", end + 2)
        is_crlf = 2 * len(self._returns) > self._plain.count(b"\n")
        self._ending = b"\r\n" if is_crlf else b"\n"

    def find_all(self, wanted: bytes, *, apart: int) -> list[int]:
        """Return offsets in a text that are at least a number of bytes apart."""
        offsets: list[int] = []
        offset = self._plain.find(wanted)
        while offset >= 0:
            if len(offsets) == MAX_REPLACEMENTS:
                raise ToolError(f"old is in the file more than {MAX_REPLACEMENTS:,} times")
            offsets.append(offset)
            offset = self._plain.find(wanted, offset + apart)
        return offsets

    @property
    def plain(self) -> str:
        """All of it, with plain line ends."""
        return self._plain.decode(errors="replace")

    def line(self, offset: int) -> int:
        return self._plain.count(b"\n", 0, offset) + 1

    def outside(self, hidden: HiddenLines, offsets: list[int], length: int) -> list[int]:
        """Return the offsets of those texts that are in no line with something hidden."""
        ends = [end.start() for end in re.finditer(b"\n", self._plain)]
        return [
            offset
            for offset in offsets
            if not hidden.are_among(
                bisect_left(ends, offset) + 1, bisect_left(ends, offset + length - 1) + 1
            )
        ]

    def replaced(self, offsets: list[int], length: int, new: bytes) -> bytes:
        """Return the file with this text at these offsets."""
        new = new.replace(b"\n", self._ending)
        if len(self._data) + len(offsets) * (len(new) - length) > MAX_WHOLE_BYTES:
            raise ToolError(f"the file would have more than {MAX_WHOLE_BYTES:,} bytes")
        parts: list[bytes] = []
        done = 0
        for offset in offsets:
            parts += [self._data[done : self._raw_offset(offset)], new]
            done = self._raw_offset(offset + length)
        return b"".join([*parts, self._data[done:]])

    def _raw_offset(self, offset: int) -> int:
        return offset + bisect_left(self._returns, offset)


def _page(contents: FileReader, offset: int, limit: int, path: str) -> str:
    page: list[str] = []
    characters_left = MAX_CHARACTERS
    deadline = time.monotonic() + MAX_SECONDS
    chunks = takewhile(lambda _: time.monotonic() < deadline, contents.chunks())
    lines = split_lines(skip_lines(offset - 1, chunks), SHOWN_OF_LINE + LONGEST_WORD)
    for text, cut in islice(lines, limit):
        number = offset + len(page)
        page.append(f"{number:>6}\t{_shown(text.removeprefix(BOM.decode()), cut)}")
        characters_left -= len(page[-1]) + 1
        if characters_left < 0:
            break
    if not contents.is_long:
        for _ in lines:
            pass  # The rest counts for the number of lines and the fingerprint.
    if not page and contents.bytes_left:
        raise ToolError(
            f"stopped after {MAX_SECONDS:g} s: line {offset:,} of {path} is not in its beginning"
            f" ({contents.lines:,} lines), and {contents.bytes_left:,} bytes were not read"
        )
    if not page and offset > 1:
        raise ToolError(f"{path} has only {_counted(contents.lines, 'line')}")
    notes: list[str] = []
    last = offset + len(page) - 1
    if not page:
        notes.append("the file is empty")
    # Not tested by reading the next line: it may be gigabytes long.
    elif contents.lines > last or contents.bytes_left:
        of = "" if contents.is_long else f" of {contents.lines}"
        notes.append(f"lines {offset} to {last}{of}: read on with offset={last + 1}")
    if any("\N{REPLACEMENT CHARACTER}" in line for line in page):
        notes.append(
            "\N{REPLACEMENT CHARACTER} stands for bytes that are not UTF-8: edit_file leaves"
            " them as they are, write_file would lose them"
        )
    return "\n".join([*page, *(f"[{note}]" for note in notes)])


def _shown(text: str, cut: int) -> str:
    if len(text) <= SHOWN_OF_LINE:
        return text
    cut += len(text[SHOWN_OF_LINE:].encode())
    # Redacted before it is cut: half a secret is not recognized.
    return f"{redact_secrets(text)[:SHOWN_OF_LINE]} [{cut:,} more bytes in this line]"


def _current_version(contents: FileReader) -> Fingerprint:
    if not contents.is_long:
        for _ in contents.chunks():
            pass
    return contents.fingerprint()


def _require_writable(mode: int, entry: DirEntry) -> None:
    # A rename over the file would need no permission on the file itself.
    if not mode & 0o222 or not entry.is_writable():
        raise ToolError(f"{escape_unprintable(entry.path)} is read-only")


def _not_found(data: bytes, wanted: bytes, path: str) -> str:
    """Return the error for a text that is not in a file, with the nearest lines."""
    # The longest line is the most specific.
    line = max((text.strip() for text in wanted.decode().split("\n")), key=len)
    line = line[:COMPARED_CHARACTERS]
    lines = [text for text, _ in split_lines([data], SHOWN_OF_LINE + LONGEST_WORD)]
    compared = [text.strip()[:COMPARED_CHARACTERS] for text in lines]
    near = [index for index, text in enumerate(compared) if text == line][:3]
    if not near:
        matches = get_close_matches(line, compared[:COMPARED_LINES], n=3)
        near = sorted({compared.index(text) for text in matches})
    problem = f"old is not in {path}: it must be there exactly, spaces and all"
    if not near or not line:
        return f"{problem}; read the file again"
    nearest = "\n".join(f"{index + 1:>6}\t{_shown(lines[index], 0)}" for index in near)
    return f"{problem}. The nearest lines are:\n{nearest}"


def _numbers(text: _EditableText, offsets: list[int]) -> str:
    numbers = ", ".join(str(text.line(offset)) for offset in offsets[:10])
    return f"{numbers}, ..." if len(offsets) > 10 else numbers


def _compared(entry: DirEntry) -> bytes | None:
    """Return the content of a file that is to be overwritten; None if it is large."""
    with entry.open_file() as (descriptor, status):
        if status.st_size > LARGE:
            return None
        return b"".join(FileReader(descriptor, status).chunks())


def _require_no_secrets(entry: DirEntry, redact: Callable[[str], str]) -> None:
    """Refuse to overwrite a secret with the placeholder that the model was shown."""
    with entry.open_file() as (descriptor, status):
        whole = b"".join(FileReader(descriptor, status).chunks())
    old = whole.decode(errors="replace")
    if redact(old) != old:
        raise ToolError(
            f"{escape_unprintable(entry.path)} holds secrets that you were not shown,"
            f" and what you write has {REDACTED} in it: change other lines of it with edit_file"
        )


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        raise ToolError(
            f"{text[exc.start]!r} stands for no character, so it cannot be written"
        ) from exc


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
