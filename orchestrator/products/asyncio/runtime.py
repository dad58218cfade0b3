"""The orchestrator for asyncio: the same as `orchestrator.Orchestrator`, in trio's thread.

Methods that read its state are coroutines here, since another thread changes the state.
"""

import inspect
import sys
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import trio

from orchestrator import composition
from orchestrator.delegation import SessionId, Tree
from orchestrator.delegation.events.approvals import ApprovalQuestion
from orchestrator.ports import sessions as kernel
from orchestrator.ports.sessions import session, streamed_run
from orchestrator.products.asyncio.opened import Opened
from orchestrator.products.asyncio.session import Received, Session, open_session
from orchestrator.products.asyncio.streamed_run import StreamedRun, open_stream
from orchestrator.products.asyncio.tree_copy import copied
from orchestrator.products.asyncio.trio_thread import TrioThread

OutputT = TypeVar("OutputT")
ParametersT = ParamSpec("ParametersT")
ResultT = TypeVar("ResultT")


def _in_thread(
    method: Callable[Concatenate[kernel.Orchestrator, ParametersT], Awaitable[ResultT]],
) -> Callable[Concatenate["Orchestrator", ParametersT], Coroutine[Any, Any, ResultT]]:
    """Return a method with the same signature and docstring that runs in trio's thread."""

    @wraps(method)
    async def call(
        self: "Orchestrator", /, *args: ParametersT.args, **keywords: ParametersT.kwargs
    ) -> ResultT:
        # The attributes of the class below.
        thread, inner = self._thread, self._inner  # pyright: ignore[reportPrivateUsage]
        return await thread.call(partial(method, inner, *args, **keywords))

    return call


def _shown_in_thread(
    method: Callable[Concatenate[kernel.Orchestrator, ParametersT], Awaitable[kernel.Run[OutputT]]],
) -> Callable[Concatenate["Orchestrator", ParametersT], Coroutine[Any, Any, kernel.Run[OutputT]]]:
    """Return a method like `run`, whose run a notebook may show while it goes on."""
    call_in_thread = _in_thread(method)

    @wraps(method)
    async def call(
        self: "Orchestrator", /, *args: ParametersT.args, **keywords: ParametersT.kwargs
    ) -> kernel.Run[OutputT]:
        if not self.shows_runs:
            return await call_in_thread(self, *args, **keywords)
        # It has the arguments of `run`.
        stream: Callable[..., Opened[StreamedRun[OutputT]]] = self.stream
        async with stream(*args, **keywords) as streamed:
            streamed.show()
            return await streamed.wait()

    return call


def _stream_in_thread(
    method: Callable[
        Concatenate[kernel.Orchestrator, ParametersT],
        AbstractAsyncContextManager[streamed_run.StreamedRun[OutputT]],
    ],
) -> Callable[Concatenate["Orchestrator", ParametersT], Opened[StreamedRun[OutputT]]]:
    """Return a method like `stream`, for a run in trio's thread."""

    @wraps(method)
    def call(
        self: "Orchestrator", /, *args: ParametersT.args, **keywords: ParametersT.kwargs
    ) -> Opened[StreamedRun[OutputT]]:
        thread, inner = self._thread, self._inner  # pyright: ignore[reportPrivateUsage]
        stream = partial(method, inner, *args, **keywords)
        return Opened(lambda: _keep(self, open_stream(thread, stream, inner.read)))

    return call


def _session_in_thread(
    method: Callable[
        Concatenate[kernel.Orchestrator, ParametersT], AbstractAsyncContextManager[session.Session]
    ],
) -> Callable[Concatenate["Orchestrator", ParametersT], Opened[Session]]:
    """Return a method like `open_session`, for a conversation in trio's thread."""

    @wraps(method)
    def call(
        self: "Orchestrator", /, *args: ParametersT.args, **keywords: ParametersT.kwargs
    ) -> Opened[Session]:
        thread, inner = self._thread, self._inner  # pyright: ignore[reportPrivateUsage]
        open_ = partial(method, inner, *args, **keywords)
        return Opened(lambda: _keep(self, open_session(thread, open_, inner.read)))

    return call


class _Part(Protocol):
    orchestrator: object


PartT = TypeVar("PartT", bound=_Part)


