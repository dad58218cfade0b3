"""Checks of the event loop: trio runs the code that awaits us, and its time may be virtual.

A trio coroutine that another loop awaits fails deep inside (`Task got bad yield`). Every function
that a program awaits checks here first, so that the program reads the fix instead.
"""

import trio

from orchestrator.kernel.errors import WrongLoopError


def require_trio() -> None:
    """Raise an error that names the fix, unless a trio task runs this.

    Raises:
        WrongLoopError: asyncio runs this, or no loop at all.
    """
    if not trio.lowlevel.in_trio_task():
        raise WrongLoopError


def has_virtual_time() -> bool:
    """Return whether time jumps where all tasks wait, as in a replay, a simulation or a test.

    It would jump while a thread works.
    """
    return hasattr(trio.lowlevel.current_clock(), "jump")
