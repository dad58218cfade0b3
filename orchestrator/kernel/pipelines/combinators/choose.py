"""Combinators that choose: an answer (`vote`, `best`), or the agent to delegate to (`route`)."""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar, cast

import attrs

from orchestrator.agents import (
    Agent,
    AgentError,
    DefinitionError,
    Pipeline,
    PipelineContext,
    Shape,
    input_of,
)
from orchestrator.delegation import Ending
from orchestrator.kernel.errors import TaskFailedError
from orchestrator.kernel.pipelines.combinators import arguments
from orchestrator.kernel.pipelines.current_run import current_pipeline_run
from orchestrator.kernel.pipelines.gather import ChildGroup

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
OutputT_co = TypeVar("OutputT_co", covariant=True)


@attrs.frozen
class Candidates(Generic[OutputT_co]):
    """The input of a judge: a goal, and the answers to choose the best from."""

    goal: Any
    answers: list[OutputT_co]
    """Counted from 1."""


def vote(
    *voters: Agent[OutputT, InputT],
    times: int = 1,
    least: int = 1,
    key: Callable[[OutputT], Hashable] | None = None,
) -> Pipeline[InputT, OutputT]:
    """Return a pipeline that delegates to several agents at once, and returns the commonest answer.

    A failure has no vote. Among answers with equal votes, the one that was requested first wins.

    Args:
        voters: the agents.
        times: how often each of them votes.
        least: the votes that an answer needs.
        key: answers with equal keys are the same; by default the whole answer is the key.
    """
    arguments.require_agents("vote", voters, least=1)
    arguments.require_number("vote: times", times, least=1)
    arguments.require_number("vote: least", least, least=1)
    if least > len(voters) * times:
        raise DefinitionError(
            f"vote: {least} votes are needed, and there are {len(voters) * times}"
        )

    async def count(_: PipelineContext, value: Any) -> Any:
        group = ChildGroup([(voter, value) for voter in voters for _ in range(times)])
        await group.run(needed=None)
        group.require_successes(1)
        answers = group.outputs()
        ballots = [_hashable(answer) if key is None else key(answer) for answer in answers]
        winner, votes = Counter(ballots).most_common(1)[0]
        if votes < least:
            raise AgentError(
                f"no answer has {least} votes: the most that one has is {votes} of {len(ballots)}"
            )
        return answers[ballots.index(winner)]

    return Pipeline(
        "vote",
        instructions=f"By the votes of {', '.join(it.name for it in voters)}.",
        program=count,
        input=arguments.shared_input(voters),
        output=arguments.either_of([it.output for it in voters]),
        parts=voters,
        fans_out=True,
        shape=Shape(
            kind="vote",
            note=f"the commonest of {len(voters) * times}"
            + (f", at least {least}" if least > 1 else ""),
            stacked=len(voters) if times > 1 else 0,
        ),
    )


def best(
    agent: Agent[OutputT, InputT],
    /,
    *,
    of: int,
    by: Callable[[OutputT], float] | Agent[int, Candidates[OutputT]],
) -> Pipeline[InputT, OutputT]:
    """Return a pipeline that delegates to an agent several times, and gives the best answer.

    If the budget runs out at the judge, it gives the first answer, with a note in the outcome.

    Args:
        agent: gives the answers.
        of: how many answers are requested; failures are left out.
        by: the judge: a function that rates an answer, or an agent that takes `Candidates` and
            gives the number of the best.
    """
    arguments.require_agents("best", [agent], least=1)
    arguments.require_number("best: of", of, least=1)
    judge = arguments.agent_or_function("best", by)
    rate: Any = by

    async def choose_best(context: PipelineContext, value: Any) -> Any:
        group = ChildGroup([(agent, value)] * of)
        await group.run(needed=None)
        group.require_successes(1)
        answers: list[Any] = group.outputs()
        if judge is None:
            return max(answers, key=rate)
        try:
            number: int = await context.delegate(judge, Candidates(value, answers))
        except TaskFailedError as exc:
            if exc.outcome.ending is not Ending.OVER_BUDGET:
                raise
            current_pipeline_run("best").note(
                f"the budget ran out before {judge.name} could judge, so this is the first of"
                f" {len(answers)} answers"
            )
            return answers[0]
        if not 1 <= number <= len(answers):
            raise AgentError(
                f"{judge.name} chose number {number}, and there are {len(answers)} answers"
            )
        return answers[number - 1]

    return Pipeline(
        "best",
        instructions=f"The best of {of} times {agent.name}.",
        program=choose_best,
        input=input_of(agent),
        output=agent.output,
        parts=[agent] if judge is None else [agent, judge],
        shape=Shape(kind="best", flow="row", note=f"the best of {of}", stacked=1),
    )


def route(
    by: Callable[[InputT], str] | Agent[str, InputT],
    routes: Mapping[str, Agent[OutputT, InputT]],
    /,
    *,
    otherwise: Agent[OutputT, InputT] | None = None,
) -> Pipeline[InputT, OutputT]:
    """Return a pipeline that delegates its input to one of several agents.

    Args:
        by: gives the name of a route: a function of the input, or an agent, whose output may well
            be a `Literal` of the routes.
        routes: the agents, by name.
        otherwise: takes the input where `by` names no route; without it, that fails.
    """
    judge, choose = arguments.agent_or_function("route", by), by
    agents = [*routes.values(), *([] if otherwise is None else [otherwise])]
    arguments.require_agents("route", agents, least=1)
    parts = [*agents, *([] if judge is None else [judge])]

    async def run_route(context: PipelineContext, value: Any) -> Any:
        if judge is not None:
            name = await context.delegate(judge, value)
        else:
            name = cast("Callable[[Any], str]", choose)(value)
        agent = routes.get(name.strip(), otherwise)
        if agent is None:
            known = ", ".join(map(repr, routes))
            raise AgentError(f"there is no route for {name!r}; there are: {known}")
        return await context.delegate(agent, value)

    return Pipeline(
        "route",
        instructions=f"One of {', '.join(dict.fromkeys(it.name for it in agents))}.",
        program=run_route,
        input=arguments.shared_input(parts),
        output=arguments.either_of([it.output for it in agents]),
        parts=parts,
        shape=Shape(
            kind="route",
            note="one of them",
            labels=(
                *routes,
                *["otherwise"] * (otherwise is not None),
                *["chooses"] * (judge is not None),
            ),
        ),
    )


def _hashable(answer: object) -> Hashable:
    try:
        hash(answer)
    except TypeError:
        # A list or a dictionary.
        return repr(answer)
    return answer
