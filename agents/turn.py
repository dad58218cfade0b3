"""The only agent loop there is.

Every step is recorded by the host before the next begins, and the host says when the agent may act
on the world. The loop starts wherever the transcript stands, so a turn continues after a crash.
"""

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

import trio
from msgspec.structs import replace

from orchestrator.agents.agent import Agent
from orchestrator.agents.errors import LimitExceededError, OutputError
from orchestrator.agents.hooks import Hooks
from orchestrator.agents.limits import Limits
from orchestrator.agents.messages import (
    AssistantMessage,
    Message,
    UserMessage,
    unanswered_calls,
    well_formed,
)
from orchestrator.agents.models.model import Model, ModelRequest
from orchestrator.agents.models.settings import NO_SETTINGS, ModelSettings
from orchestrator.agents.output.typed import read_output
from orchestrator.agents.tool_calls import TurnSteps, checked_answer, is_long
from orchestrator.agents.tools.task_context import TaskContext
from orchestrator.agents.tools.tool import Tool
from orchestrator.agents.transcript import Transcript
from orchestrator.agents.turn_host import PastChecks, TurnHost

SENT_BACK: Final = "Your answer was sent back: {problem}\nGive it again."
REPAIR: Final = "Your answer could not be read: {problem}\nGive it again, as nothing but that JSON."


def take_turn(  # noqa: PLR0917 (the engine passes all by position, which is faster)
    agent: Agent[Any],
    transcript: Iterable[Message],
    model: Model,
    tools: Sequence[Tool],
    host: TurnHost,
    requested_schema: Mapping[str, Any] | None = None,
    extra_instructions: str = "",
    settings: ModelSettings = NO_SETTINGS,
    task: str = "",
    path: str = "",
    start: int = 0,
    deps: object = None,
    made_instructions: str | None = None,
    past_checks: PastChecks | None = None,
    calls_hooks: bool = True,
) -> Coroutine[Any, Any, str]:
    """Run an agent until it gives its final answer, and return that.

    Args:
        agent: its instructions and limits hold.
        transcript: the messages so far, the steps of an interrupted turn included.
        model: answers for the agent; each call is paid for inside it.
        tools: what the agent may use in this turn.
        host: records the steps, and says when the turn may go on.
        requested_schema: a JSON schema that the final answer has to fit.
        extra_instructions: added to the agent's own, for this turn.
        settings: put over the agent's own, for this turn.
        task: the prefix of its call keys, which no other task has.
        path: the path of the task in its tree.
        start: how many messages there were before this turn: a client's tools may have answered
            calls of an earlier one.
        deps: the dependencies that the program has given to the run.
        made_instructions: what the function of its instructions made before a crash.
        past_checks: what the checks said in the run that this one repeats; by default they are
            called.
        calls_hooks: the hooks of the agent are called; not where nothing has an effect.
    """
    plan = agent.plan
    if not isinstance(transcript, Transcript):
        transcript = Transcript(transcript)
    context: TaskContext[Any] | None = None
    if plan.takes_context or (tools and _take_context(tools)):
        context = _context(agent, transcript, path, deps)
    hooks = agent.hooks if calls_hooks else ()
    if hooks:
        # Imported late: most agents have no hooks.
        from orchestrator.agents.hooked_calls import with_hooks

        model, tools = with_hooks(hooks, agent, model, tools, context)
    first, later = agent.settings, plan.later_settings
    if settings is not NO_SETTINGS:
        first = settings.over(first)
        later = first.after_first_answer()
    check: _AnswerChecks | None = None
    if plan.has_checks or requested_schema is not None:
        check = _AnswerChecks(agent, requested_schema, context, past_checks)
    steps = TurnSteps(transcript, tools, host, context, agent.limits.repeats, task, start)
    output = plan.output or requested_schema
    # By position: each keyword takes as long as a step of the loop.
    return _answer(
        agent,
        model,
        tools,
        host,
        steps,
        hooks,
        made_instructions,
        extra_instructions,
        output,
        first,
        later,
        check,
    )


