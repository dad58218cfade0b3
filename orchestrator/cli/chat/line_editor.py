"""The input line of a chat: editing, history and search, by prompt_toolkit in a thread.

prompt_toolkit waits with asyncio, so it has a thread of its own. That thread owns the terminal: it
reads all keys, and writes all output of this process above the typed line, so that printed and
typed text never mix.
"""

import io
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout, suppress
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeAlias

import trio
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.styles import Style

from orchestrator.agents import raising_one_error
from orchestrator.ports.files import PRIVATE_FILE, make_private_folder

PROMPT: Final = "> "
STYLE: Final = Style.from_dict({"status": "fg:ansibrightblack"})


class Key(Enum):
    """A key that types no text."""

    INTERRUPT = "Ctrl-C"


Input: TypeAlias = str | Key
"""A line that the user has sent, or a key."""


class LineEditor:
    """The line that the user types, with the unfinished output and a status above it."""

    def __init__(self, history: Path | None, words: Sequence[str]) -> None:
        self._unfinished = ""
        self._status = ""
        self._is_busy = False
        self._unwritten: deque[str] = deque()
        self._send, self.inputs = trio.open_memory_channel[Input](sys.maxsize)
        """The lines that the user has sent; it ends when they leave with Ctrl-D."""
        self._trio = trio.lowlevel.current_trio_token()
        self._started = trio.Event()
        self._session = PromptSession[str](
            self._fragments,
            style=STYLE,
            history=_open_history(history),
            completer=WordCompleter(list(words), sentence=True),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            reserve_space_for_menu=0,
            # A pasted text has several lines; Enter sends them all.
            multiline=True,
            prompt_continuation="  ",
            enable_suspend=True,
            erase_when_done=True,
            key_bindings=self._key_bindings(),
            output=_output(),
        )
        self._session.default_buffer.accept_handler = self._accept

    # In the thread of trio.

    def show(self, *, unfinished: str, status: str, is_busy: bool) -> None:
        """Show the last line, which fits the width, and the status; Ctrl-C stops work if busy."""
        self._unfinished, self._status, self._is_busy = unfinished, status, is_busy
        self._session.app.invalidate()

    def write(self, text: str) -> None:
        """Write whole lines above the line that is typed."""
        self._unwritten.append(text)
        self._call(self._write)

    async def edit(self) -> None:
        """Read typed lines until the user leaves, or `close` is called."""
        try:
            await trio.to_thread.run_sync(self._run)
        finally:
            self._send.close()
            self._write_rest()

    async def wait_started(self) -> None:
        await self._started.wait()

    def close(self) -> None:
        """End `edit`."""
        self._call(lambda: self._exit(result=""))

    def _call(self, function: Callable[[], None]) -> None:
        app = self._session.app
        # The editor may have ended, and its loop with it.
        with suppress(RuntimeError):
            if app.loop is not None:
                app.loop.call_soon_threadsafe(function, context=app.context)

    # In the thread of the editor.

    def _run(self) -> None:
        with suppress(EOFError):  # Ctrl-D, or the terminal is gone
            self._session.prompt(
                pre_run=lambda: self._trio.run_sync_soon(self._started.set),
                handle_sigint=False,
                set_exception_handler=False,
            )

    def _exit(self, **how: Any) -> None:
        if self._session.app.is_running and not self._session.app.is_done:
            self._session.app.exit(**how)

    def _write(self) -> None:
        app = self._session.app
        if self._unwritten and app.is_running and not app.is_done:
            app.renderer.erase()
            self._write_rest()
            app.invalidate()

    def _write_rest(self) -> None:
        output = self._session.app.output
        while self._unwritten:
            output.write_raw(self._unwritten.popleft())
        output.flush()

    def _accept(self, buffer: Any) -> bool:
        self._post(buffer.text)
        return False  # the line is emptied, and the editor goes on

    def _post(self, typed: Input) -> None:
        with suppress(trio.RunFinishedError):
            self._trio.run_sync_soon(self._put, typed)

    def _put(self, typed: Input) -> None:
        with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
            self._send.send_nowait(typed)

    def _fragments(self) -> StyleAndTextTuples:
        above: StyleAndTextTuples = []
        if self._unfinished:
            above += [("", f"{self._unfinished}\n")]
        if self._status:
            above += [("class:status", f"{self._status}\n")]
        return [*above, ("bold", PROMPT)]

    def _key_bindings(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text and not self._is_busy:
                event.current_buffer.reset()
            else:
                self._post(Key.INTERRUPT)

        @keys.add("enter", filter=Condition(self._ends_in_backslash))
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.delete_before_cursor()
            event.current_buffer.newline(copy_margin=False)

        @keys.add("enter", filter=~Condition(self._ends_in_backslash))
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.newline(copy_margin=False)

        @keys.add("c-d", filter=Condition(lambda: not self._session.app.current_buffer.text))
        def _(_: KeyPressEvent) -> None:
            self._exit(exception=EOFError)

        return keys

    def _ends_in_backslash(self) -> bool:
        return self._session.default_buffer.document.text_before_cursor.endswith("\\")


class ChatOutput(io.TextIOBase):
    """A stream to the terminal; while a line is edited, whole lines are written above it."""

    def __init__(self) -> None:
        self._terminal = sys.stdout
        self._editor: LineEditor | None = None
        self._line = ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._terminal.encoding

    def isatty(self) -> bool:
        return self._terminal.isatty()

    def fileno(self) -> int:
        return self._terminal.fileno()

    def set_editor(self, editor: LineEditor | None) -> None:
        """Write above a line that is edited from now on, or to the terminal."""
        self._editor = editor

    def write(self, text: str, /) -> int:
        # A line without its end would be glued to the typed text.
        lines, end, self._line = (self._line + text).rpartition("\n")
        if end and self._editor is None:
            self._terminal.write(lines + end)
            self._terminal.flush()
        elif end and self._editor is not None:
            self._editor.write(lines + end)
        return len(text)


def _output() -> Vt100_Output:
    # Nothing here needs the position of the cursor, and not every terminal tells it.
    output = Vt100_Output.from_pty(sys.stdout, term=os.environ.get("TERM"))
    output.enable_cpr = False
    return output


def _open_history(file: Path | None) -> History:
    """Return the lines typed in earlier chats, from a file that only this user may read."""
    if file is None:
        return InMemoryHistory()
    make_private_folder(file.parent)
    os.close(os.open(file, os.O_CREAT | os.O_APPEND, PRIVATE_FILE))
    return FileHistory(file)


@asynccontextmanager
async def open_line_editor(
    output: ChatOutput, history: Path | None, words: Sequence[str]
) -> AsyncGenerator[LineEditor]:
    """Let the user type for the block, and print all output of this process above the line."""
    editor = LineEditor(history, words)
    with raising_one_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(editor.edit)
            try:
                await editor.wait_started()
                output.set_editor(editor)
                # Tools of the user may print, too.
                with redirect_stdout(output), redirect_stderr(output):
                    yield editor
            finally:
                output.set_editor(None)
                editor.close()
