"""A thread that runs trio, and the calls that asyncio makes into it.

A call runs in the context of its caller, so that the caller's budgets apply. Cancelling the caller
cancels the call, and the caller continues when the call has ended. Any number of loops may call.
"""

import asyncio
import atexit
import contextvars
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext, suppress
from typing import Any, Final, Generic, TypeAlias, TypeVar

import outcome
import trio

from orchestrator.agents import raising_one_error
from orchestrator.ports.errors import ClosedError, WrongLoopError
from orchestrator.products.asyncio.owner_loop import OWNER, OwnerLoop

EXIT_SECONDS: Final = 5
"""The seconds that a process that exits without closing waits for running work."""
NEEDS_ASYNCIO: Final = (
    "this needs asyncio, and asyncio does not run here: under trio take `from orchestrator import"
    " open_orchestrator` and await the same methods of what that opens, and in a program without a"
    " loop call `run_sync(agent, goal)`"
)

ValueT = TypeVar("ValueT")
HeldT = TypeVar("HeldT")
OpenHeld: TypeAlias = Callable[[], AbstractAsyncContextManager[HeldT]]
Result: TypeAlias = outcome.Value[ValueT] | outcome.Error | None
"""The result of a call; None if it was cancelled."""


class Call(Generic[ValueT]):
    """A call of a trio coroutine function, by an asyncio task."""

    def __init__(self, function: Callable[[], Awaitable[ValueT]], owner: OwnerLoop) -> None:
        self._function = function
        self._owner = owner
        loop = running_loop()
        self._caller = OwnerLoop(loop)
        self._scope = trio.CancelScope()
        self.ended: asyncio.Future[Result[ValueT]] = loop.create_future()

    async def run(self) -> None:  # noqa: ASYNC910 (the function that it calls checkpoints)
        """Run the function, and hand over its result. Called in trio's thread."""
        OWNER.set(self._owner)
        result: Result[ValueT] = None
        try:
            with self._scope:
                result = outcome.Value(await self._function())
        except Exception as exc:  # noqa: BLE001 (the caller in the other thread gets it)
            result = outcome.Error(exc)
        finally:
            self.end(result)

    def end(self, result: Result[ValueT]) -> None:
        # A closed loop does not wait for the result.
        self._caller.post(_set_once, self.ended, result)

    def cancel(self) -> None:
        """Cancel the call. Called in trio's thread."""
        self._scope.cancel(reason="its caller was cancelled")


class TrioThread(Generic[HeldT]):
    """Holds one trio context manager open in a thread, and runs calls beside it."""

    def __init__(self, open_held: OpenHeld[HeldT]) -> None:
        loop = running_loop()
        self._open_held = open_held
        self._owner = OwnerLoop(loop)
        self._opened: asyncio.Future[Result[HeldT]] = loop.create_future()
        self._ended: asyncio.Future[Result[None]] = loop.create_future()
        self._token: trio.lowlevel.TrioToken | None = None
        self._opening: trio.CancelScope | None = trio.CancelScope()
        """Cancels the opening; None when the opening is over."""
        self._is_unwanted = False
        """Whether the opening was cancelled, perhaps before trio ran."""
        self._is_closing = False
        self._nursery: trio.Nursery | None = None
        self._thread = threading.Thread(
            target=contextvars.copy_context().run,
            args=[self._run],
            name="trio of the orchestrator",
            # The process can exit without closing the thread.
            daemon=True,
        )

    async def open(self) -> HeldT:
        """Start the thread, and return the opened object. Cancelling this cancels the opening."""
        self._thread.start()
        atexit.register(self._end_with_process)
        try:
            await asyncio.shield(self._opened)
        except asyncio.CancelledError:
            self._is_unwanted = True
            with suppress(Exception):
                await self.close()  # noqa: ASYNC102 (it waits to the end)
            raise
        opened = self._opened.result()
        if not isinstance(opened, outcome.Value):
            await self.close()
            raise _closed()
        return opened.value

    @property
    def is_open(self) -> bool:
        """Whether it runs, and is not about to end."""
        return self._thread.is_alive() and not self._is_closing

    def abandon(self) -> None:
        """Close the held context manager, and do not wait for the end of the thread."""
        self._is_closing = True
        self.soon(self._cancel)

    async def close(self) -> None:
        """Cancel the calls, close the held context manager, and return when the thread has ended.

        Raises the error that ended the thread, if there was one.
        """
        self._is_closing = True
        self.soon(self._cancel)
        await wait_uncancelled(self._ended)
        self._thread.join()
        atexit.unregister(self._end_with_process)
        ended = self._ended.result()
        assert ended is not None, "a thread that has ended has a result"
        ended.unwrap()

    async def call(
        self,
        function: Callable[[], Awaitable[ValueT]],
        on_untaken: Callable[[ValueT], object] | None = None,
    ) -> ValueT:
        """Run a trio coroutine function, and return its result; raise `ClosedError` at the end.

        `on_untaken` is called with the result if the caller is cancelled as the result arrives.
        """
        call = self.start(function)
        try:
            result = await asyncio.shield(call.ended)
        except asyncio.CancelledError:
            self.soon(call.cancel)
            with suppress(asyncio.CancelledError):
                await wait_uncancelled(call.ended)  # noqa: ASYNC102 (it waits to the end)
            untaken = call.ended.result()
            if on_untaken is not None and isinstance(untaken, outcome.Value):
                on_untaken(untaken.value)
            raise
        if result is None:
            raise _closed()
        return result.unwrap()

    def read(self, function: Callable[[], ValueT]) -> ValueT:
        """Block on a short function in the thread that reads state, or raise `ClosedError`."""
        done: Future[ValueT] = Future()

        def read() -> None:
            try:
                done.set_result(function())
            except Exception as exc:  # noqa: BLE001 (the caller in the other thread gets it)
                done.set_exception(exc)

        if self._token is None:
            raise _closed()
        try:
            self._token.run_sync_soon(read)
        except trio.RunFinishedError:
            raise _closed() from None
        return done.result()

    def start(self, function: Callable[[], Awaitable[ValueT]]) -> Call[ValueT]:
        """Begin a call, and return it at once."""
        nursery, token = self._nursery, self._token
        if nursery is None or token is None:
            raise _closed()
        call = Call(function, self._owner)
        context = contextvars.copy_context()

        def start() -> None:
            try:
                context.run(nursery.start_soon, call.run)
            except RuntimeError:
                call.end(None)  # closed in the meantime

        try:
            token.run_sync_soon(start)
        except trio.RunFinishedError:
            raise _closed() from None
        return call

    def soon(self, function: Callable[[], object]) -> None:
        """Call a function in the thread, unless the thread has ended."""
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(function)

    def _cancel(self) -> None:
        """Cancel the opening or the calls; the held context manager is then closed as usual."""
        if self._opening is not None:
            self._opening.cancel(reason="what opens it was cancelled")
        elif self._nursery is not None:
            self._nursery.cancel_scope.cancel(reason="the orchestrator is closed")

    def _run(self) -> None:
        """Run trio until it is closed. This is the body of the thread."""
        OWNER.set(self._owner)
        try:
            trio.run(self._hold)
            ended: outcome.Value[None] | outcome.Error = outcome.Value(None)
        except BaseException as exc:  # noqa: ASYNC103, BLE001 (the other thread gets it)
            ended = outcome.Error(exc)
        self._owner.post(_set_once, self._opened, None)
        self._owner.post(_set_once, self._ended, ended)

    async def _hold(self) -> None:
        assert self._opening is not None, "it is opened once"
        with self._opening:
            # Set the token first: a cancelled caller sets the flag, and then reads the token.
            self._token = trio.lowlevel.current_trio_token()
            if self._is_unwanted:
                self._cancel()
            async with self._open_held() as held:
                self._opening = None
                await self._run_calls(held)

    async def _run_calls(self, held: HeldT) -> None:
        try:
            with raising_one_error():
                # Owns the calls of all loops.
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    self._owner.post(_set_once, self._opened, outcome.Value(held))
                    await trio.sleep_forever()
        finally:
            self._nursery = None

    def _end_with_process(self) -> None:
        self.soon(self._cancel)
        self._thread.join(EXIT_SECONDS)


