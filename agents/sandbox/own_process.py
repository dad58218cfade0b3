"""Keeps this process to itself: its environment and memory cannot be read by its own commands."""

import ctypes
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4


def forbid_inspection() -> None:
    """Make `/proc/PID/environ`, `/proc/PID/mem` and `ptrace` of this process fail for its user.

    It also writes no core dump from now on. It does not help against root. Idempotent.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
