"""`while_connected`: cancels work for an HTTP client that hangs up.

FastAPI and Starlette let a request continue when its client is gone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, Protocol, TypeVar

from orchestrator.ports.errors import OrchestratorError

ValueT = TypeVar("ValueT")


class Connection(Protocol):
    """A request of Starlette, FastAPI, or any other ASGI framework."""

    @property
    def receive(self) -> Callable[[], Awaitable[MutableMapping[str, Any]]]:
        """Waits for the next ASGI message."""
        ...


class ClientGoneError(OrchestratorError):
    """The client has hung up, so its work was cancelled."""


async def while_connected(request: Connection, work: Coroutine[Any, Any, ValueT]) -> ValueT:
    """Await some work, and cancel it when the client of a request hangs up.

    It returns or raises when the work has ended. The body of the request must have been read.

    Args:
        request: the request of the client.
        work: the work for the client, such as `orchestrator.run(...)`.

    Raises:
        ClientGoneError: the client has hung up.
    """
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_wait_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        is_gone = not task.done()
        if is_gone:
            task.cancel()
        await asyncio.wait({task, gone})
    if task.cancelled() and is_gone:
        raise ClientGoneError("the client has hung up")
    return task.result()


async def _wait_disconnected(request: Connection) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
