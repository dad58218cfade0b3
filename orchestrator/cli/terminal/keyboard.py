"""Keys as they are pressed, in a terminal that is always put back as it was.

While it is ours, the terminal shows nothing of what is typed and waits for no line end. Ctrl-C and
Ctrl-Z still mean what they mean everywhere.
"""

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
"""How long the rest of a sequence may take: what comes later is a key of its own."""
LFLAG: Final = 3
"""Where the local modes stand among the attributes of a terminal."""
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
    """What somebody presses, one by one."""

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
        """Take one key off what was read; None if it means nothing to us."""
        found = SEQUENCE.match(self._unread)
        pressed = found[0] if found else self._unread[0]
        self._unread = self._unread[len(pressed) :]
        if pressed in KEY_NAMES:
            return KEY_NAMES[pressed]
        return pressed if pressed.isprintable() else None


class InputLine:
    """A line that somebody types, drawn by whoever draws the rest."""

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
    """A terminal that is ours. `raw_terminal` makes it so."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._before = termios.tcgetattr(descriptor)

    def enter_raw_mode(self) -> None:
        ours = termios.tcgetattr(self._descriptor)
        ours[LFLAG] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(self._descriptor, termios.TCSANOW, ours)

    def restore(self) -> None:
        # It may be gone, and then there is nothing to be put back.
        with suppress(termios.error, OSError):
            termios.tcsetattr(self._descriptor, termios.TCSANOW, self._before)

    async def stop_with_ctrl_z(
        self,
        stops: AsyncIterator[int],
        hide: Callable[[], None],
        restore: Callable[[], None],
    ) -> NoReturn:
        """Let Ctrl-Z stop the process with the terminal as it was, until cancelled.

        Args:
            stops: tells of each Ctrl-Z.
            leave: takes away what we have drawn.
            come_back: draws it again.
        """
        async for _ in stops:
            hide()
            self.restore()
            os.kill(os.getpid(), signal.SIGSTOP)
            self.enter_raw_mode()
            restore()
        raise AssertionError("signals never end")


@contextmanager
def raw_terminal(
    descriptor: int = STDIN,
) -> Generator[tuple[RawTerminal, AsyncIterator[int]]]:
    """Have every key at once and show none, as long as the block lasts.

    Gives what tells of each Ctrl-Z, too. Whoever takes the terminal has to see to that, and nobody
    is stopped before: a shell would find the terminal as we need it.
    """
    terminal = RawTerminal(descriptor)
    with trio.open_signal_receiver(signal.SIGTSTP) as stops:
        terminal.enter_raw_mode()
        try:
            yield terminal, stops
        finally:
            terminal.restore()


def terminal_restorer() -> Callable[[], None]:
    """Return what puts the terminal back as it is now, for whoever leaves without cleaning up."""
    if not os.isatty(STDIN):
        return lambda: None
    return RawTerminal(STDIN).restore
