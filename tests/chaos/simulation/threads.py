"""Threads of trio as coroutines: they run in turns with the event loop, in one order per seed.

While blocking code runs, the event loop waits for it. While it blocks, it waits in the event loop,
with `wait_for`. So virtual time passes, and nothing depends on the operating system.
"""

import threading  # noqa: TID251 (one thread runs at a time)
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar, cast

import attrs
import pytest
import trio

ResultT = TypeVar("ResultT")

MOST_THREADS: Final = 500


@attrs.frozen
class _Wait:
    """An async function that blocking code waits for."""

    work: Callable[[], Awaitable[Any]]
    is_shielded: bool
    """A cancelled caller does not interrupt it."""


class _Coroutine:
    """Blocking code in a thread, which runs only while the event loop waits for it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._turn = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._asked: _Wait | None = None
        self._answer: Callable[[], Any] = lambda: None
        self.result: Callable[[], Any] = lambda: None
        """Returns the result, or raises the error."""

    def begin(self, threads: ThreadPoolExecutor) -> _Wait | None:
        """Run until it waits for something; return None if it has ended."""
        threads.submit(self._run)
        return self._wait_back()

    def go_on(self, answer: Callable[[], Any]) -> _Wait | None:
        """Run on with an answer, or with the error that it raises."""
        self._answer = answer
        self._turn.release()
        return self._wait_back()

    def ask(self, wait: _Wait) -> Any:
        """Let the event loop run until it has the answer; called in the thread."""
        self._asked = wait
        self._back.release()
        self._turn.acquire()
        return self._answer()

    def _wait_back(self) -> _Wait | None:
        self._back.acquire()
        asked, self._asked = self._asked, None
        return asked

    def _run(self) -> None:
        _here.coroutine = self
        try:
            result = self._work()
        except BaseException as exc:  # noqa: BLE001 (the caller raises it)
            self.result = _raiser(exc)
        else:
            self.result = lambda: result
        finally:
            _here.coroutine = None
            self._back.release()


class _Here(threading.local):
    """The coroutine of this thread."""

    coroutine: _Coroutine | None = None


_here: Final = _Here()


def _raiser(exc: BaseException) -> Callable[[], Any]:
    def raise_it() -> Any:
        raise exc

    return raise_it


def wait_for(work: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Wait for an async function, in blocking code."""
    return cast("ResultT", _ask(_Wait(work, is_shielded=True)))


def call_in_loop(work: Callable[[], None]) -> None:
    """Call a function of the event loop, from blocking code or from the event loop itself."""

    async def call() -> None:  # noqa: RUF029 (the event loop awaits it)
        work()

    if _here.coroutine is None:
        work()
    else:
        wait_for(call)


def _ask(wait: _Wait) -> Any:
    assert _here.coroutine is not None, "only blocking code waits"
    return _here.coroutine.ask(wait)


def _from_thread_run(function: Callable[..., Awaitable[ResultT]], *args: Any) -> ResultT:
    return cast("ResultT", _ask(_Wait(lambda: function(*args), is_shielded=False)))


def _check_cancelled() -> None:
    _ask(_Wait(trio.lowlevel.checkpoint_if_cancelled, is_shielded=False))


class _Threads:
    """The threads of one round; the nursery owns abandoned ones."""

    def __init__(self, pool: ThreadPoolExecutor, nursery: trio.Nursery) -> None:
        self._pool = pool
        self._nursery = nursery

    async def run_sync(
        self,
        work: Callable[..., ResultT],
        *args: Any,
        thread_name: str | None = None,
        abandon_on_cancel: bool = False,
        limiter: trio.CapacityLimiter | None = None,
    ) -> ResultT:
        """Run blocking code as `trio.to_thread.run_sync` does."""
        del thread_name
        await trio.lowlevel.checkpoint_if_cancelled()
        limiter = limiter or trio.CapacityLimiter(1)
        # A borrower of its own: a task may run another one beside one that it abandoned.
        borrower = object()
        await limiter.acquire_on_behalf_of(borrower)
        outcomes: list[Callable[[], ResultT]] = []
        ended = trio.Event()

        async def run() -> None:
            try:
                outcomes.append(await self._drive(lambda: work(*args)))
            finally:
                limiter.release_on_behalf_of(borrower)
                ended.set()

        if abandon_on_cancel:
            self._nursery.start_soon(run)
            await ended.wait()
        else:
            await run()
        return outcomes[0]()

    async def _drive(self, work: Callable[[], ResultT]) -> Callable[[], ResultT]:
        """Run blocking code to its end, and return a function with its outcome."""
        running = _Coroutine(work)
        asked = running.begin(self._pool)
        while asked is not None:
            try:
                with trio.CancelScope(shield=asked.is_shielded):
                    value = await asked.work()
            except BaseException as exc:  # noqa: BLE001 (it belongs to the code that waits)
                asked = running.go_on(_raiser(exc))
            else:
                asked = running.go_on(partial(_same, value))
        return running.result


def _same(value: Any) -> Any:
    return value


@contextmanager
def simulated_threads(nursery: trio.Nursery) -> Generator[None]:
    """Run the threads of trio as coroutines, for the block; the nursery owns abandoned ones."""
    with ThreadPoolExecutor(MOST_THREADS) as pool, pytest.MonkeyPatch.context() as patch:
        patch.setattr(trio.to_thread, "run_sync", _Threads(pool, nursery).run_sync)
        patch.setattr(trio.from_thread, "run", _from_thread_run)
        patch.setattr(trio.from_thread, "check_cancelled", _check_cancelled)
        yield
