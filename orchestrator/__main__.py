"""The command `orchestrator`, and `python -m orchestrator`."""

import os
import sys


def main() -> None:
    _open_closed_streams()
    # Imported here: importing the library must not import its command line.
    from orchestrator.cli.app import run_command

    sys.exit(run_command(sys.argv[1:]))


def _open_closed_streams() -> None:
    """Open the null device where standard input or output is closed."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        if opened:
            stream = open(opened, "w", encoding="utf-8")  # noqa: PTH123, SIM115
            setattr(sys, ("stdout", "stderr")[opened - 1], stream)
    os.close(opened)


if __name__ == "__main__":
    main()
