"""Agents that ask several at once: `parallel`, `map_each`, `race`.

When it is enough has a name. *All*, which is meant if nothing is said: one failure cancels the
rest, and every failure is reported. *Settled*: each comes to its end. *First*: one success is
enough. *Quorum*: so many are.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, SupportsIndex, TypeVar, overload

import attrs

from agents import Agent, DefinitionError, Pipeline, PipelineContext, input_of
from orchestrator.pipelines.combinators.arguments import (
    either_of,
    list_of,
    require_agents,
    require_number,
    shared_input,
    tuple_of,
)
from orchestrator.pipelines.gather import ChildGroup, ChildRequest, Settled

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
InputT_contra = TypeVar("InputT_contra", contravariant=True)
OutputT_co = TypeVar("OutputT_co", covariant=True)
EachT_co = TypeVar("EachT_co", covariant=True)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")


class Items(Protocol[OutputT_co]):
    """A list or a tuple. Not any sequence: a text is one, too, and nobody means its letters."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[OutputT_co]: ...
    # What tells it from a text, which contains nothing but texts.
    def __contains__(self, value: object, /) -> bool: ...
    def __getitem__(self, index: SupportsIndex, /) -> OutputT_co: ...


@attrs.frozen(repr=False)
class FanOut(
    Pipeline[InputT_contra, OutputT_co], Generic[InputT_contra, OutputT_co, EachT_co]
):
    """An agent that asks several at once, and waits until all have succeeded.

    One failure cancels the others. Whoever delegated to it gets a `FanOutFailedError` then: a group
    of every failure, with how all of them ended.
    """

    requests: Callable[[Any], Sequence[ChildRequest]] = attrs.field(kw_only=True)
    """What it asks of whom."""
    limit: int | None = attrs.field(default=None, kw_only=True)
    """How many of them run at once."""
    outputs: tuple[Any, ...] = attrs.field(kw_only=True)
    """The types of what they answer."""
    is_fixed: bool = attrs.field(kw_only=True)
    """It asks as many as it has types: otherwise, any number of one type."""

    def settled(self) -> Pipeline[InputT_contra, tuple[Settled[EachT_co], ...]]:
        """Return the same with every one coming to its end: nothing fails, nothing is cancelled."""

        async def all_to_their_end(_: PipelineContext, value: Any) -> Any:
            gathering = ChildGroup(self.requests(value), limit=self.limit)
            await gathering.run(needed=None)
            return gathering.settled()

        each: list[Any] = [_settled_of(output) for output in self.outputs]
        output = tuple_of(*each) if self.is_fixed else tuple_of(each[0], ...)
        return self._as_pipeline(all_to_their_end, output)

    def first(self) -> Pipeline[InputT_contra, EachT_co]:
        """Return the same with the first success being enough: the others are cancelled."""

        async def first_of_all(_: PipelineContext, value: Any) -> Any:
            gathering = ChildGroup(self.requests(value), limit=self.limit)
            await gathering.run(needed=1)
            gathering.require_successes(1)
            return gathering.outputs()[0]

        return self._as_pipeline(first_of_all, either_of(self.outputs))

    def quorum(self, successes: int) -> Pipeline[InputT_contra, list[EachT_co]]:
        """Return the same with so many successes being enough: the others are cancelled."""
        require_number("quorum", successes, least=1)
        if self.is_fixed and successes > len(self.outputs):
            raise DefinitionError(
                f"{self.name}.quorum({successes}) asks {len(self.outputs)} agents only"
            )

        async def so_many(_: PipelineContext, value: Any) -> Any:
            gathering = ChildGroup(self.requests(value), limit=self.limit)
            await gathering.run(needed=successes)
            gathering.require_successes(successes)
            return gathering.outputs()[:successes]

        return self._as_pipeline(so_many, list_of(either_of(self.outputs)))

    def _as_pipeline(
        self, program: Callable[[PipelineContext, Any], Any], output: Any
    ) -> Pipeline[Any, Any]:
        # Not by `attrs.evolve`: what comes of it is no fan-out, and has nothing more to ask.
        alike: dict[str, Any] = {
            field.name: getattr(self, field.name)
            for field in attrs.fields(Pipeline)
            if field.init
        }
        alike |= {"program": program, "output": output}
        return Pipeline(**alike)


