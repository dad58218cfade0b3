"""The orchestrator for asyncio: the same as `orchestrator.Orchestrator`, in trio's thread.

Methods that read its state are coroutines here, since another thread changes the state.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

import trio

from orchestrator import composition
from orchestrator.agents import Agent, Part
from orchestrator.delegation import SessionId, Tree
from orchestrator.delegation.events.approvals import ApprovalQuestion
from orchestrator.ports import sessions as kernel
from orchestrator.ports.sessions import Run
from orchestrator.products.asyncio.opened import Opened
from orchestrator.products.asyncio.session import Received, Session, open_session
from orchestrator.products.asyncio.streamed_run import StreamedRun, open_stream
from orchestrator.products.asyncio.tree_copy import copied
from orchestrator.products.asyncio.trio_thread import TrioThread

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
DepsT = TypeVar("DepsT")
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


class Orchestrator:
    """Runs agents on one journal, while it is open. Any number of tasks may use it at the same
    time.
    """

    def __init__(self, thread: TrioThread[kernel.Orchestrator], inner: kernel.Orchestrator) -> None:
        self._thread = thread
        self._inner = inner
        self.questions = Received(thread, inner.questions.receive)
        """The approval questions of all runs and sessions, each once. Answer them with `answer`."""

    @overload
    async def run(
        self,
        agent: Agent[OutputT, InputT, None],
        goal: InputT,
        *parts: Part,
        attended: bool = False,
    ) -> Run[OutputT]: ...
    @overload
    async def run(
        self,
        agent: Agent[OutputT, InputT, DepsT],
        goal: InputT,
        *parts: Part,
        deps: DepsT,
        attended: bool = False,
    ) -> Run[OutputT]: ...
    async def run(
        self,
        agent: Agent[OutputT, InputT, Any],
        goal: InputT,
        *parts: Part,
        deps: Any = None,
        attended: bool = False,
    ) -> Run[OutputT]:
        """Run an agent on a goal, and return when its whole tree is settled.

        Cancelling this call cancels the tree, and raises when every task of the tree has ended.

        Args:
            agent: the agent to run.
            goal: a text, or the input of a pipeline.
            parts: images and files for the goal.
            deps: the program's object for the tools and instructions of the whole tree.
            attended: whether another task answers `asks` meanwhile; if not, a call that needs
                an approval is denied.
        """
        run = partial(self._inner.run, agent, goal, *parts, deps=deps, attended=attended)
        return await self._thread.call(run)

    @overload
    def stream(
        self,
        agent: Agent[OutputT, InputT, None],
        goal: InputT,
        *parts: Part,
        attended: bool = False,
    ) -> Opened[StreamedRun[OutputT]]: ...
    @overload
    def stream(
        self,
        agent: Agent[OutputT, InputT, DepsT],
        goal: InputT,
        *parts: Part,
        deps: DepsT,
        attended: bool = False,
    ) -> Opened[StreamedRun[OutputT]]: ...
    def stream(
        self,
        agent: Agent[OutputT, InputT, Any],
        goal: InputT,
        *parts: Part,
        deps: Any = None,
        attended: bool = False,
    ) -> Opened[StreamedRun[OutputT]]:
        """Run an agent on a goal, and read its events meanwhile.

        `async with orchestrator.stream(agent, goal) as run: async for event in run: ...`. Leaving
        the block early cancels the tree, and returns when every task of the tree has ended.

        Args:
            agent: the agent to run.
            goal: a text, or the input of a pipeline.
            parts: images and files for the goal.
            deps: the program's object for the tools and instructions of the whole tree.
            attended: whether the program answers the `ApprovalNeeded` events.
        """
        stream = partial(self._inner.stream, agent, goal, *parts, deps=deps, attended=attended)
        return Opened(lambda: open_stream(self._thread, stream, self._inner.read))

    @overload
    def open_session(
        self, agent: Agent[Any, Any, None], *, session: str | None = None
    ) -> Opened[Session]: ...
    @overload
    def open_session(
        self, agent: Agent[Any, Any, DepsT], *, deps: DepsT, session: str | None = None
    ) -> Opened[Session]: ...
    def open_session(
        self, agent: Agent[Any, Any, Any], *, session: str | None = None, deps: Any = None
    ) -> Opened[Session]:
        """Open a conversation, which takes messages and gives replies while it is open.

        Args:
            agent: the agent to talk to.
            session: the id of an earlier conversation with this agent, to continue it.
            deps: the program's object for the tools and instructions of the whole tree.
        """
        open_ = partial(self._inner.open_session, agent, session=session, deps=deps)
        return Opened(lambda: open_session(self._thread, open_, self._inner.read))

    @overload
    async def resume(self, agent: Agent[OutputT, Any, None], run: str) -> Run[OutputT]: ...
    @overload
    async def resume(
        self, agent: Agent[OutputT, Any, DepsT], run: str, *, deps: DepsT
    ) -> Run[OutputT]: ...
    async def resume(
        self, agent: Agent[OutputT, Any, Any], run: str, *, deps: Any = None
    ) -> Run[OutputT]:
        """Continue a run whose process died, and return when its whole tree is settled.

        Args:
            agent: the current definition of the run's agent.
            run: the id of the interrupted run.
            deps: the program's object for the run; the journal does not contain it.
        """
        return await self._thread.call(partial(self._inner.resume, agent, run, deps=deps))

    @overload
    async def fork(
        self, agent: Agent[OutputT, Any, None], run: str, *, task: str
    ) -> Run[OutputT]: ...
    @overload
    async def fork(
        self, agent: Agent[OutputT, Any, DepsT], run: str, *, task: str, deps: DepsT
    ) -> Run[OutputT]: ...
    async def fork(
        self, agent: Agent[OutputT, Any, Any], run: str, *, task: str, deps: Any = None
    ) -> Run[OutputT]:
        """Continue a run from the middle, with real models and tools, as a new run.

        Args:
            agent: the current definition of the run's agent.
            run: the id of a run that has ended, or whose process died.
            task: the id or the path of the first task to run again.
            deps: the program's object for the tools and instructions of the new run.
        """
        return await self._thread.call(partial(self._inner.fork, agent, run, task=task, deps=deps))

    @overload
    async def retry(
        self, agent: Agent[OutputT, Any, None], run: str, *, task: str
    ) -> Run[OutputT]: ...
    @overload
    async def retry(
        self, agent: Agent[OutputT, Any, DepsT], run: str, *, task: str, deps: DepsT
    ) -> Run[OutputT]: ...
    async def retry(
        self, agent: Agent[OutputT, Any, Any], run: str, *, task: str, deps: Any = None
    ) -> Run[OutputT]:
        """Repeat a task that did not succeed, as a new run that keeps the rest of the old one.

        Args:
            agent: the current definition of the run's agent.
            run: the id of a run that has ended, or whose process died.
            task: the id or the path of the task.
            deps: the program's object for the tools and instructions of the new run.
        """
        return await self._thread.call(partial(self._inner.retry, agent, run, task=task, deps=deps))

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
    return Opened(lambda: _open(partial(composition.open_orchestrator, *args, **keywords)))


async def _open(open_held: "Callable[[], Any]") -> Orchestrator:
    thread: TrioThread[kernel.Orchestrator] = TrioThread(open_held)
    return Orchestrator(thread, await thread.open())
