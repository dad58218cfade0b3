"""Agents that choose: among answers (`vote`, `best`), and whom to ask (`route`)."""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar, cast

import attrs

from agents import (
    Agent,
    AgentError,
    DefinitionError,
    Pipeline,
    PipelineContext,
    input_of,
)
from orchestrator.pipelines.combinators.arguments import (
    agent_or_function,
    either_of,
    require_agents,
    require_number,
    shared_input,
)
from orchestrator.pipelines.gather import ChildGroup, ChildRequest

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
OutputT_co = TypeVar("OutputT_co", covariant=True)


@attrs.frozen
class Candidates(Generic[OutputT_co]):
    """What a judge is asked: which of the answers to a goal is the best?"""

    goal: Any
    answers: list[OutputT_co]
    """The first one is number 1."""


def vote(
    *voters: Agent[OutputT, InputT],
    times: int = 1,
    least: int = 1,
    key: Callable[[OutputT], Hashable] | None = None,
) -> Pipeline[InputT, OutputT]:
    """Return an agent that asks several at once, and gives the answer that most of them give.

    Who fails has no vote. Of answers with as many votes, the one that was asked for first wins.

    Args:
        voters: who is asked.
        times: how often each of them is asked.
        least: how many votes an answer needs.
        key: what makes two answers the same; by default the whole answer does.
    """
    require_agents("vote", voters, least=1)
    require_number("vote: times", times, least=1)
    require_number("vote: least", least, least=1)
    if least > len(voters) * times:
        raise DefinitionError(
            f"vote: {least} votes are needed, and there are {len(voters) * times}"
        )

    async def count(_: PipelineContext, value: Any) -> Any:
        asks = [ChildRequest(voter, value) for voter in voters for _ in range(times)]
        gathering = ChildGroup(asks)
        await gathering.run(needed=None)
        gathering.require_successes(1)
        answers = gathering.outputs()
        ballots = [_same(answer) if key is None else key(answer) for answer in answers]
        winner, votes = Counter(ballots).most_common(1)[0]
        if votes < least:
            raise AgentError(
                f"no answer has {least} votes: the most that one has is {votes} of"
                f" {len(ballots)}"
            )
        return answers[ballots.index(winner)]

    return Pipeline(
        "vote",
        instructions=f"By the votes of {', '.join(it.name for it in voters)}.",
        program=count,
        input=shared_input(voters),
        output=either_of([it.output for it in voters]),
        parts=voters,
        fans_out=True,
    )


def best(
    agent: Agent[OutputT, InputT],
    /,
    *,
    of: int,
    by: Callable[[OutputT], float] | Agent[int, Candidates[OutputT]],
) -> Pipeline[InputT, OutputT]:
    """Return an agent that asks another several times at once, and gives the best answer.

    Args:
        agent: who is asked.
        of: how many answers are asked for; those that fail are not among them.
        by: who judges: a function that rates an answer, or an agent that is given `Candidates`,
            and gives the number of the best.
    """
    require_agents("best", [agent], least=1)
    require_number("best: of", of, least=1)
    judge = agent_or_function("best", by)
    rate: Any = by

    async def judged(hands: PipelineContext, value: Any) -> Any:
        gathering = ChildGroup([ChildRequest(agent, value)] * of)
        await gathering.run(needed=None)
        gathering.require_successes(1)
        answers: list[Any] = gathering.outputs()
        if judge is None:
            return max(answers, key=rate)
        number: int = await hands.delegate(judge, Candidates(value, answers))
        if not 1 <= number <= len(answers):
            raise AgentError(
                f"{judge.name} chose number {number}, and there are {len(answers)} answers"
            )
        return answers[number - 1]

    return Pipeline(
        "best",
        instructions=f"The best of {of} times {agent.name}.",
        program=judged,
        input=input_of(agent),
        output=agent.output,
        parts=[agent] if judge is None else [agent, judge],
    )


def route(
    by: Callable[[InputT], str] | Agent[str, InputT],
    routes: Mapping[str, Agent[OutputT, InputT]],
    /,
    *,
    otherwise: Agent[OutputT, InputT] | None = None,
) -> Pipeline[InputT, OutputT]:
    """Return an agent that hands what it is given to one of several.

    Args:
        by: who says to whom: a function of what is given, or an agent, whose output may well be a
            `Literal` of the routes.
        routes: the agents, by what `by` says.
        otherwise: who gets what `by` says no route for; without one, that fails.
    """
    judge, choose = agent_or_function("route", by), by
    agents = [*routes.values(), *([] if otherwise is None else [otherwise])]
    require_agents("route", agents, least=1)
    parts = [*agents, *([] if judge is None else [judge])]

    async def by_what_it_is(hands: PipelineContext, value: Any) -> Any:
        if judge is not None:
            said = await hands.delegate(judge, value)
        else:
            said = cast("Callable[[Any], str]", choose)(value)
        agent = routes.get(said.strip(), otherwise)
        if agent is None:
            known = ", ".join(map(repr, routes))
            raise AgentError(f"there is no route for {said!r}; there are: {known}")
        return await hands.delegate(agent, value)

    return Pipeline(
        "route",
        instructions=f"One of {', '.join(dict.fromkeys(it.name for it in agents))}.",
        program=by_what_it_is,
        input=shared_input(parts),
        output=either_of([it.output for it in agents]),
        parts=parts,
    )


def _same(answer: object) -> Hashable:
    try:
        hash(answer)
    except TypeError:
        # What is in a list or a dictionary cannot be counted as it is.
        return repr(answer)
    return answer
