"""Asking several at once, and knowing when enough of them have ended.

However it ends, what has succeeded by then is not lost: it is in the tree, in the journal, and on
the error that is raised.
"""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar, cast

import attrs
import trio

from agents import Agent, InputError, raising_one_error
from delegation import Ending, Outcome
from orchestrator.errors import TaskFailedError
from orchestrator.pipelines.child import Child, combined_failure
from orchestrator.pipelines.runner import current_pipeline_run

OutputT_co = TypeVar("OutputT_co", covariant=True)


@attrs.frozen
class Settled(Generic[OutputT_co]):
    """How one of several ended."""

    path: str
    """Whose task it was, such as `/map_each/researcher[3]`."""
    ending: Ending
    output: OutputT_co | None = None
    """What it answered, if it succeeded."""
    error: str = ""
    """What went wrong, if it did not."""

    @property
    def succeeded(self) -> bool:
        return self.ending is Ending.SUCCEEDED

    def result(self) -> OutputT_co:
        """Return what it answered.

        Raises:
            TaskFailedError: it did not succeed.
        """
        if not self.succeeded:
            raise TaskFailedError(self.path, Outcome(self.ending, error=self.error))
        return cast("OutputT_co", self.output)


@attrs.frozen
class ChildRequest:
    """Something to be delegated together with others."""

    agent: Agent[Any]
    value: Any


@attrs.frozen
class _Ended:
    path: str
    outcome: Outcome
    output: Any = None


class ChildGroup:
    """Several tasks that are asked for at once."""

    def __init__(
        self, requests: Sequence[ChildRequest], *, limit: int | None = None
    ) -> None:
        self._requests = requests
        self._limit = len(requests) if limit is None else limit
        self._pipeline_run = current_pipeline_run("delegate")
        self._begun = 0
        self._in_turn = trio.Lock()
        self._children: dict[int, Child[Any]] = {}
        self._ended: dict[int, _Ended] = {}
        """Who has ended so far, by their place among all."""
        self._successes = 0

    async def run(self, *, needed: int | None) -> None:
        """Ask for all, and return when enough have ended; the others are cancelled.

        Args:
            needed: how many must succeed; None is to wait for all, however they end.
        """
        if needed is not None and needed > len(self._requests):
            raise InputError(
                f"{needed} must succeed, and there are {len(self._requests)} to be asked"
            )
        await trio.lowlevel.checkpoint()
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                for _ in range(min(self._limit, len(self._requests))):
                    nursery.start_soon(self._run_requests, needed, nursery.cancel_scope)
        for at, child in self._children.items():
            # It had ended in the very moment in which it was not needed any more.
            if at not in self._ended and not child.was_not_awaited:
                self._note(at, self._end_of(child, child.outcome))

    async def _start_next(self) -> tuple[int, Child[Any] | TaskFailedError] | None:
        """Ask for the first that nobody has asked for; return None if there is none."""
        # One after the other, so that they are numbered in the tree as they are in the list.
        async with self._in_turn:
            if self._begun == len(self._requests):
                return None
            at = self._begun
            self._begun += 1
            ask = self._requests[at]
            try:
                child = await self._pipeline_run.start_child(ask.agent, ask.value)
            except TaskFailedError as exc:
                return at, exc
            self._children[at] = child
            return at, child

    async def _run_requests(self, needed: int | None, scope: trio.CancelScope) -> None:
        """See one after the other to its end, as long as there are any."""
        while (begun := await self._start_next()) is not None:
            at, child = begun
            self._note(at, await self._wait_ended(child))
            if needed is not None and self._is_decided(needed):
                scope.cancel(reason="enough have ended")

    async def _wait_ended(self, child: Child[Any] | TaskFailedError) -> _Ended:
        if isinstance(child, TaskFailedError):
            await trio.lowlevel.checkpoint()
            return _Ended(child.path, child.outcome)
        # No checkpoint before this: whoever has begun a child must be there to give it up.
        return self._end_of(child, await self._pipeline_run.wait_settled(child))

    def _end_of(self, child: Child[Any], outcome: Outcome | None) -> _Ended:
        assert outcome is not None, "it has ended, or we would have been torn down"
        if not outcome.succeeded:
            return _Ended(child.path, outcome)
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
        """Return what those answered who have succeeded, in the order of all."""
        return [it.output for it in self._in_order() if it.outcome.succeeded]

    def settled(self) -> list[Settled[Any]]:
        """Return how each of them ended."""
        return [
            Settled(it.path, it.outcome.ending, it.output, it.outcome.error)
            for it in self._in_order()
        ]

    def require_successes(self, needed: int) -> None:
        """Raise every failure, with its path, unless so many have succeeded."""
        if self._successes < needed:
            outcomes = {it.path: it.outcome for it in self._in_order()}
            raise combined_failure(self._pipeline_run.path, outcomes)
