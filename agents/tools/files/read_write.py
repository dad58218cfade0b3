"""Files, for agents: read, written and edited inside the workspace, and never unseen.

What is written is there whole or not at all. A file is overwritten or edited only if the task has
read it and it has not changed since: the check and the change are one step among all tasks of the
house. A program outside that writes in that very moment can still lose its change; it is not ours.
"""

from bisect import bisect_left
from collections.abc import Callable
from difflib import get_close_matches
from itertools import islice
from typing import Annotated, Final, TypeAlias

import msgspec

from agents.errors import ToolError
from agents.redaction.named_values import REDACTED
from agents.tools.context import current_tool_context, redact_secrets
from agents.tools.files.dir_entry import (
    DirEntry,
    escape_unprintable,
    require_regular_file,
)
from agents.tools.files.line_reader import (
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
from agents.tools.files.list import list_files
from agents.tools.files.search import search_files
from agents.tools.files.seen_files import Fingerprint
from agents.tools.files.workspace import Workspace
from agents.tools.terminal.output_buffer import LONGEST_WORD
from agents.tools.tool import tool

__all__ = [
    "FILES",
    "edit_file",
    "list_files",
    "read_file",
    "search_files",
    "write_file",
]

LINES: Final = 1_000
# Of one answer; what a tool may say at most is more.
CHARACTERS: Final = 40_000
LINE: Final = 2_000
# So many lines, and so many characters of each, are compared with one that was not found.
LIKE: Final = 2_000
COMPARED: Final = 200
# Of one text in a file, that are replaced at once.
PLACES: Final = 100_000

Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


@tool(idempotent=True)
def read_file(path: str, offset: Positive = 1, limit: Positive = LINES) -> str:
    """Read a text file in the workspace, with numbers in front of its lines.

    A long file comes in pages. You have to read a file before you overwrite or edit it.

    Args:
        path: relative to the workspace.
        offset: the first line, counted from 1.
        limit: how many lines.
    """
    scene = current_tool_context()
    with Workspace(scene.workspace).find(path) as spot:
        with spot.open_file() as (descriptor, status):
            if (kind := binary_kind(read_head(descriptor))) is not None:
                raise ToolError(
                    f"{escape_unprintable(spot.path)} is no text that can be read here: it is {kind} of"
                    f" {status.st_size:,} bytes"
                )
            contents = FileReader(descriptor, status)
            answer = _page(contents, offset, limit, escape_unprintable(spot.path))
            scene.seen_files.note_read(spot.real, contents.fingerprint())
            return answer


@tool
def write_file(path: str, content: str) -> str:
    """Write a whole file in the workspace; folders on the way are made.

    A file that is there already is overwritten, if you have read it and nobody has changed it
    since. To change a part of a file, use edit_file.

    Args:
        path: relative to the workspace.
        content: all that is to be in the file.
    """
    data = _encoded(content)
    scene = current_tool_context()
    with Workspace(scene.workspace).find(path, make_folders=True) as spot:
        with scene.seen_files.registry.lock_file(spot.real):
            if is_there := (found := spot.status()) is not None:
                require_regular_file(found, spot.path)
                _require_writable(found.st_mode, spot)
                with spot.open_file() as (descriptor, found):
                    now = _known_by(FileReader(descriptor, found))
                    scene.seen_files.require_seen(
                        spot.real, now, path=escape_unprintable(spot.path)
                    )
                if REDACTED in content:
                    _require_no_secrets(spot, scene.redact)
            written = spot.replace(data, found)
            scene.seen_files.note_written(
                spot.real, fingerprint(written, digest_of(data))
            )
    lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    return (
        f"{'overwrote' if is_there else 'created'} {escape_unprintable(spot.path)}:"
        f" {_counted(lines, 'line')}, {_counted(len(data), 'byte')}"
    )


@tool
def edit_file(path: str, old: str, new: str, *, all: bool = False) -> str:  # noqa: A002
    """Replace text in a file of the workspace that you have read.

    The old text must be in the file exactly once, so give enough lines around it; the line numbers
    that read_file shows are no part of it. Line endings stay as they are in the file.

    Args:
        path: relative to the workspace.
        old: the text to replace, exactly as it is in the file, spaces and all.
        new: the text to put there.
        all: replace it wherever it is.
    """
    before, instead = (_encoded(text).replace(b"\r\n", b"\n") for text in (old, new))
    if not before:
        raise ToolError(
            "old is empty: say which text to replace; write_file writes a whole file"
        )
    if before == instead:
        raise ToolError("old and new are the same: nothing would change")
    scene = current_tool_context()
    with Workspace(scene.workspace).find(path) as spot:
        with scene.seen_files.registry.lock_file(spot.real):
            with spot.open_file() as (descriptor, status):
                _require_writable(status.st_mode, spot)
                if status.st_size > MAX_WHOLE_BYTES:
                    raise ToolError(
                        f"{escape_unprintable(spot.path)} has {status.st_size:,} bytes, and files of more"
                        f" than {MAX_WHOLE_BYTES:,} are not edited: change it with a command, or write"
                        " it anew"
                    )
                contents = FileReader(descriptor, status)
                data = b"".join(contents.chunks())
            now = contents.fingerprint()
            scene.seen_files.require_seen(
                spot.real, now, path=escape_unprintable(spot.path)
            )
            if (kind := binary_kind(data)) is not None:
                raise ToolError(
                    f"{escape_unprintable(spot.path)} is {kind}: only text is edited"
                )
            text = _EditableText(data)
            places = text.places(before, apart=len(before) if all else 1)
            if not places:
                raise ToolError(_not_found(data, before, escape_unprintable(spot.path)))
            if len(places) > 1 and not all:
                raise ToolError(
                    f"old is in {escape_unprintable(spot.path)} {len(places)} times, in the lines"
                    f" {_numbers(text, places)}: give more of the lines around the one you"
                    " mean, or all=true to replace every one"
                )
            data = text.replaced(places, len(before), instead)
            written = spot.replace(data, status)
            scene.seen_files.note_written(
                spot.real, fingerprint(written, digest_of(data))
            )
    return (
        f"edited {escape_unprintable(spot.path)}: replaced {_counted(len(places), 'place')}, in line"
        f" {_numbers(text, places)}"
    )


FILES: Final = (read_file, write_file, edit_file, list_files, search_files)
"""All that an agent needs to work on the files of its workspace."""


class _EditableText:
    """A file in which every line ends with a new line alone, and that knows how it really is."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._plain = data.replace(b"\r\n", b"\n")
        self._returns: list[int] = []
        """Where in the plain text a carriage return is missing."""
        if len(self._plain) < len(data):
            end = data.find(b"\r\n")
            while end >= 0:
                self._returns.append(end - len(self._returns))
                end = data.find(b"\r\n", end + 2)
        is_crlf = 2 * len(self._returns) > self._plain.count(b"\n")
        self._ending = b"\r\n" if is_crlf else b"\n"

    def places(self, wanted: bytes, *, apart: int) -> list[int]:
        """Return where a text is, at least so many bytes apart."""
        places: list[int] = []
        place = self._plain.find(wanted)
        while place >= 0:
            if len(places) == PLACES:
                raise ToolError(f"old is in the file more than {PLACES:,} times")
            places.append(place)
            place = self._plain.find(wanted, place + apart)
        return places

    def line(self, place: int) -> int:
        return self._plain.count(b"\n", 0, place) + 1

    def replaced(self, places: list[int], length: int, new: bytes) -> bytes:
        """Return the file with something else in these places."""
        new = new.replace(b"\n", self._ending)
        if len(self._data) + len(places) * (len(new) - length) > MAX_WHOLE_BYTES:
            raise ToolError(f"the file would have more than {MAX_WHOLE_BYTES:,} bytes")
        parts: list[bytes] = []
        done = 0
        for place in places:
            parts += [self._data[done : self._raw_offset(place)], new]
            done = self._raw_offset(place + length)
        return b"".join([*parts, self._data[done:]])

    def _raw_offset(self, place: int) -> int:
        return place + bisect_left(self._returns, place)


def _page(contents: FileReader, offset: int, limit: int, path: str) -> str:
    page: list[str] = []
    room = CHARACTERS
    lines = split_lines(skip_lines(offset - 1, contents.chunks()), LINE + LONGEST_WORD)
    for text, cut in islice(lines, limit):
        number = offset + len(page)
        page.append(f"{number:>6}\t{_shown(text.removeprefix(BOM.decode()), cut)}")
        room -= len(page[-1]) + 1
        if room < 0:
            break
    if not contents.is_long:
        for _ in lines:
            pass  # The rest is counted, and part of what the file is known by.
    if not page and offset > 1:
        raise ToolError(f"{path} has only {_counted(contents.lines, 'line')}")
    notes: list[str] = []
    last = offset + len(page) - 1
    if not page:
        notes.append("the file is empty")
    # Not by asking for the next line: that may be gigabytes long.
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
    if len(text) <= LINE:
        return text
    cut += len(text[LINE:].encode())
    # First without secrets: nobody would know half of one.
    return f"{redact_secrets(text)[:LINE]} [{cut:,} more bytes in this line]"


def _known_by(contents: FileReader) -> Fingerprint:
    if not contents.is_long:
        for _ in contents.chunks():
            pass
    return contents.fingerprint()


def _require_writable(mode: int, spot: DirEntry) -> None:
    # Putting another file in its place would need no permission of its own.
    if not mode & 0o222 or not spot.is_writable():
        raise ToolError(f"{escape_unprintable(spot.path)} is read-only")


def _not_found(data: bytes, wanted: bytes, path: str) -> str:
    """Say that a text is not in a file, and which lines come near."""
    # The longest line says most of what is meant.
    line = max((it.strip() for it in wanted.decode().split("\n")), key=len)[:COMPARED]
    there = [text for text, _ in split_lines([data], LINE + LONGEST_WORD)]
    like = [text.strip()[:COMPARED] for text in there]
    near = [index for index, text in enumerate(like) if text == line][:3]
    if not near:
        matches = get_close_matches(line, like[:LIKE], n=3)
        near = sorted({like.index(text) for text in matches})
    says = f"old is not in {path}: it must be there exactly, spaces and all"
    if not near or not line:
        return f"{says}; read the file again"
    nearest = "\n".join(f"{index + 1:>6}\t{_shown(there[index], 0)}" for index in near)
    return f"{says}. The nearest lines are:\n{nearest}"


def _numbers(text: _EditableText, places: list[int]) -> str:
    numbers = ", ".join(str(text.line(place)) for place in places[:10])
    return f"{numbers}, ..." if len(places) > 10 else numbers


def _require_no_secrets(spot: DirEntry, redact: Callable[[str], str]) -> None:
    """Refuse to put what the model was shown instead of a secret in the place of the secret."""
    with spot.open_file() as (descriptor, status):
        whole = b"".join(FileReader(descriptor, status).chunks())
    old = whole.decode(errors="replace")
    if redact(old) != old:
        raise ToolError(
            f"{escape_unprintable(spot.path)} holds secrets that you were not shown, and what you write has"
            f" {REDACTED} in it: change other lines of it with edit_file"
        )


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        raise ToolError(
            f"{text[exc.start]!r} stands for no character, so it cannot be written"
        ) from exc


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
