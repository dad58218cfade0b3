"""Ctrl-C while no command runs: it ends the process by its signal, without a traceback."""

import signal
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def end_quietly_on_interrupt() -> Generator[None]:
    """Let Ctrl-C end the process by its signal, as long as the block lasts."""
    # A shell that starts us in the background has the signal ignored: that stays.
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
