"""The only agent loop there is.

Every step is handed to the caller before the next begins, and the caller says when the agent may
act on the world. So whoever keeps the transcript can continue it after a crash: the loop starts
wherever the transcript stands.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from agents.agent import Agent, InstructionContext
from agents.approval import ApprovalCheck
from agents.errors import LimitExceededError, OutputError
from agents.limits import Limits
from agents.messages import (
    AssistantMessage,
    Message,
    Transcript,
    Usage,
    UserMessage,
    unanswered_calls,
)
from agents.models.model import Model, ModelEvent, ModelRequest, ignore_event
from agents.output.json_schema import schema_problems
from agents.output.typed import output_schema, read_output
from agents.tool_calls import Recorder, TurnSteps, checked_answer
from agents.tools.tool import Tool

REPAIR: Final = (
    "Your answer could not be read: {problem}\nGive it again, as nothing but that JSON."
)


def no_steering() -> Sequence[UserMessage]:
    """Return what was said to an agent that nobody talks to meanwhile."""
    return ()


async def take_turn(
    agent: Agent[Any],
    transcript: Transcript,
    *,
    model: Model,
    tools: Sequence[Tool],
    record: Recorder,
    wait_durable: Callable[[], Awaitable[None]],
    emit: Callable[[ModelEvent], None] = ignore_event,
    steering: Callable[[], Sequence[UserMessage]] = no_steering,
    approvals: ApprovalCheck | None = None,
    requested_schema: Mapping[str, Any] | None = None,
    extra_instructions: str = "",
    task: str = "",
    path: str = "",
) -> str:
    """Let an agent act until it gives its final answer, and return that.

    Args:
        agent: who acts; its instructions and limits hold.
        transcript: what was said so far, the steps of an interrupted turn included.
        model: who answers for the agent.
        tools: what it may use now.
        record: keeps a step, and returns it as it is kept.
        ready: waits until all that was recorded is safe. The agent asks its model, or runs a
            tool that must not run twice, when this has returned.
        tell: hears what happens while the model answers.
        hear: returns what was said to the agent meanwhile. It is asked before each model call.
        gate: decides about each call before it is run.
        wanted: the JSON schema that whoever asked wants the final answer to fit.
        besides: what holds for this turn, besides the agent's own instructions.
        task: names the work for ever; the keys of its calls begin with it.
        path: where in its tree the agent is.
    """
    steps = TurnSteps(
        transcript,
        tools,
        record,
        wait_durable,
        repeats=agent.limits.repeats,
        task=task,
        approvals=approvals,
    )
    history = steps.history
    instructions = _instructions(agent, history, path)
    if extra_instructions:
        instructions = (
            f"{instructions}\n\n{extra_instructions}"
            if instructions
            else extra_instructions
        )
    promised = output_schema(agent.output) or requested_schema
    if interrupted := unanswered_calls(history):
        await steps.answer_interrupted(interrupted)
    complaint: Sequence[Message] = ()
    if (final := _final_answer(history)) is not None:
        await wait_durable()
        if not (complaint := _repair_request(agent, requested_schema, final, history)):
            return final.text
    while True:
        _require_within_limits(agent.limits, history)
        history += steering()
        await wait_durable()
        answer = checked_answer(
            await model.answer(
                ModelRequest(
                    instructions=instructions,
                    transcript=[*history, *complaint] if complaint else history,
                    tools=tools,
                    output=promised,
                    tell=emit,
                )
            ),
            model,
            history,
        )
        kept = steps.record(answer)
        # A complaint stands until the next final answer, also behind calls made for it.
        if answer.calls:
            if theirs := steps.calls_for_caller(answer.calls):
                await steps.run_calls([it for it in answer.calls if it not in theirs])
                return kept.text
            await steps.run_calls(answer.calls)
        elif not (complaint := _repair_request(agent, requested_schema, kept, history)):
            return kept.text


def _instructions(agent: Agent[Any], history: Sequence[Message], path: str) -> str:
    if isinstance(agent.instructions, str) and not agent.language:
        return agent.instructions
    goal = next((said.text for said in history if isinstance(said, UserMessage)), "")
    return agent.instructions_for(
        InstructionContext(agent=agent.name, goal=goal, path=path)
    )


def _final_answer(history: Sequence[Message]) -> AssistantMessage | None:
    for said in reversed(history):
        # What was said meanwhile stands behind an answer that is to be repaired.
        if isinstance(said, UserMessage) and said.aside:
            continue
        return said if isinstance(said, AssistantMessage) and not said.calls else None
    return None


def _repair_request(
    agent: Agent[Any],
    requested_schema: Mapping[str, Any] | None,
    final: AssistantMessage,
    history: Sequence[Message],
) -> Sequence[Message]:
    """Return what to say of a final answer that is not what was promised: once in a turn.

    It is said and not kept: whoever resumes from the answer finds the same to complain of.
    """
    try:
        _require_output_fits(agent, requested_schema, final.text)
    except OutputError as exc:
        if sum(not said.calls for said in _answers_of_turn(history)) > 1:
            raise
        return [UserMessage(REPAIR.format(problem=exc))]
    return ()


def _require_output_fits(
    agent: Agent[Any], requested_schema: Mapping[str, Any] | None, text: str
) -> None:
    read_output(agent.output, text)
    if requested_schema is not None and (
        problems := schema_problems(requested_schema, text)
    ):
        raise OutputError(
            f"the answer does not fit the schema that was asked for: {'; '.join(problems)}",
            problems,
        )


def _require_within_limits(limits: Limits, history: Sequence[Message]) -> None:
    answers = _answers_of_turn(history)
    if len(answers) >= limits.model_calls:
        raise LimitExceededError(f"{limits.model_calls} model calls", "calls")
    if limits.tokens is None and limits.usd is None:
        return
    used = sum((said.usage for said in answers), Usage())
    if limits.tokens is not None and used.tokens >= limits.tokens:
        raise LimitExceededError(f"{limits.tokens} tokens", "tokens")
    if limits.usd is not None and used.cost >= limits.usd * 1_000_000:
        raise LimitExceededError(f"${limits.usd:g}", "usd")


def _answers_of_turn(history: Sequence[Message]) -> list[AssistantMessage]:
    """Return the answers since the agent was last told something, the newest first."""
    answers: list[AssistantMessage] = []
    for message in reversed(history):
        if isinstance(message, UserMessage) and not message.aside:
            break
        if isinstance(message, AssistantMessage):
            answers.append(message)
    return answers
