"""Runs blocking statements in a thread, so that a silent database holds no process.

A statement goes on for a moment after its caller was cancelled: mostly it ends, and its effect is
known. Then its connection is broken off.
"""

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from orchestrator.agents import raising_one_error

if TYPE_CHECKING:
    from orchestrator.products.cluster.database.connection import Connection

ResultT = TypeVar("ResultT")

CANCEL_SECONDS: Final = 2.0
"""How long a statement may go on after its caller was cancelled."""


async def run_statements(
    work: Callable[[], ResultT],
    *,
    break_off: Callable[[], None],
    limiter: trio.CapacityLimiter | None = None,
) -> ResultT:
    """Run statements in a thread, and return their result.

    `break_off` breaks their connection off, so that they fail. It is called again until they have
    ended: they may have connected again meanwhile.
    """
    ended = trio.Event()

    async def break_off_late() -> None:
        try:
            await trio.sleep_forever()
        finally:
            while not ended.is_set():
                with trio.move_on_after(CANCEL_SECONDS, shield=True) as waited:
                    await ended.wait()
                if waited.cancelled_caught:
                    break_off()

    with raising_one_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(break_off_late)
            try:
                result = await trio.to_thread.run_sync(work, limiter=limiter)
            finally:
                ended.set()
                nursery.cancel_scope.cancel()
    return result


def shut(connection: "Connection") -> None:
    """Break a connection off that another thread may be using."""
    import psycopg

    try:
        with socket.socket(fileno=socket.dup(connection.fileno())) as it:
            it.shutdown(socket.SHUT_RDWR)
    except (OSError, ValueError, psycopg.Error):
        return  # it is closed
