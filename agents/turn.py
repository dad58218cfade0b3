"""The only agent loop there is.

Every step is handed to the caller before the next begins, and the caller says when the agent may
act on the world. So whoever keeps the transcript can continue it after a crash: the loop starts
wherever the transcript stands.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias

import attrs
import trio

from agents.agent import Agent
from agents.errors import DefinitionError, LimitExceededError, ToolError
from agents.messages import (
    AssistantMessage,
    CallId,
    Message,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
    broken_off,
    mended,
    unanswered_calls,
    well_formed,
)
from agents.models.model import Model, ModelRequest
from agents.nurseries import raising_one_error
from agents.output import output_schema
from agents.tools.tool import Tool

Step: TypeAlias = AssistantMessage | ToolMessage


async def take_turn(
    agent: Agent[Any],
    transcript: Transcript,
    *,
    model: Model,
    tools: Sequence[Tool],
    record: Callable[[Step], None],
    ready: Callable[[], Awaitable[None]],
) -> str:
    """Let an agent act until it gives its final answer, and return that.

    Args:
        agent: who acts; its instructions and limits hold.
        transcript: what was said so far, the steps of an interrupted turn included.
        model: who answers for the agent.
        tools: what it may use now.
        record: keeps a step.
        ready: waits until all that was recorded is safe. The agent asks its model, or runs a
            tool that must not run twice, when this has returned.
    """
    steps = _Steps(transcript, tools, record, ready)
    history = steps.history
    if history and isinstance(last := history[-1], AssistantMessage) and not last.calls:
        await ready()
        return last.text
    if interrupted := unanswered_calls(history):
        await steps.mend(interrupted)
    promised = output_schema(agent.output)
    for _ in range(agent.limits.model_calls - _answers_so_far(history)):
        await ready()
        answer = steps.checked(
            await model.answer(
                ModelRequest(
                    instructions=agent.instructions,
                    transcript=history,
                    tools=tools,
                    output=promised,
                )
            ),
            model,
        )
        steps.take(answer)
        if not answer.calls:
            return answer.text
        await steps.run_calls(answer.calls)
    raise LimitExceededError("model calls", agent.limits.model_calls)


class _Steps:
    """The transcript of a turn, and the tools that add to it."""

    def __init__(
        self,
        transcript: Transcript,
        tools: Sequence[Tool],
        record: Callable[[Step], None],
        ready: Callable[[], Awaitable[None]],
    ) -> None:
        self.history = mended(transcript)
        self._tools = {tool.name: tool for tool in tools}
        self._record = record
        self._ready = ready

    def take(self, step: Step) -> None:
        self._record(step)
        self.history.append(step)

    def checked(self, answer: object, model: Model) -> AssistantMessage:
        """Return what a model said if it can be kept, with ids that are used only once."""
        if not (
            isinstance(answer, AssistantMessage)
            and _are([answer.text], str)
            and _are(answer.calls, ToolCall)
            and _are(attrs.astuple(answer.usage), int)
        ):
            raise DefinitionError(
                f"model {model.name!r} answered {answer!r}, which is no AssistantMessage"
                " of text, calls and whole numbers"
            )
        known = {
            call.id
            for message in self.history
            if isinstance(message, AssistantMessage)
            for call in message.calls
        }
        ids = [call.id for call in answer.calls]
        if "" in ids or len(set(ids)) < len(ids) or known & set(ids):
            calls = tuple(
                attrs.evolve(call, id=CallId(f"{call.id}~{len(self.history)}.{index}"))
                for index, call in enumerate(answer.calls)
            )
            answer = attrs.evolve(answer, calls=calls)
        return attrs.evolve(answer, text=well_formed(answer.text))

    async def mend(self, interrupted: Sequence[ToolCall]) -> None:
        """Answer the calls that a crash left open: by running them again where that is safe."""
        await self._ready()
        repeatable = [call for call in interrupted if self._is_repeatable(call)]
        for call in interrupted:
            if call not in repeatable:
                self.take(broken_off(call))
        if repeatable:
            await self.run_calls(repeatable)

    async def run_calls(self, calls: Sequence[ToolCall]) -> None:
        if len(calls) == 1:
            await self._run_call(calls[0])
            return
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                for call in calls:
                    nursery.start_soon(self._run_call, call)

    async def _run_call(self, call: ToolCall) -> None:
        await trio.lowlevel.checkpoint()
        try:
            tool = self._tool(call)
            if not tool.idempotent:
                # It must be known for ever that this may have happened.
                await self._ready()
            said = await tool.run(call)
            if not _are([said], str):
                raise DefinitionError(f"tool {call.name!r} answered {said!r}, not text")
            answer = ToolMessage(call.id, well_formed(said))
        except ToolError as exc:
            answer = ToolMessage(call.id, str(exc), failed=True)
        self.take(answer)

    def _tool(self, call: ToolCall) -> Tool:
        if call.name not in self._tools:
            known = ", ".join(self._tools) or "none"
            raise ToolError(f"there is no tool {call.name!r}; there are: {known}")
        return self._tools[call.name]

    def _is_repeatable(self, call: ToolCall) -> bool:
        return call.name in self._tools and self._tools[call.name].idempotent


def _are(values: Iterable[object], kind: type[object]) -> bool:
    """Tell what no type checker has looked at."""
    return all(isinstance(value, kind) for value in values)


def _answers_so_far(history: Sequence[Message]) -> int:
    """Count the answers of this turn, which began with what the agent was last told."""
    count = 0
    for message in reversed(history):
        if isinstance(message, UserMessage):
            break
        count += isinstance(message, AssistantMessage)
    return count
