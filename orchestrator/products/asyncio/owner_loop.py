"""The asyncio loop that opened an orchestrator, and that runs its asyncio functions for trio.

Trio runs in another thread. A function that a trio task starts in the loop has the context of that
task, is cancelled with it, and ends before the task continues. A blocked loop cannot end a
function: the task waits for it at most `CLEANUP_SECONDS`.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final, Generic, ParamSpec, TypeVar

import trio

from orchestrator.agents import DefinitionError, ToolError

CLEANUP_SECONDS: Final = 5
"""The seconds that a cancelled asyncio function may take to end; after that, it is abandoned."""

ParametersT = ParamSpec("ParametersT")
ValueT = TypeVar("ValueT")


class OwnerLoop:
    """An asyncio loop that runs in another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def post(self, function: Callable[..., object], *args: object) -> bool:
        """Call a function in the loop soon, and return whether the loop is still open."""
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            return False
        return True

    async def run(self, function: Callable[[], Awaitable[ValueT]]) -> ValueT:
        """Run an asyncio coroutine function in the loop, for a trio task."""
        started = _Started(function, self._loop)
        if not self.post(started.begin):
            raise ToolError("the event loop that opened the orchestrator is closed")
        try:
            await started.ended.wait()
        finally:
            # Cancelled: wait for the function to end, as with a trio function. A loop that has
            # stopped or is blocked accepts the call, but never makes it.
            if not started.ended.is_set() and self.post(started.cancel):
                with trio.move_on_after(CLEANUP_SECONDS, shield=True):
                    await started.ended.wait()
        return started.value()


class _Started(Generic[ValueT]):
    """An asyncio function that a trio task has started."""

    def __init__(
        self, function: Callable[[], Awaitable[ValueT]], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._function = function
        self._loop = loop
        self._context = contextvars.copy_context()
        self._trio = trio.lowlevel.current_trio_token()
        self._task: asyncio.Task[ValueT] | None = None
        self.ended = trio.Event()

    def begin(self) -> None:
        self._task = self._loop.create_task(self._run(), context=self._context)
        self._task.add_done_callback(self._end)

    def cancel(self) -> None:
        assert self._task is not None, "the loop calls in order"
        self._task.cancel()

    async def _run(self) -> ValueT:
        return await self._function()

    def _end(self, _: object) -> None:
        with suppress(trio.RunFinishedError):
            self._trio.run_sync_soon(self.ended.set)

    def value(self) -> ValueT:
        task = self._task
        assert task is not None, "it has ended"
        if task.cancelled():
            raise ToolError("the function was cancelled by its own event loop")
        return task.result()


OWNER: Final[ContextVar[OwnerLoop | None]] = ContextVar("owner loop", default=None)
"""The loop that opened the orchestrator. It is set in trio's thread, so every task inherits it."""


async def run_in_asyncio(
    function: Callable[ParametersT, Awaitable[ValueT]],
    /,
    *args: ParametersT.args,
    **keywords: ParametersT.kwargs,
) -> ValueT:
    """Run an asyncio coroutine function in the loop that opened this orchestrator.

    For code that trio runs, such as pipelines and hooks. Cancelling this call cancels the function.

    Raises:
        DefinitionError: the orchestrator was not opened by `orchestrator.asyncio`.
    """
    owner = OWNER.get()
    if owner is None:
        name: Any = getattr(function, "__qualname__", function)
        raise DefinitionError(
            f"{name} is an asyncio function, but the orchestrator was opened on trio: open it"
            " with `orchestrator.asyncio.open_orchestrator`, or write the function for trio"
        )
    return await owner.run(lambda: function(*args, **keywords))
