"""Real processes in terminals of their own: what they show, and what is typed there."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pyte
from pyte.screens import Char

SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\r")
HOME = "\x1b[H"
SECONDS = 20
# Keys such as Ctrl-C are signals only in the terminal that a session has for its own.
IN_THE_TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.argv[0] = "orchestrator"
from orchestrator.__main__ import main
main()
"""
UP, DOWN, RIGHT, LEFT = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D"


class Terminal:
    """A terminal, and the process in it."""

    def __init__(self, home: Path, *arguments: str, columns: int, rows: int, drawn: bool) -> None:
        self._drawn = pyte.HistoryScreen(columns, rows, history=1000)
        self._stream = pyte.Stream(self._drawn) if drawn else None
        self._ours, self.theirs = pty.openpty()
        self.resize(columns, rows)
        self.modes = termios.tcgetattr(self.theirs)
        self.all = ""
        environ = {**os.environ, "ORCHESTRATOR_HOME": str(home / "state"), "TERM": "xterm-256color"}
        for name in ("CI", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
            environ.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", IN_THE_TERMINAL, *arguments],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            cwd=home,
            env=environ,
            start_new_session=True,
        )

    def resize(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def _read(self, seconds: float) -> bool:
        if not select.select([self._ours], [], [], seconds)[0]:
            return False
        try:
            new = os.read(self._ours, 65536).decode(errors="replace")
        except OSError:
            return False
        self.all += new
        if self._stream is not None:
            self._stream.feed(new)
        return True

    @property
    def screen(self) -> str:
        """The current screen, where each picture begins at the top.

        If it is drawn: what a terminal shows, with all that has scrolled away.
        """
        if self._stream is not None:
            scrolled = [
                "".join(line[column].data for column in range(self._drawn.columns))
                for line in self._drawn.history.top
            ]
            lines = [line.rstrip() for line in (*scrolled, *self._drawn.display)]
            return "\n".join(lines).rstrip("\n")
        return SEQUENCE.sub("", self.all.rpartition(HOME)[2])

    @property
    def rows(self) -> int:
        return self._drawn.lines

    def cells(self, row: int) -> list[Char]:
        """Return a row of what is shown, with its colours; it must be drawn."""
        line = self._drawn.buffer[row]
        return [line[column] for column in range(self._drawn.columns)]

    @property
    def text(self) -> str:
        """All that was ever shown."""
        return SEQUENCE.sub("", self.all)

    def wait_for(self, *words: str, anywhere: bool = False) -> str:
        """Wait until all these words are shown, and return what is.

        A picture may arrive in pieces: name whatever you look for in it.
        """
        until = time.monotonic() + SECONDS
        while True:
            shown = self.text if anywhere else self.screen
            missing = [wanted for wanted in words if wanted not in shown]
            if not missing:
                return shown
            self._read(0.1)
            assert time.monotonic() < until, f"no {missing!r} in:\n{shown}"

    def wait(self) -> int:
        """Wait until the process has ended, and return its code."""
        until = time.monotonic() + SECONDS
        while self.process.poll() is None:
            self._read(0.05)
            assert time.monotonic() < until, self.text[-2000:]
        self.drain()
        return self.process.returncode

    def wait_stopped(self) -> None:
        """Wait until the process does nothing more than wait for SIGCONT."""
        until = time.monotonic() + SECONDS
        kinds = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
        while (found := os.waitid(os.P_PID, self.process.pid, kinds)) is None:
            self._read(0.05)
            assert time.monotonic() < until, self.text[-2000:]
        assert found.si_code == os.CLD_STOPPED, self.text[-2000:]
        self.drain()

    def drain(self) -> None:
        """Read all that was written."""
        while self._read(0):
            pass

    def is_as_before(self) -> bool:
        """Tell whether the terminal is in the modes in which it was."""
        return termios.tcgetattr(self.theirs) == self.modes

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._ours)
        os.close(self.theirs)


@contextmanager
def terminal(
    home: Path, *arguments: str, columns: int = 100, rows: int = 24, drawn: bool = False
) -> Generator[Terminal]:
    """Run a command in a terminal.

    Args:
        home: its working directory.
        arguments: those of the command.
        columns: the width.
        rows: the height.
        drawn: `screen` is what the terminal shows, as a program that moves the cursor needs it.
    """
    it = Terminal(home, *arguments, columns=columns, rows=rows, drawn=drawn)
    try:
        yield it
    finally:
        it.close()
