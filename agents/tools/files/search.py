"""Which files of the workspace have a line that fits.

A hostile expression cannot make us wait: the engine is one that never goes back, so its time is
linear in what it reads, and between lines somebody looks at the clock. Python's own engine would
hold every thread of the process, and nothing could stop it.
"""

import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import takewhile
from typing import Final

from agents.errors import ToolError
from agents.tools.context import current_tool_context, redact_secrets
from agents.tools.files.dir_entry import (
    DirEntry,
    escape_unprintable,
    open_regular_file,
    os_errors_as_tool_errors,
)
from agents.tools.files.glob import Glob
from agents.tools.files.line_reader import (
    FileReader,
    binary_kind,
    read_head,
    split_lines,
)
from agents.tools.files.walk import Walk
from agents.tools.files.workspace import Workspace
from agents.tools.tool import tool

MATCHES: Final = 200
# Of one answer; what a tool may say at most is more.
CHARACTERS: Final = 40_000
# Of one call.
SECONDS: Final = 10.0
# Characters of a line that are searched, and that are shown.
SEARCHED: Final = 5_000
SHOWN: Final = 300
EXPRESSION: Final = 1_000
# Bytes of a compiled expression: its size times the length of a line is what it costs.
COMPILED: Final = 500_000


@tool(idempotent=True)
def search_files(
    pattern: str,
    path: str = ".",
    glob: str = "*",
    *,
    ignore_case: bool = False,
    hidden: bool = False,
) -> str:
    r"""Search the text files of the workspace for lines that fit a regular expression.

    Args:
        pattern: the expression, in the syntax of ripgrep without look-around and back-references;
            put a backslash before a character such as ( [ { . that stands for itself.
        path: a folder or a file, relative to the workspace.
        glob: in which files: `*.py` at any depth, `src/**/*.py` by their path.
        ignore_case: let a letter stand for itself in either case.
        hidden: search also what begins with a dot.
    """
    fits = _expression(f"(?i){pattern}" if ignore_case else pattern)
    walk = Walk(Glob(glob if "/" in glob else f"**/{glob}", hidden=hidden))
    with Workspace(current_tool_context().workspace).find(path) as spot:
        search = Search(fits, seconds=SECONDS)
        search.run(spot, walk)
    return "\n".join([*search.report(), *walk.notes()])


class Search:
    """Lines that fit, those that are shown and those that are only counted."""

    def __init__(self, fits: Callable[[str], bool], *, seconds: float) -> None:
        self._fits = fits
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._found: list[str] = []
        self._characters_left = CHARACTERS
        self._left_out = 0
        self._files = 0
        self._binary = 0
        self._cut = 0
        self._closed: list[str] = []
        self._is_over = False

    def run(self, spot: DirEntry, walk: Walk) -> None:
        """Search a file, or all in a folder that the walk comes to."""
        status = spot.status()
        if status is not None and stat.S_ISREG(status.st_mode):
            self._search_file(spot.name, spot.folder, spot.path)
            return
        with closing(walk.entries(spot)) as entries:
            for entry in entries:
                if not self._has_time():
                    return
                if stat.S_ISREG(entry.status.st_mode):
                    self._search_file(entry.name, entry.folder, entry.path)

    def _search_file(self, name: str, folder: int, path: str) -> None:
        try:
            with (
                os_errors_as_tool_errors(path),
                open_regular_file(name, folder, path) as (file, status),
            ):
                self._files += 1
                if binary_kind(read_head(file)) is not None:
                    self._binary += 1
                else:
                    self._read(FileReader(file, status), path)
        except ToolError as exc:
            self._closed.append(str(exc))

    def _read(self, contents: FileReader, path: str) -> None:
        # Between chunks too, since a line may be gigabytes long.
        chunks = takewhile(lambda _: self._has_time(), contents.chunks())
        for number, (text, cut) in enumerate(split_lines(chunks, SEARCHED), start=1):
            if not self._has_time():
                return
            self._cut += bool(cut)
            if not self._fits(text):
                continue
            if len(self._found) >= MATCHES or self._characters_left < 0:
                self._left_out += 1
                continue
            self._found.append(
                f"{escape_unprintable(path)}:{number}: {_in_short(text)}"
            )
            self._characters_left -= len(self._found[-1]) + 1

    def _has_time(self) -> bool:
        self._is_over = self._is_over or time.monotonic() >= self._end
        return not self._is_over

    def report(self) -> Iterator[str]:
        """Return what was found, and what was not looked at."""
        yield from self._found
        if not self._found:
            yield f"[no line fits; files searched: {self._files - self._binary}]"
        if self._left_out:
            least = "at least " if self._is_over else ""
            yield (
                f"[{least}{self._left_out} more lines fit; ask for less by pattern, path or"
                " glob]"
            )
        for why in self._closed[:5]:
            yield f"[not searched: {why}]"
        if more := len(self._closed[5:]):
            yield f"[not searched: {more} more files]"
        if self._binary:
            yield f"[not searched, because they are no text: {self._binary}]"
        if self._cut:
            yield (
                f"[lines of more than {SEARCHED} characters, searched only in their"
                f" beginning: {self._cut}]"
            )
        if self._is_over:
            yield (
                f"[stopped after {self._seconds:g} s: not all was searched; ask for a part of"
                " it, by path or glob]"
            )


def _in_short(line: str) -> str:
    if len(line) <= SHOWN:
        return line.strip()
    # First without secrets: nobody would know half of one.
    return f"{redact_secrets(line)[:SHOWN].strip()} ..."


def _expression(pattern: str) -> Callable[[str], bool]:
    """Return what tells whether a line fits."""
    # Imported late: it is for answers that are checked by a schema, and few tasks need either.
    import jsonschema_rs

    if len(pattern) > EXPRESSION:
        raise ToolError(f"an expression has at most {EXPRESSION} characters")
    try:
        return jsonschema_rs.validator_for(
            {"pattern": pattern},
            pattern_options=jsonschema_rs.RegexOptions(size_limit=COMPILED),
        ).is_valid
    except (jsonschema_rs.ValidationError, ValueError) as exc:
        raise ToolError(
            f"{escape_unprintable(pattern)!r} is no regular expression that can be used here: it has no"
            " look-around and no back-references, is not very long when its repetitions are"
            " written out, and has a backslash before each ( [ { that stands for itself"
        ) from exc