class Held(Generic[HeldT]):
    """A trio context manager that an asyncio block holds open in the thread."""

    def __init__(self, thread: TrioThread[Any], open_held: OpenHeld[HeldT]) -> None:
        self._thread = thread
        self._open_held = open_held
        self._left = trio.Event()
        loop = running_loop()
        self._opened: asyncio.Future[Result[HeldT]] = loop.create_future()
        self._caller = OwnerLoop(loop)
        self._call: Call[None] | None = None

    async def open(self) -> HeldT:
        """Enter the context manager, and return its value."""
        call = self._call = self._thread.start(self._hold)
        call.ended.add_done_callback(lambda _: _set_once(self._opened, None))
        try:
            opened = await asyncio.shield(self._opened)
        except asyncio.CancelledError:
            self._thread.soon(call.cancel)
            with suppress(asyncio.CancelledError):
                await wait_uncancelled(call.ended)  # noqa: ASYNC102 (it waits to the end)
            raise
        if not isinstance(opened, outcome.Value):
            await self.close()
            raise _closed()
        return opened.value

    async def close(self) -> None:
        """Leave the context manager, and return when that is done."""
        assert self._call is not None, "it was opened"
        self._thread.soon(self._left.set)
        await wait_uncancelled(self._call.ended)
        ended = self._call.ended.result()
        if isinstance(ended, outcome.Error):
            ended.unwrap()

    async def _hold(self) -> None:
        async with self._open_held() as held:
            self._caller.post(_set_once, self._opened, outcome.Value(held))
            await self._left.wait()


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running asyncio loop; raise `WrongLoopError` if trio runs here, or no loop."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise WrongLoopError(NEEDS_ASYNCIO) from None


async def wait_uncancelled(  # noqa: ASYNC910 (asyncio needs no checkpoints)
    future: "asyncio.Future[Any]",
) -> None:
    """Wait until a future is done, and raise a cancellation only then."""
    cancelled: asyncio.CancelledError | None = None
    with _shielded_from_anyio():
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as exc:  # noqa: ASYNC103 (raised at the end)
                cancelled = exc
    if cancelled is not None:
        raise cancelled


def _shielded_from_anyio() -> AbstractContextManager[object]:
    """Shield from an anyio scope, if the program uses anyio: such scopes cancel repeatedly."""
    anyio: Any = sys.modules.get("anyio")
    return nullcontext() if anyio is None else anyio.CancelScope(shield=True)


def _set_once(future: "asyncio.Future[Any]", value: object) -> None:
    if not future.done():
        future.set_result(value)


def _closed() -> ClosedError:
    return ClosedError("the orchestrator is closed")
