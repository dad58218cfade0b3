"""Combinators that delegate at once: `parallel`, `map_each`, `race`, `map_reduce`.

A fan-out waits for *all* by default: one failure cancels the rest, and every failure is reported.
*Settled* waits until each has ended, *first* for one success, *quorum* for a number of successes.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, SupportsIndex, TypeVar, overload

import attrs

from orchestrator.agents import Agent, DefinitionError, Pipeline, PipelineContext, Shape, input_of
from orchestrator.kernel.pipelines.combinators import arguments

if TYPE_CHECKING:
    from orchestrator.kernel.pipelines.gather import ChildGroup, ChildRequest, Settled

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
InputT_contra = TypeVar("InputT_contra", contravariant=True)
OutputT_co = TypeVar("OutputT_co", covariant=True)
PartT = TypeVar("PartT")
EachT_co = TypeVar("EachT_co", covariant=True)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")


class Items(Protocol[OutputT_co]):
    """A list or a tuple. A text is a sequence, too, and is never meant as its letters."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[OutputT_co]: ...
    # A `str` differs here: it contains only texts.
    def __contains__(self, value: object, /) -> bool: ...
    def __getitem__(self, index: SupportsIndex, /) -> OutputT_co: ...


# Two with the same program are equal: a pipeline compares that.
@attrs.frozen(repr=False, eq=False)
class FanOut(Pipeline[InputT_contra, OutputT_co], Generic[InputT_contra, OutputT_co, EachT_co]):
    """A pipeline that delegates to several agents at once, and waits until all have succeeded.

    One failure cancels the others. Its parent gets a `FanOutFailedError` then: a group of all
    failures, with the outcomes of all children.
    """

    requests: "Callable[[Any], Sequence[ChildRequest]]" = attrs.field(kw_only=True)
    """Returns the children for a value."""
    limit: int | None = attrs.field(default=None, kw_only=True)
    """How many children run at once."""
    outputs: tuple[Any, ...] = attrs.field(kw_only=True)
    """The output types of the agents."""
    is_fixed: bool = attrs.field(kw_only=True)
    """It has one child for each output type; otherwise any number of children of one type."""

    def settled(self) -> "Pipeline[InputT_contra, tuple[Settled[EachT_co], ...]]":
        """Return a pipeline that waits until each child has ended: no child cancels another."""

        async def run_settled(_: PipelineContext, value: Any) -> Any:
            group = _child_group(self.requests(value), limit=self.limit)
            await group.run(needed=None)
            return group.settled()

        each: list[Any] = [_settled_of(output) for output in self.outputs]
        output = arguments.tuple_of(*each) if self.is_fixed else arguments.tuple_of(each[0], ...)
        return self._as_pipeline(run_settled, output, "failures are kept")

    def first(self) -> Pipeline[InputT_contra, EachT_co]:
        """Return a pipeline that waits for the first success, and cancels the others."""

        async def run_first(_: PipelineContext, value: Any) -> Any:
            group = _child_group(self.requests(value), limit=self.limit)
            await group.run(needed=1)
            group.require_successes(1)
            return group.outputs()[0]

        return self._as_pipeline(
            run_first, arguments.either_of(self.outputs), "the first answer wins"
        )

    def quorum(self, successes: int) -> Pipeline[InputT_contra, list[EachT_co]]:
        """Return a pipeline that waits for a number of successes, and cancels the others."""
        arguments.require_number("quorum", successes, least=1)
        if self.is_fixed and successes > len(self.outputs):
            raise DefinitionError(
                f"{self.name}.quorum({successes}) asks {len(self.outputs)} agents only"
            )

        async def run_quorum(_: PipelineContext, value: Any) -> Any:
            group = _child_group(self.requests(value), limit=self.limit)
            await group.run(needed=successes)
            group.require_successes(successes)
            return group.outputs()[:successes]

        output = arguments.list_of(arguments.either_of(self.outputs))
        return self._as_pipeline(run_quorum, output, f"the first {successes} answers")

    def _as_pipeline(
        self, program: Callable[[PipelineContext, Any], Any], output: Any, rule: str
    ) -> Pipeline[Any, Any]:
        # Not `attrs.evolve`: the result is a plain pipeline, without `settled` and its siblings.
        fields: dict[str, Any] = {
            field.name: getattr(self, field.name) for field in attrs.fields(Pipeline) if field.init
        }
        assert self.shape is not None, "every fan-out has a shape"
        notes = [self.shape.note] if self.limit is not None else []
        shape = attrs.evolve(self.shape, note=", ".join([*notes, rule]))
        fields |= {"program": program, "output": output, "shape": shape}
        return Pipeline(**fields)


