"""Many into one: `map_reduce`."""

from typing import Any, TypeVar, overload

from agents import Agent, DefinitionError, Pipeline, PipelineContext, input_of
from orchestrator.pipelines.combinators.arguments import (
    list_of,
    require_agents,
    require_number,
)
from orchestrator.pipelines.combinators.fan_out import Items, delegate_all, map_each
from orchestrator.pipelines.gather import ChildRequest

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
PartT = TypeVar("PartT")


@overload
def map_reduce(
    each: Agent[PartT, InputT],
    merge: Agent[OutputT, list[PartT]],
    /,
    *,
    limit: int | None = None,
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
    """Return an agent that hands each of a list to one agent, and all the answers to another.

    Args:
        each: who is asked for each.
        merge: who makes one of the answers.
        limit: how many of these tasks run at once.
        at_once: how many answers are merged at once, where all are more than a model can read:
            what comes of that is merged again until one is left.
    """
    require_agents("map_reduce", [each, merge], least=2)
    if at_once is not None:
        require_number("map_reduce: at_once", at_once, least=2)
        if each.output != merge.output:
            raise DefinitionError(
                f"map_reduce: with at_once, {merge.name!r} must give what {each.name!r}"
                " gives, since that is merged again"
            )
    mapped = map_each(each, limit=limit)

    async def in_groups(hands: PipelineContext, values: Any) -> Any:
        answers = await delegate_all(mapped.requests(values), limit=limit)
        if at_once is None:
            return await hands.delegate(merge, answers)
        while len(answers) > at_once:
            starts = range(0, len(answers), at_once)
            groups = [answers[at : at + at_once] for at in starts]
            # The last one may be alone, and has nobody to be merged with.
            alone = groups.pop() if len(groups[-1]) == 1 else []
            asks = [ChildRequest(merge, group) for group in groups]
            answers = [*await delegate_all(asks, limit=limit), *alone]
        return await hands.delegate(merge, answers)

    return Pipeline(
        "map_reduce",
        instructions=f"For each: {each.name}; then {merge.name}.",
        program=in_groups,
        input=list_of(input_of(each)),
        output=merge.output,
        parts=[each, merge],
        fans_out=True,
    )
