"""Exit codes of the command line.

A run exits by its ending. Two is a usage error; a signal exits with 128 and its number, as in a
shell: 129 is a closed terminal, 130 is Ctrl-C, 143 is SIGTERM.
"""

from typing import Final, assert_never

from orchestrator.delegation import Ending

SUCCEEDED: Final = 0
FAILED: Final = 1
USAGE: Final = 2
SIGNAL_BASE: Final = 128
INTERRUPTED: Final = 130


def _code_of(ending: Ending) -> int:
    match ending:
        case Ending.SUCCEEDED:
            return SUCCEEDED
        case Ending.FAILED | Ending.REFUSED | Ending.LOST:
            return FAILED
        case Ending.OVER_BUDGET:
            return 3
        case Ending.TIMED_OUT:
            return 4
        case Ending.CANCELLED:
            return 5
        case _:
            assert_never(ending)


ENDING_CODES: Final[dict[Ending, int]] = {ending: _code_of(ending) for ending in Ending}