@overload
def parallel(
    a: Agent[A, InputT], b: Agent[B, InputT], /
) -> FanOut[InputT, tuple[A, B], A | B]: ...
@overload
def parallel(
    a: Agent[A, InputT], b: Agent[B, InputT], c: Agent[C, InputT], /
) -> FanOut[InputT, tuple[A, B, C], A | B | C]: ...
@overload
def parallel(
    a: Agent[A, InputT],
    b: Agent[B, InputT],
    c: Agent[C, InputT],
    d: Agent[D, InputT],
    /,
) -> FanOut[InputT, tuple[A, B, C, D], A | B | C | D]: ...
@overload
def parallel(
    a: Agent[OutputT, InputT],
    b: Agent[OutputT, InputT],
    c: Agent[OutputT, InputT],
    d: Agent[OutputT, InputT],
    e: Agent[OutputT, InputT],
    /,
    *others: Agent[OutputT, InputT],
) -> FanOut[InputT, tuple[OutputT, ...], OutputT]: ...
def parallel(*agents: Agent[Any, Any]) -> FanOut[Any, Any, Any]:
    """Return an agent that hands what it is given to several at once, and gives all answers."""
    require_agents("parallel", agents, least=1)

    async def all_of_them(_: PipelineContext, value: Any) -> Any:
        return tuple(
            await delegate_all(
                [ChildRequest(agent, value) for agent in agents], limit=None
            )
        )

    outputs = tuple(agent.output for agent in agents)
    fan_out: FanOut[Any, Any, Any] = FanOut(
        "parallel",
        instructions=f"At once: {', '.join(agent.name for agent in agents)}.",
        program=all_of_them,
        requests=lambda value: [ChildRequest(agent, value) for agent in agents],
        input=shared_input(agents),
        output=tuple_of(*outputs),
        outputs=outputs,
        is_fixed=True,
        parts=agents,
        fans_out=True,
    )
    return fan_out


def map_each(
    agent: Agent[OutputT, InputT], /, *, limit: int | None = None
) -> FanOut[Items[InputT], list[OutputT], OutputT]:
    """Return an agent that hands each of a list to another, and gives the answers in that order.

    Args:
        agent: who is asked for each.
        limit: how many run at once; the rules, and budgets, may allow fewer.
    """
    require_agents("map_each", [agent], least=1)
    if limit is not None:
        require_number("map_each: limit", limit, least=1)

    def asks(values: Sequence[Any]) -> list[ChildRequest]:
        return [ChildRequest(agent, value) for value in values]

    async def each_of_them(_: PipelineContext, values: Any) -> Any:
        return await delegate_all(asks(values), limit=limit)

    fan_out: FanOut[Items[InputT], list[OutputT], OutputT] = FanOut(
        "map_each",
        instructions=f"For each: {agent.name}.",
        program=each_of_them,
        requests=asks,
        limit=limit,
        input=list_of(input_of(agent)),
        output=list_of(agent.output),
        outputs=(agent.output,),
        is_fixed=False,
        parts=[agent],
        fans_out=True,
    )
    return fan_out


def race(*agents: Agent[OutputT, InputT]) -> Pipeline[InputT, OutputT]:
    """Return an agent that asks several at once, and gives the first answer.

    The others are cancelled then. A failure is not the end of it, as long as anybody is left.
    """
    require_agents("race", agents, least=2)
    return parallel(*agents).first().named("race")


def _settled_of(output: Any) -> Any:
    return Settled.__class_getitem__(output)  # type: ignore[attr-defined]


async def delegate_all(
    requests: Sequence[ChildRequest], *, limit: int | None
) -> list[Any]:
    """Return what all of them answer; the first failure cancels the others."""
    gathering = ChildGroup(requests, limit=limit)
    await gathering.run(needed=len(requests))
    gathering.require_successes(len(requests))
    return gathering.outputs()
