"""Combinators that delegate again after a failure: `retry`, `fallback`, `refine`."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import trio

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

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")

NOT_RETRIED: Final = {Ending.OVER_BUDGET, Ending.REFUSED, Ending.CANCELLED}
"""Endings that a second attempt does not change: a budget stays used up, and a cancel was meant."""
LONGEST_PAUSE: Final = 60.0


@attrs.frozen
class Review:
    """The verdict of a critic on a draft."""

    passes: bool
    complaint: str = ""
    """The problem with the draft, if it does not pass."""


Check: TypeAlias = Callable[[OutputT], str | Awaitable[str]] | Agent[Review, OutputT]


def retry(
    agent: Agent[OutputT, InputT], /, *, times: int = 3, pause: float = 0
) -> Pipeline[InputT, OutputT]:
    """Return a pipeline that delegates to an agent again when it fails.

    A task that is over budget, refused or cancelled is not tried again.

    Args:
        agent: does the work.
        times: how many attempts there are at most.
        pause: seconds before the second attempt; twice as many before each next one.
    """
    arguments.require_agents("retry", [agent], least=1)
    arguments.require_number("retry: times", times, least=1)
    arguments.require_number("retry: pause", pause, least=0)

    async def run_attempts(context: PipelineContext, value: Any) -> Any:
        for attempt in range(1, times):
            try:
                return await context.delegate(agent, value)
            except TaskFailedError as exc:
                if exc.outcome.ending in NOT_RETRIED:
                    raise
            await trio.sleep(min(LONGEST_PAUSE, pause * 2 ** (attempt - 1)))
        return await context.delegate(agent, value)

    return Pipeline(
        "retry",
        instructions=f"{agent.name}, up to {times} times.",
        program=run_attempts,
        input=input_of(agent),
        output=agent.output,
        parts=[agent],
        shape=Shape(kind="retry", note=f"at most {times} times"),
    )


def fallback(*agents: Agent[OutputT, InputT]) -> Pipeline[InputT, OutputT]:
    """Return a pipeline that delegates to one agent after the other until one succeeds."""
    arguments.require_agents("fallback", agents, least=2)

    async def run_first_success(context: PipelineContext, value: Any) -> Any:
        for agent in agents[:-1]:
            try:
                return await context.delegate(agent, value)
            except TaskFailedError as exc:
                if exc.outcome.ending is Ending.CANCELLED:
                    raise
        return await context.delegate(agents[-1], value)

    return Pipeline(
        "fallback",
        instructions=f"{', else '.join(agent.name for agent in agents)}.",
        program=run_first_success,
        input=arguments.shared_input(agents),
        output=arguments.either_of([it.output for it in agents]),
        parts=agents,
        shape=Shape(kind="fallback", note="the next if one fails"),
    )


def refine(
    draft: Agent[OutputT, InputT],
    /,
    *,
    until: Check[OutputT],
    rounds: int = 3,
    or_last: bool = False,
) -> Pipeline[InputT, OutputT]:
    """Return a pipeline that delegates to an agent again until its answer passes a check.

    From the second round on, the agent reads the goal, its last answer, and the complaint.

    Args:
        draft: gives the answer.
        until: the check: a function that returns the problem with an answer, or "" if it passes; or
            an agent that takes the answer and returns a `Review`.
        rounds: the most answers.
        or_last: if no answer has passed by then, return the last one instead of failing.
    """
    arguments.require_agents("refine", [draft], least=1)
    arguments.require_number("refine: rounds", rounds, least=1)
    critic = arguments.agent_or_function("refine", until)
    check: Any = until
    # It takes text, checked below: its goal has the complaint in it from the second round on.
    drafting: Agent[Any, Any] = draft
    if input_of(draft) not in {str, Any}:
        raise DefinitionError(
            f"refine: {draft.name!r} must take text, to read the complaint about its answer"
        )

    async def complaint_about(context: PipelineContext, answer: Any) -> str:
        if critic is not None:
            review: Review = await context.delegate(critic, answer)
            return "" if review.passes else review.complaint or "it does not pass"
        await trio.lowlevel.checkpoint()
        complaint = check(answer)
        if inspect.isawaitable(complaint):
            complaint = await complaint
        return str(complaint or "")

    async def run_rounds(context: PipelineContext, value: Any) -> Any:
        await trio.lowlevel.checkpoint()
        goal, answer, complaint = value, None, ""
        for _ in range(rounds):
            answer = await context.delegate(drafting, goal)
            complaint = await complaint_about(context, answer)
            if not complaint:
                return answer
            goal = _next_goal(value, drafting.as_goal(answer), complaint)
        if or_last:
            return answer
        raise AgentError(
            f"no answer passed in {rounds} round{'s' * (rounds != 1)}; the complaint about the"
            f" last one: {complaint}"
        )

    return Pipeline(
        "refine",
        instructions=f"{draft.name}, until it passes.",
        program=run_rounds,
        input=input_of(draft),
        output=draft.output,
        parts=[draft] if critic is None else [draft, critic],
        shape=Shape(kind="refine", flow="loop", note=f"at most {rounds} rounds"),
    )


def _next_goal(goal: str, answer: str, complaint: str) -> str:
    return f"{goal}\n\nYour last answer:\n{answer}\n\nWhat is wrong with it:\n{complaint}"
