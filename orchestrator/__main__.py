"""The command `orchestrator`, and `python -m orchestrator`."""

import gc
import os
import sys
from typing import Final

COLLECT_AFTER: Final = (5_000, 10, 10)
"""Collect garbage seldom: few objects are in cycles, and a collection walks through all live tasks.

Only the processes of the command line do so; a program decides for itself."""


def main() -> None:
    # Imported here: importing the library must not import its command line.
    from orchestrator.cli.quiet_interrupt import end_quietly_on_interrupt

    with end_quietly_on_interrupt():
        _open_closed_streams()
        from orchestrator.cli.app import run_command

    gc.set_threshold(*COLLECT_AFTER)
    code = run_command(sys.argv[1:])
    with end_quietly_on_interrupt():
        sys.exit(code)


def _open_closed_streams() -> None:
    """Open the null device where standard input or output is closed."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        if opened:
            stream = open(opened, "w", encoding="utf-8")  # noqa: PTH123, SIM115
            setattr(sys, ("stdout", "stderr")[opened - 1], stream)
    os.close(opened)


if __name__ == "__main__":
    main()