@overload
def parallel(a: Agent[A, InputT], b: Agent[B, InputT], /) -> FanOut[InputT, tuple[A, B], A | B]: ...
@overload
def parallel(
    a: Agent[A, InputT], b: Agent[B, InputT], c: Agent[C, InputT], /
) -> FanOut[InputT, tuple[A, B, C], A | B | C]: ...
@overload
def parallel(
    a: Agent[A, InputT], b: Agent[B, InputT], c: Agent[C, InputT], d: Agent[D, InputT], /
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
    """Return a pipeline that delegates its input to several agents, and gives all answers."""
    arguments.require_agents("parallel", agents, least=1)

    def requests_for(value: Any) -> "list[ChildRequest]":
        return [(agent, value) for agent in agents]

    async def run_all(_: PipelineContext, value: Any) -> Any:
        return tuple(await delegate_all(requests_for(value), limit=None))

    outputs = tuple(agent.output for agent in agents)
    fan_out: FanOut[Any, Any, Any] = FanOut(
        "parallel",
        instructions=f"At once: {', '.join(agent.name for agent in agents)}.",
        program=run_all,
        requests=requests_for,
        input=arguments.shared_input(agents),
        output=arguments.tuple_of(*outputs),
        outputs=outputs,
        is_fixed=True,
        parts=agents,
        fans_out=True,
        shape=Shape(kind="parallel", note="all at once"),
    )
    return fan_out


def map_each(
    agent: Agent[OutputT, InputT], /, *, limit: int | None = None
) -> FanOut[Items[InputT], list[OutputT], OutputT]:
    """Return a pipeline that delegates each item of a list, and gives the answers in that order.

    Args:
        agent: does each item.
        limit: how many run at once; the rules, and budgets, may allow fewer.
    """
    arguments.require_agents("map_each", [agent], least=1)
    if limit is not None:
        arguments.require_number("map_each: limit", limit, least=1)

    def requests_for(values: Sequence[Any]) -> "list[ChildRequest]":
        return [(agent, value) for value in values]

    async def run_each(_: PipelineContext, values: Any) -> Any:
        return await delegate_all(requests_for(values), limit=limit)

    fan_out: FanOut[Items[InputT], list[OutputT], OutputT] = FanOut(
        "map_each",
        instructions=f"For each: {agent.name}.",
        program=run_each,
        requests=requests_for,
        limit=limit,
        input=arguments.list_of(input_of(agent)),
        output=arguments.list_of(agent.output),
        outputs=(agent.output,),
        is_fixed=False,
        parts=[agent],
        fans_out=True,
        shape=Shape(kind="map_each", note=_at_once(limit), stacked=1),
    )
    return fan_out


def race(*agents: Agent[OutputT, InputT]) -> Pipeline[InputT, OutputT]:
    """Return a pipeline that delegates to several agents at once, and gives the first answer.

    The others are cancelled then. It fails when all have failed.
    """
    arguments.require_agents("race", agents, least=2)
    raced = parallel(*agents).first().named("race")
    return attrs.evolve(raced, shape=Shape(kind="race", note="the first answer wins"))


def _at_once(limit: int | None) -> str:
    return "for each item" if limit is None else f"for each item, {limit} at once"


def _child_group(requests: "Sequence[ChildRequest]", *, limit: int | None) -> "ChildGroup":
    # The definition of a pipeline does not need the engine.
    from orchestrator.kernel.pipelines.gather import ChildGroup

    return ChildGroup(requests, limit=limit)


def _settled_of(output: Any) -> Any:
    from orchestrator.kernel.pipelines.gather import Settled

    return Settled.__class_getitem__(output)  # type: ignore[attr-defined]


async def delegate_all(requests: "Sequence[ChildRequest]", *, limit: int | None) -> list[Any]:
    """Return the answers of all children; the first failure cancels the others."""
    group = _child_group(requests, limit=limit)
    await group.run(needed=len(requests))
    group.require_successes(len(requests))
    return group.outputs()


@overload
def map_reduce(
    each: Agent[PartT, InputT], merge: Agent[OutputT, list[PartT]], /, *, limit: int | None = None
) -> Pipeline[Items[InputT], OutputT]: ...
@overload
def map_reduce(
    each: Agent[PartT, InputT],
    merge: Agent[PartT, list[PartT]],
    /,
    *,
    limit: int | None = None,
    at_once: int,
) -> Pipeline[Items[InputT], PartT]: ...
def map_reduce(
    each: Agent[Any, Any],
    merge: Agent[Any, Any],
    /,
    *,
    limit: int | None = None,
    at_once: int | None = None,
) -> Pipeline[Any, Any]:
    """Return a pipeline that delegates each item of a list, and all answers to a second agent.

    Args:
        each: does each item.
        merge: makes one answer of many.
        limit: how many of these tasks run at once.
        at_once: how many answers are merged at once, where all are more than a model can read:
            the results are merged again until one is left.
    """
    arguments.require_agents("map_reduce", [each, merge], least=2)
    if at_once is not None:
        arguments.require_number("map_reduce: at_once", at_once, least=2)
        if each.output != merge.output:
            raise DefinitionError(
                f"map_reduce: with at_once, {merge.name!r} must have the output type of"
                f" {each.name!r}, because its outputs are merged again"
            )
    mapped = map_each(each, limit=limit)

    async def in_groups(context: PipelineContext, values: Any) -> Any:
        answers = await delegate_all(mapped.requests(values), limit=limit)
        if at_once is None:
            return await context.delegate(merge, answers)
        while len(answers) > at_once:
            starts = range(0, len(answers), at_once)
            groups = [answers[at : at + at_once] for at in starts]
            # The last group may have one answer, which needs no merging yet.
            alone = groups.pop() if len(groups[-1]) == 1 else []
            requests: list[ChildRequest] = [(merge, group) for group in groups]
            answers = [*await delegate_all(requests, limit=limit), *alone]
        return await context.delegate(merge, answers)

    return Pipeline(
        "map_reduce",
        instructions=f"For each: {each.name}; then {merge.name}.",
        program=in_groups,
        input=arguments.list_of(input_of(each)),
        output=merge.output,
        parts=[each, merge],
        fans_out=True,
        shape=Shape(kind="map_reduce", flow="row", note=_at_once(limit), stacked=1),
    )
