"""Agents that try again: `retry`, `fallback`, `refine`."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import trio

from agents import (
    Agent,
    AgentError,
    DefinitionError,
    Pipeline,
    PipelineContext,
    input_of,
)
from delegation import Ending
from orchestrator.errors import TaskFailedError
from orchestrator.pipelines.combinators.arguments import (
    agent_or_function,
    either_of,
    require_agents,
    require_number,
    shared_input,
)

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")

NOT_RETRIED: Final = {Ending.OVER_BUDGET, Ending.REFUSED, Ending.CANCELLED}
"""Endings that are no better another time: what is used up stays so, and a cancel was meant."""
LONGEST_PAUSE: Final = 60.0


@attrs.frozen
class Review:
    """What a critic says of a draft."""

    passes: bool
    complaint: str = ""
    """What is wrong with it, if it does not pass."""


Check: TypeAlias = Callable[[OutputT], str | Awaitable[str]] | Agent[Review, OutputT]


def retry(
    agent: Agent[OutputT, InputT], /, *, times: int = 3, pause: float = 0
) -> Pipeline[InputT, OutputT]:
    """Return an agent that asks another again when that fails.

    What is over budget, refused or cancelled is not asked for again.

    Args:
        agent: who is asked.
        times: how often at most.
        pause: how many seconds pass before the second time; twice as many before each next one.
    """
    require_agents("retry", [agent], least=1)
    require_number("retry: times", times, least=1)
    require_number("retry: pause", pause, least=0)

    async def until_it_succeeds(hands: PipelineContext, value: Any) -> Any:
        for attempt in range(1, times):
            try:
                return await hands.delegate(agent, value)
            except TaskFailedError as exc:
                if exc.outcome.ending in NOT_RETRIED:
                    raise
            await trio.sleep(min(LONGEST_PAUSE, pause * 2 ** (attempt - 1)))
        return await hands.delegate(agent, value)

    return Pipeline(
        "retry",
        instructions=f"{agent.name}, up to {times} times.",
        program=until_it_succeeds,
        input=input_of(agent),
        output=agent.output,
        parts=[agent],
    )


def fallback(*agents: Agent[OutputT, InputT]) -> Pipeline[InputT, OutputT]:
    """Return an agent that asks one after the other until one succeeds."""
    require_agents("fallback", agents, least=2)

    async def first_who_can(hands: PipelineContext, value: Any) -> Any:
        for agent in agents[:-1]:
            try:
                return await hands.delegate(agent, value)
            except TaskFailedError as exc:
                if exc.outcome.ending is Ending.CANCELLED:
                    raise
        return await hands.delegate(agents[-1], value)

    return Pipeline(
        "fallback",
        instructions=f"{', else '.join(agent.name for agent in agents)}.",
        program=first_who_can,
        input=shared_input(agents),
        output=either_of([it.output for it in agents]),
        parts=agents,
    )


def refine(
    draft: Agent[OutputT, InputT],
    /,
    *,
    until: Check[OutputT],
    rounds: int = 3,
    or_last: bool = False,
) -> Pipeline[InputT, OutputT]:
    """Return an agent that has something done again until a check passes.

    From the second round on, the agent reads what it was asked for, its last answer, and what is
    wrong with that.

    Args:
        draft: who does it.
        until: the check: a function that returns what is wrong with an answer, or "" if it passes;
            or an agent that is given the answer, and gives a `Review`.
        rounds: how often it is done at most.
        or_last: if nothing has passed by then, give the last answer instead of failing.
    """
    require_agents("refine", [draft], least=1)
    require_number("refine: rounds", rounds, least=1)
    critic = agent_or_function("refine", until)
    check: Any = until
    # A text, where what is wrong is told: no type checker can know.
    drafting: Agent[Any, Any] = draft
    if input_of(draft) not in {str, Any}:
        raise DefinitionError(
            f"refine: {draft.name!r} must take text, to read what is wrong with its answer"
        )

    async def complaint_about(hands: PipelineContext, answer: Any) -> str:
        if critic is not None:
            review: Review = await hands.delegate(critic, answer)
            return "" if review.passes else review.complaint or "it does not pass"
        await trio.lowlevel.checkpoint()
        said = check(answer)
        return str((await said if inspect.isawaitable(said) else said) or "")

    async def until_it_passes(hands: PipelineContext, value: Any) -> Any:
        await trio.lowlevel.checkpoint()
        asked, answer, complaint = value, None, ""
        for _ in range(rounds):
            answer = await hands.delegate(drafting, asked)
            complaint = await complaint_about(hands, answer)
            if not complaint:
                return answer
            asked = _again(value, drafting.as_goal(answer), complaint)
        if or_last:
            return answer
        raise AgentError(
            f"no answer passed in {rounds} round{'s' * (rounds != 1)}; of the last one it"
            f" was said: {complaint}"
        )

    return Pipeline(
        "refine",
        instructions=f"{draft.name}, until it passes.",
        program=until_it_passes,
        input=input_of(draft),
        output=draft.output,
        parts=[draft] if critic is None else [draft, critic],
    )


def _again(goal: str, answer: str, complaint: str) -> str:
    return (
        f"{goal}\n\nYour last answer:\n{answer}\n\nWhat is wrong with it:\n{complaint}"
    )