async def _answer(  # noqa: C901, PLR0912, PLR0917 (an unused feature costs one `if`)
    agent: Agent[Any],
    model: Model,
    tools: Sequence[Tool],
    host: TurnHost,
    steps: TurnSteps,
    hooks: Sequence[Hooks[Any]],
    made_instructions: str | None,
    extra_instructions: str,
    output: Mapping[str, Any] | None,
    first: ModelSettings,
    later: ModelSettings,
    check: "_AnswerChecks | None",
) -> str:
    """Ask the model and run its calls until it gives its final answer, and return that."""
    plan = agent.plan
    instructions = plan.instructions
    if instructions is None:
        instructions = await _made_instructions(agent, steps, host, made_instructions)
    if extra_instructions:
        parts = (instructions, extra_instructions)
        instructions = "\n\n".join(filter(None, parts))
    complaint: Sequence[Message] = ()
    # Most turns begin here; one that has answers already goes on from the last of them.
    if steps.answers:
        final, complaint = await _resumed(steps, host, check)
        if final is not None:
            return final
    while True:
        if plan.limits_usage or steps.answers >= agent.limits.calls:
            _require_within_limits(agent.limits, steps)
        if steering := await host.before_model_call():
            steps.add(*steering)
        history = steps.history
        answer = checked_answer(
            await model.answer(
                ModelRequest(
                    instructions=instructions,
                    transcript=history + complaint if complaint else history,
                    tools=tools,
                    output=output,
                    max_output=first.max_output_tokens,
                    settings=later if steps.answers else first,
                    tell=host.emit,
                )
            ),
            model,
            history,
        )
        if hooks:
            answer = await _hooked_answer(answer, hooks, model, steps, host)
        if is_long(answer):
            await host.before_record(answer)
        if check is None and not answer.calls:
            return host.record(answer, ends_turn=True).text
        recorded = steps.record(answer)
        # A complaint stands until the next final answer, also behind calls made for it.
        if answer.calls:
            if for_caller := steps.calls_for_caller(answer.calls):
                await steps.run_calls([call for call in answer.calls if call not in for_caller])
                return recorded.text
            await steps.run_calls(answer.calls)
            final = steps.final_result(answer.calls)
        else:
            final = recorded.text
        if final is not None and not (
            complaint := () if check is None else await check.complaint(final, steps)
        ):
            return final


async def _resumed(
    steps: TurnSteps, host: TurnHost, check: "_AnswerChecks | None"
) -> tuple[str | None, Sequence[Message]]:
    """Return the final answer of a turn; otherwise None and the problem."""
    if interrupted := unanswered_calls(steps.history):
        for_caller = steps.calls_for_caller(interrupted)
        own = [call for call in interrupted if call not in for_caller]
        await steps.answer_interrupted(own)
        if for_caller:
            return steps.last_text(), ()
    complaint: Sequence[Message] = ()
    if (final := steps.final_answer()) is not None:
        await host.before_resume(())
        complaint = () if check is None else await check.complaint(final, steps)
    await trio.lowlevel.checkpoint()
    return (None if complaint else final), complaint


async def _hooked_answer(
    answer: AssistantMessage,
    hooks: Sequence[Hooks[Any]],
    model: Model,
    steps: TurnSteps,
    host: TurnHost,
) -> AssistantMessage:
    """Return an answer in the form that the hooks want recorded; if a hook fails, the original."""
    from orchestrator.agents.hooked_calls import changed_answer

    assert steps.context is not None, "a hook is given the task"
    try:
        return checked_answer(  # noqa: ASYNC910 (an answer is recorded at once)
            changed_answer(answer, hooks, steps.context), model, steps.history
        )
    except BaseException:
        # It is paid for.
        if is_long(answer):
            with trio.CancelScope(shield=True):
                await host.before_record(answer)
        steps.record(answer)
        raise


