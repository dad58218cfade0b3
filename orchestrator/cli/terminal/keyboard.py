"""Single keys from a terminal in raw mode, which is always restored."""

import codecs
import os
import re
import signal
import termios
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final, NoReturn

import trio
from rich.text import Text

STDIN: Final = 0
CHUNK: Final = 1024
ESCAPE_SECONDS: Final = 0.05
"""The seconds that the rest of an escape sequence may take; a later byte is another key."""
LFLAG: Final = 3
"""The index of the local modes among the attributes of a terminal."""
SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O[@-~])")
UNFINISHED: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*|O)?$")
KEY_NAMES: Final = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1bOH": "home",
    "\x1bOF": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x15": "ctrl-u",
    "\x04": "ctrl-d",
    "\x0c": "ctrl-l",
}


class KeyReader:
    """Reads keys, one by one."""

    def __init__(self, descriptor: int = STDIN) -> None:
        self._descriptor = descriptor
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unread = ""

    async def read(self) -> str | None:
        """Return the next key: a character, or a name such as `up`; None at the end."""
        while True:
            await trio.lowlevel.checkpoint()
            if not self._unread and not await self._receive():
                return None
            if UNFINISHED.match(self._unread):
                with trio.move_on_after(ESCAPE_SECONDS):
                    await self._receive()
            if self._unread and (key := self._next_key()) is not None:
                return key

    async def _receive(self) -> bool:
        await trio.lowlevel.wait_readable(self._descriptor)
        try:
            chunk = os.read(self._descriptor, CHUNK)
        except OSError:
            # The terminal is gone.
            return False
        self._unread += self._decoder.decode(chunk)
        return bool(chunk)

    def _next_key(self) -> str | None:
        """Take one key off the unread text; None if it has no name."""
        found = SEQUENCE.match(self._unread)
        pressed = found[0] if found else self._unread[0]
        self._unread = self._unread[len(pressed) :]
        if pressed in KEY_NAMES:
            return KEY_NAMES[pressed]
        return pressed if pressed.isprintable() else None


class InputLine:
    """A line that the user types, drawn as part of a frame."""

    def __init__(self, prompt: str) -> None:
        self.prompt = prompt
        self.text = ""

    def press(self, key: str) -> str | None:
        """Take a key, and return the line if it has ended."""
        if key == "enter":
            return self.text
        if key == "backspace":
            self.text = self.text[:-1]
        elif key == "ctrl-u":
            self.text = ""
        elif len(key) == 1:
            self.text += key
        return None

    def render(self) -> Text:
        line = Text(self.prompt, style="bold")
        line.append(self.text, style="not bold")
        line.append("█", style="blink")
        return line


class RawTerminal:
    """A terminal in raw mode. `raw_terminal` opens it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._before = termios.tcgetattr(descriptor)

    def enter_raw_mode(self) -> None:
        attributes = termios.tcgetattr(self._descriptor)
        attributes[LFLAG] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(self._descriptor, termios.TCSANOW, attributes)

    def restore(self) -> None:
        # The terminal may be gone.
        with suppress(termios.error, OSError):
            termios.tcsetattr(self._descriptor, termios.TCSANOW, self._before)

    async def stop_with_ctrl_z(
        self, stops: AsyncIterator[int], hide: Callable[[], None], restore: Callable[[], None]
    ) -> NoReturn:
        """Let Ctrl-Z stop the process with the terminal restored, until cancelled."""
        async for _ in stops:
            hide()
            self.restore()
            os.kill(os.getpid(), signal.SIGSTOP)
            self.enter_raw_mode()
            restore()
        raise AssertionError("signals never end")


@contextmanager
def raw_terminal(descriptor: int = STDIN) -> Generator[tuple[RawTerminal, AsyncIterator[int]]]:
    """Put the terminal into raw mode for the block.

    Also yields an item for each Ctrl-Z. The caller must run `stop_with_ctrl_z`: a process that
    stops in raw mode would leave the shell without echo.
    """
    terminal = RawTerminal(descriptor)
    with trio.open_signal_receiver(signal.SIGTSTP) as stops:
        terminal.enter_raw_mode()
        try:
            yield terminal, stops
        finally:
            terminal.restore()


def terminal_restorer() -> Callable[[], None]:
    """Return a function that restores the terminal, for an exit without clean-up."""
    if not os.isatty(STDIN):
        return lambda: None
    return RawTerminal(STDIN).restore
