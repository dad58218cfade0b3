"""Exit codes of the command line.

A run exits by its ending. Two is a usage error; a signal exits with 128 and its number, as in a
shell: 130 is Ctrl-C, 143 is SIGTERM.
"""

from typing import Final

from delegation import Ending

SUCCEEDED: Final = 0
FAILED: Final = 1
USAGE: Final = 2
SIGNAL_BASE: Final = 128
INTERRUPTED: Final = 130

ENDING_CODES: Final[dict[Ending, int]] = {
    Ending.SUCCEEDED: SUCCEEDED,
    Ending.FAILED: FAILED,
    Ending.REFUSED: FAILED,
    Ending.LOST: FAILED,
    Ending.OVER_BUDGET: 3,
    Ending.TIMED_OUT: 4,
    Ending.CANCELLED: 5,
}
