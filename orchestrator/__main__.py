"""The command `orchestrator`, and `python -m orchestrator`."""

import os
import sys


def main() -> None:
    _open_closed_streams()
    # Imported here: whoever imports the library does not pay for its command line.
    from orchestrator.cli.app import run_command

    sys.exit(run_command(sys.argv[1:]))


def _open_closed_streams() -> None:
    """Let nothing else be opened where somebody has closed standard input or output."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        if opened:
            stream = open(opened, "w", encoding="utf-8")  # noqa: PTH123, SIM115
            setattr(sys, ("stdout", "stderr")[opened - 1], stream)
    os.close(opened)


if __name__ == "__main__":
    main()
