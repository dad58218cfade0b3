"""The tool `search_files`: lines of the workspace that match a regular expression.

A hostile expression cannot block the process: the engine does not backtrack, so its time is linear
in the text, and a time limit is checked between lines. Python's own engine would hold every thread,
and could not be stopped.
"""

import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import islice, takewhile
from typing import Final

from orchestrator.agents.errors import ToolError
from orchestrator.agents.redaction.named_values import REDACTED
from orchestrator.agents.tools.cancelled_call import stop_if_cancelled
from orchestrator.agents.tools.context import redact_secrets
from orchestrator.agents.tools.files import dir_entry, line_reader
from orchestrator.agents.tools.files.access import FileAccess
from orchestrator.agents.tools.files.glob import Glob
from orchestrator.agents.tools.files.walk import Walk
from orchestrator.agents.tools.files.workspace import current_workspace
from orchestrator.agents.tools.tool import tool

MAX_MATCHES: Final = 200
MAX_CHARACTERS: Final = 40_000
"""The most characters of one answer: below the limit of tools."""
MAX_SECONDS: Final = 10.0
"""Of one call."""
SEARCHED_OF_LINE: Final = 5_000
SHOWN_OF_LINE: Final = 300
LINES_AT_ONCE: Final = 100
"""So many lines are redacted at once."""
MAX_EXPRESSION: Final = 1_000
MAX_COMPILED_BYTES: Final = 500_000
"""The cost of a search is the size of the compiled expression times the length of a line."""


@tool(idempotent=True, machine="read")
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
    matches = _compile(f"(?i){pattern}" if ignore_case else pattern)
    workspace = current_workspace()
    walk = Walk(Glob(glob if "/" in glob else f"**/{glob}", hidden=hidden), workspace.access)
    with workspace.find(path) as top:
        search = Search(matches, workspace.access, seconds=MAX_SECONDS)
        search.run(top, walk)
    return "\n".join([*search.report(), *walk.notes()])


class Search:
    """One search: the lines to show, and counts of the rest."""

    def __init__(
        self, matches: Callable[[str], bool], access: FileAccess, *, seconds: float
    ) -> None:
        self._matches = matches
        self._require = access.require_visible
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._found: list[str] = []
        self._characters_left = MAX_CHARACTERS
        self._omitted = 0
        self._files = 0
        self._binary_files = 0
        self._cut_lines = 0
        self._unreadable: list[str] = []
        self._is_out_of_time = False

    def run(self, top: dir_entry.DirEntry, walk: Walk) -> None:
        """Search a file, or all files of a folder that the walk yields."""
        status = top.status()
        if status is not None and stat.S_ISREG(status.st_mode):
            self._search_file(top.name, top.folder, top.path)
            return
        with closing(walk.entries(top)) as entries:
            for entry in entries:
                if not self._has_time():
                    return
                if stat.S_ISREG(entry.status.st_mode):
                    self._search_file(entry.name, entry.folder, entry.path)

    def _search_file(self, name: str, folder: int, path: str) -> None:
        try:
            with (
                dir_entry.os_errors_as_tool_errors(path),
                dir_entry.open_regular_file(name, folder, path, self._require) as (file, status),
            ):
                self._files += 1
                if line_reader.binary_kind(line_reader.read_head(file)) is not None:
                    self._binary_files += 1
                else:
                    self._search_lines(line_reader.FileReader(file, status), path)
        except ToolError as exc:
            self._unreadable.append(str(exc))

    def _search_lines(self, contents: line_reader.FileReader, path: str) -> None:
        # The time is checked between chunks too, since a line may be gigabytes long.
        chunks = takewhile(lambda _: self._has_time(), contents.chunks())
        for number, (text, cut) in enumerate(
            _redacted(line_reader.split_lines(chunks, SEARCHED_OF_LINE)), start=1
        ):
            if not self._has_time():
                return
            self._cut_lines += bool(cut)
            if not self._matches(text):
                continue
            if len(self._found) >= MAX_MATCHES or self._characters_left < 0:
                self._omitted += 1
                continue
            self._found.append(f"{dir_entry.escape_unprintable(path)}:{number}: {_in_short(text)}")
            self._characters_left -= len(self._found[-1]) + 1

    def _has_time(self) -> bool:
        stop_if_cancelled()
        self._is_out_of_time = self._is_out_of_time or time.monotonic() >= self._deadline
        return not self._is_out_of_time

    def report(self) -> Iterator[str]:
        """Yield the found lines, and notes about the files that were not searched."""
        yield from self._found
        if not self._found:
            yield f"[no line fits; files searched: {self._files - self._binary_files}]"
        if self._omitted:
            least = "at least " if self._is_out_of_time else ""
            yield (
                f"[{least}{self._omitted} more lines fit; ask for less by pattern, path or glob]"
            )
        for problem in self._unreadable[:5]:
            yield f"[not searched: {problem}]"
        if more := len(self._unreadable[5:]):
            yield f"[not searched: {more} more files]"
        if self._binary_files:
            yield f"[not searched, because they are no text: {self._binary_files}]"
        if self._cut_lines:
            yield (
                f"[lines of more than {SEARCHED_OF_LINE} characters, searched only in their"
                f" beginning: {self._cut_lines}]"
            )
        if self._is_out_of_time:
            yield (
                f"[stopped after {self._seconds:g} s: not all was searched; ask for a part of"
                " it, by path or glob]"
            )


def _redacted(lines: Iterator[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Yield lines in their shown form: a search in hidden parts would reveal them bit by bit."""
    while block := [*islice(lines, LINES_AT_ONCE)]:
        # Many at once, which is many times as fast, and shows a value among its settings.
        texts = [text for text, _ in block]
        shown = redact_secrets("\n".join(texts)).split("\n")
        if len(shown) != len(texts):
            # A secret of several lines has become one placeholder.
            shown = [_redacted_line(text, shown) for text in texts]
        yield from zip(shown, (cut for _, cut in block), strict=True)


def _redacted_line(line: str, shown: Sequence[str]) -> str:
    if line in shown:
        return line
    redacted = redact_secrets(line)
    return REDACTED if redacted == line else redacted


def _in_short(line: str) -> str:
    return line.strip() if len(line) <= SHOWN_OF_LINE else f"{line[:SHOWN_OF_LINE].strip()} ..."


def _compile(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches a line."""
    # Imported late: few tasks search files or promise an answer by a schema.
    import jsonschema_rs

    if len(pattern) > MAX_EXPRESSION:
        raise ToolError(f"an expression has at most {MAX_EXPRESSION} characters")
    try:
        return jsonschema_rs.validator_for(
            {"pattern": pattern},
            pattern_options=jsonschema_rs.RegexOptions(size_limit=MAX_COMPILED_BYTES),
        ).is_valid
    except (jsonschema_rs.ValidationError, ValueError) as exc:
        raise ToolError(
            f"{dir_entry.escape_unprintable(pattern)!r} is not a regular expression that can be"
            " used here: it has no look-around and no back-references, is not very long when its"
            " repetitions are written out, and has a backslash before each ( [ {"
            " that stands for itself"
        ) from exc
