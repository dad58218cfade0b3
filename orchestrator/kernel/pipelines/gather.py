"""A group of children that run at once, until enough of them have ended.

However it ends, no success is lost: it is in the tree, in the journal, and on the error.
"""

from collections.abc import Sequence
from typing import Any, Generic, TypeAlias, TypeVar, cast

import msgspec
import trio

from orchestrator.agents import Agent, InputError
from orchestrator.delegation import Cause, Ending, Outcome
from orchestrator.kernel.errors import TaskFailedError
from orchestrator.kernel.journal.admission import START_AT_ONCE
from orchestrator.kernel.pipelines.child import Child, combined_failure
from orchestrator.kernel.pipelines.current_run import current_pipeline_run
from orchestrator.kernel.pipelines.runner import ChildCall

OutputT_co = TypeVar("OutputT_co", covariant=True)


class Settled(msgspec.Struct, Generic[OutputT_co], frozen=True):
    """How one child of a fan-out ended."""

    path: str
    """The path of its task, such as `/map_each/researcher[3]`."""
    ending: Ending
    output: OutputT_co | None = None
    """Its answer, if it succeeded."""
    error: str = ""
    """A sentence, if it did not."""
    cause: Cause = Cause.NONE
    account: str = ""
    """The id of the account that was used up, if one ended it."""

    @property
    def succeeded(self) -> bool:
        return self.ending is Ending.SUCCEEDED

    def result(self) -> OutputT_co:
        """Return its answer.

        Raises:
            TaskFailedError: it did not succeed.
        """
        if not self.succeeded:
            outcome = Outcome(self.ending, error=self.error, cause=self.cause, account=self.account)
            raise TaskFailedError(self.path, outcome)
        return cast("OutputT_co", self.output)


ChildRequest: TypeAlias = tuple[Agent[Any], Any]
"""A child of a group: its agent, and its input."""


class _Ended(msgspec.Struct, frozen=True):
    path: str
    outcome: Outcome
    output: Any = None
    error: BaseException | None = None
    """The error that its agent raised, if that ended it."""


class ChildGroup:
    """Children of the pipeline that runs here."""

    def __init__(self, requests: Sequence[ChildRequest], *, limit: int | None = None) -> None:
        self._requests = requests
        self._pipeline_run = current_pipeline_run("delegate")
        self._limit = len(requests) if limit is None else self._pipeline_run.fan_out_limit(limit)
        self._free = trio.Semaphore(self._limit)
        """How many more may be started now."""
        self._began = 0.0
        self._needed: int | None = None
        self._scope = trio.CancelScope()
        """The wait of the group; cancelled when enough children have ended."""
        self._all_ended = trio.Event()
        self._children: dict[int, Child[Any]] = {}
        self._ended: dict[int, _Ended] = {}
        """The children that have ended, by their index among all."""
        self._successes = 0

    async def run(self, *, needed: int | None) -> None:
        """Run the children until `needed` succeeded, or None waits for all; cancel the others."""
        if needed is not None and needed > len(self._requests):
            raise InputError(
                f"{needed} must succeed, and there are {len(self._requests)} to be asked"
            )
        await trio.lowlevel.checkpoint()
        self._began = trio.current_time()
        self._needed = needed
        run, requests = self._pipeline_run, self._requests
        try:
            with self._scope:
                at = 0
                while at < len(requests):
                    at += await self._start_next(at)
                if requests:
                    await self._all_ended.wait()
        finally:
            await run.cancel_running(self._children.values())  # noqa: ASYNC102 (it is shielded)
        await run.wait_durable()
        for at, child in self._children.items():
            # It ended just when it was not needed any more.
            if at not in self._ended and not child.was_not_awaited:
                self._note(at, self._end_of(child, child.outcome))

    async def _start_next(self, at: int) -> int:
        """Start the next children, and return their number: many at once, or one with a place."""
        step = self._requests[at : at + START_AT_ONCE]
        if self._limit >= len(self._requests) and len(step) > 1:
            calls: list[ChildCall] = [(*it, None, None) for it in step]
            if await self._pipeline_run.start_all(
                calls, lambda number, child: self._follow(at + number, child), in_order=True
            ):
                return len(step)
        await self._free.acquire()
        started = await self._start(at, self._requests[at])
        if isinstance(started, TaskFailedError):
            self._note_end(at, _Ended(started.path, started.outcome))
        else:
            self._follow(at, started)
        return 1

    async def _start(self, at: int, request: ChildRequest) -> Child[Any] | TaskFailedError:
        agent, value = request
        held_since = self._began if at >= self._limit else None
        # Without a limit all are asked for at once, and the journal knows how many.
        is_held = self._limit < len(self._requests)
        try:
            return await self._pipeline_run.start_child(
                agent,
                value,
                held_since=held_since,
                to_come=len(self._requests) - at - 1 if is_held else None,
                in_order=True,
            )
        except TaskFailedError as exc:
            return exc  # noqa: ASYNC910 (a refused request has had its checkpoint)

    def _follow(self, at: int, child: Child[Any]) -> None:
        """Learn the end of a child, which has not begun to run."""
        self._children[at] = child

        def note_end() -> None:
            if child.was_not_awaited:
                # It was cancelled before a crash, and the program will do so again.
                child.awaits_cancel = not self._scope.cancel_called
            elif child.outcome is not None:
                self._note_end(at, self._end_of(child, child.outcome))

        child.on_end = note_end

    def _note_end(self, at: int, ended: _Ended) -> None:
        self._note(at, ended)
        self._free.release()
        if len(self._ended) == len(self._requests):
            self._all_ended.set()
        elif self._needed is not None and self._is_decided(self._needed):
            self._scope.cancel(reason="enough have ended")

    def _end_of(self, child: Child[Any], outcome: Outcome | None) -> _Ended:
        assert outcome is not None, "without one the group was cancelled"
        if not outcome.succeeded:
            return _Ended(child.path, outcome, error=child.error)
        try:
            return _Ended(child.path, outcome, child.output(outcome))
        except TaskFailedError as exc:
            return _Ended(child.path, exc.outcome)

    def _is_decided(self, needed: int) -> bool:
        failed = len(self._ended) - self._successes
        return self._successes >= needed or failed > len(self._requests) - needed

    def _note(self, at: int, ended: _Ended) -> None:
        self._ended[at] = ended
        self._successes += ended.outcome.succeeded

    def _in_order(self) -> list[_Ended]:
        return [self._ended[at] for at in sorted(self._ended)]

    def outputs(self) -> list[Any]:
        """Return the answers of the children that succeeded, in the order of all."""
        return [it.output for it in self._in_order() if it.outcome.succeeded]

    def settled(self) -> list[Settled[Any]]:
        """Return how each child ended."""
        return [
            Settled(
                it.path,
                it.outcome.ending,
                it.output,
                it.outcome.error,
                it.outcome.cause,
                it.outcome.account,
            )
            for it in self._in_order()
        ]

    def require_successes(self, needed: int) -> None:
        """Raise all failures, with their paths, unless enough children have succeeded."""
        if self._successes < needed:
            outcomes = {it.path: it.outcome for it in self._in_order()}
            errors = {it.path: it.error for it in self._in_order()}
            raise combined_failure(self._pipeline_run.path, outcomes, errors)
