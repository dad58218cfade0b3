"""The command `orchestrator`, and `python -m orchestrator`."""

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager


def main() -> None:
    with _end_quietly_on_interrupt():
        _open_closed_streams()
        # Imported here: importing the library must not import its command line.
        from orchestrator.cli.app import run_command

    code = run_command(sys.argv[1:])
    with _end_quietly_on_interrupt():
        sys.exit(code)


@contextmanager
def _end_quietly_on_interrupt() -> Generator[None]:
    """Let Ctrl-C end the process by its signal, without a traceback, while no command runs."""
    # A shell that starts us in the background has the signal ignored: that stays.
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    yield
    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _open_closed_streams() -> None:
    """Open the null device where standard input or output is closed."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        if opened:
            stream = open(opened, "w", encoding="utf-8")  # noqa: PTH123, SIM115
            setattr(sys, ("stdout", "stderr")[opened - 1], stream)
    os.close(opened)


if __name__ == "__main__":
    main()