def _take_context(tools: Sequence[Tool]) -> bool:
    for tool in tools:  # noqa: SIM110 (a generator takes twice as long)
        if tool.takes_context:
            return True
    return False


def _context(
    agent: Agent[Any], transcript: Transcript, path: str, deps: object
) -> TaskContext[Any]:
    """Return the context of the task."""
    users = (it for it in transcript if isinstance(it, UserMessage))
    goal = next((message.text for message in users), "")
    return TaskContext(agent=agent.name, goal=goal, path=path, deps=deps)


async def _made_instructions(
    agent: Agent[Any], steps: TurnSteps, host: TurnHost, known: str | None
) -> str:
    """Return the instructions that a function makes for a task, once in a turn."""
    if known is not None:
        await trio.lowlevel.checkpoint()
        return agent.whole_instructions(known)
    assert steps.context is not None, "a function is given the task"
    made = well_formed(await agent.make_instructions(steps.context))
    last, agent.plan.made = agent.plan.made, made
    if last is not None and last != made:
        # Imported late: few instructions change.
        from orchestrator.agents.made_instructions import warn_of_change

        warn_of_change(agent.name, last, made, steps.history)
    await host.before_instructed(made)
    return agent.whole_instructions(made)


class _AnswerChecks:
    """Names the problems of a final answer.

    They are not recorded: a turn that resumes from the answer checks it again.
    """

    __slots__ = ("_agent", "_context", "_past", "_schema")

    def __init__(
        self,
        agent: Agent[Any],
        requested_schema: Mapping[str, Any] | None,
        context: TaskContext[Any] | None,
        past: PastChecks | None,
    ) -> None:
        self._agent = agent
        self._schema = requested_schema
        self._context = context
        self._past = past

    async def complaint(self, final: str, steps: TurnSteps) -> Sequence[Message]:
        """Return the request to give an answer again; empty if it is as it should be.

        Raises:
            OutputError: it was given again often enough.
        """
        request = REPAIR
        try:
            value = self._read(final)
            request = SENT_BACK
            if self._agent.checks:
                await self._check(value, steps)
        except OutputError as exc:
            if len(steps.final_answers()) > self._agent.limits.repairs:
                raise
            return [UserMessage(request.format(problem=exc))]  # noqa: ASYNC910 (its caller checkpoints)
        return ()  # noqa: ASYNC910 (its caller checkpoints)

    async def _check(self, value: object, steps: TurnSteps) -> None:
        if self._past is None:
            assert self._context is not None, "a check is given the task"
            context = self._context
            if self._agent.tools:
                # Imported late: few agents have checks and tools.
                from orchestrator.agents.tools.evidence import evidence_of

                evidence = evidence_of(steps.messages(), has_tools=True)
                context = replace(context, evidence=evidence)
            await self._agent.check_answer(value, context)
        elif (problem := self._past(steps.answers)) is not None:
            raise OutputError(problem)
        await trio.lowlevel.checkpoint()

    def _read(self, text: str) -> object:
        value = read_output(self._agent.output, text)
        if self._schema is not None:
            # Imported late: most answers have a type, or none.
            from orchestrator.agents.output.json_schema import schema_problems

            if problems := schema_problems(self._schema, text):
                raise OutputError(
                    f"the answer does not fit the schema that was asked for: {'; '.join(problems)}",
                    problems,
                )
        return value


def _require_within_limits(limits: Limits, steps: TurnSteps) -> None:
    if steps.answers >= limits.calls:
        raise LimitExceededError(f"{limits.calls} model calls", "calls")
    if limits.tokens is None and limits.usd is None:
        return
    used = steps.used
    if limits.tokens is not None and used.tokens >= limits.tokens:
        raise LimitExceededError(f"{limits.tokens} tokens", "tokens")
    if limits.usd is not None and used.micro_usd >= limits.usd * 1_000_000:
        raise LimitExceededError(f"${limits.usd:g}", "usd")
