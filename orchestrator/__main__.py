"""The command `orchestrator`, and `python -m orchestrator`."""

import sys


def main() -> None:
    # Imported here: whoever imports the library does not pay for its command line.
    from orchestrator.cli.app import run_command

    sys.exit(run_command(sys.argv[1:]))


if __name__ == "__main__":
    main()