async def _keep(orchestrator: "Orchestrator", opening: Awaitable[PartT]) -> PartT:
    """Keep an orchestrator as long as a part of it is used."""
    part = await opening
    part.orchestrator = orchestrator
    return part


class Orchestrator:
    """Runs agents on one journal, while it is open. Any number of tasks may use it at once."""

    def __init__(
        self,
        thread: TrioThread[kernel.Orchestrator],
        inner: kernel.Orchestrator,
        *,
        shows_runs: bool = False,
    ) -> None:
        self._thread = thread
        self._inner = inner
        self.shows_runs = shows_runs
        """Whether a notebook shows each run while it goes on."""
        self.questions = Received(thread, inner.questions.receive)
        """The approval questions of all runs and sessions, each once. Answer them with `answer`."""

    run = _shown_in_thread(kernel.Orchestrator.run)
    resume = _in_thread(kernel.Orchestrator.resume)
    fork = _in_thread(kernel.Orchestrator.fork)
    retry = _in_thread(kernel.Orchestrator.retry)
    stream = _stream_in_thread(kernel.Orchestrator.stream)
    open_session = _session_in_thread(kernel.Orchestrator.open_session)
    cancel = _in_thread(kernel.Orchestrator.cancel)
    pause = _in_thread(kernel.Orchestrator.pause)
    unpause = _in_thread(kernel.Orchestrator.unpause)
    steer = _in_thread(kernel.Orchestrator.steer)
    close_session = _in_thread(kernel.Orchestrator.close_session)
    answer = _in_thread(kernel.Orchestrator.answer)
    drain = _in_thread(kernel.Orchestrator.drain)
    wait_changed = _in_thread(kernel.Orchestrator.wait_changed)

    async def read_approvals(self) -> list[ApprovalQuestion]:
        """Return the calls that wait for an approval, oldest first."""
        return await self._read(lambda: self._inner.approvals)

    async def read_runs(self) -> list[SessionId]:
        """Return the ids of all runs and sessions in the journal, oldest first."""
        return await self._read(lambda: self._inner.runs)

    async def count_working(self) -> int:
        """Return the number of running tasks, the turns of runs and sessions included."""
        return await self._read(lambda: self._inner.working)

    async def read_tree(self, session: str) -> Tree:
        """Return the current tree of a run or a session."""

        async def read() -> Tree:
            return await copied(await self._inner.read_tree(session))

        return await self._thread.call(read)

    async def aclose(self) -> None:
        """Close the orchestrator, and return when all its work has ended or is interrupted."""
        await self._thread.close()

    def __del__(self) -> None:
        thread: TrioThread[Any] | None = getattr(self, "_thread", None)
        if thread is not None and thread.is_open:
            thread.abandon()
            warnings.warn(
                "an orchestrator was dropped while it was open: use `async with"
                " open_orchestrator()`, or `await orchestrator.aclose()`",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    async def _read(self, read: Callable[[], ResultT]) -> ResultT:
        async def in_the_thread() -> ResultT:
            await trio.lowlevel.checkpoint()
            return read()

        return await self._thread.call(in_the_thread)


def _like(
    original: Callable[ParametersT, object],
) -> Callable[[Callable[..., ResultT]], Callable[ParametersT, ResultT]]:
    """Give a function the arguments of another function."""

    def decorate(function: Callable[..., ResultT]) -> Callable[ParametersT, ResultT]:
        function.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
        return function

    return decorate


@_like(composition.open_orchestrator)
def open_orchestrator(*args: Any, **keywords: Any) -> Opened[Orchestrator]:
    """Open an orchestrator for asyncio: for a block, or until its `aclose` is called.

    It takes the arguments of `orchestrator.open_orchestrator`. The loop that opens it runs the
    asyncio functions of its agents; other loops of the process may use it too.
    """
    shows_runs = keywords.get("progress") == "auto" and _is_notebook()
    if shows_runs:
        del keywords["progress"]
    open_held = partial(composition.open_orchestrator, *args, **keywords)
    return Opened(lambda: _open(open_held, shows_runs=shows_runs))


def _is_notebook() -> bool:
    """Return whether the program is a cell of a notebook, whose kernel is an application."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


async def _open(open_held: "Callable[[], Any]", *, shows_runs: bool) -> Orchestrator:
    thread: TrioThread[kernel.Orchestrator] = TrioThread(open_held)
    return Orchestrator(thread, await thread.open(), shows_runs=shows_runs)
