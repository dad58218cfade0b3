"""The check that trio runs the code that awaits us.

A coroutine of trio that another loop awaits fails deep inside (`Task got bad yield`). Everything
that a program awaits first asks here, so that it reads what to do instead.
"""

import trio

from orchestrator.kernel.errors import WrongLoopError


def require_trio() -> None:
    """Raise an error that says what to do, unless a task of trio runs this.

    Raises:
        WrongLoopError: asyncio runs this, or no loop at all.
    """
    if not trio.lowlevel.in_trio_task():
        raise WrongLoopError
