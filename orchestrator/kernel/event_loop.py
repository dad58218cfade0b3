"""The check that trio runs the code that awaits us.

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
