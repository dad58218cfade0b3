"""The only agent loop there is.

Every step is handed to the caller before the next begins, so that whoever keeps the transcript
can continue it after a crash: the loop starts wherever the transcript stands.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import trio

from agents.agent import Agent
from agents.errors import LimitExceededError, ToolError
from agents.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
    broken_off,
    mended,
    unanswered_calls,
)
from agents.models.model import Model, ModelRequest
from agents.nurseries import raising_one_error
from agents.tools.tool import Tool

Step: TypeAlias = AssistantMessage | ToolMessage


async def take_turn(
    agent: Agent[Any],
    transcript: Transcript,
    *,
    model: Model,
    tools: Sequence[Tool],
    record: Callable[[Step], Awaitable[None]],
) -> str:
    """Let an agent act until it gives its final answer, and return that.

    Args:
        agent: who acts; its instructions and limits hold.
        transcript: what was said so far, the steps of an interrupted turn included.
        model: who answers for the agent.
        tools: what it may use now.
        record: keeps a step; the next one begins when it returns.
    """
    steps = _Steps(transcript, tools, record)
    await steps.mend()
    history = steps.history
    if history and isinstance(last := history[-1], AssistantMessage):
        return last.text
    for _ in range(agent.limits.model_calls - _answers_so_far(history)):
        answer = await model.answer(
            ModelRequest(
                instructions=agent.instructions, transcript=history, tools=tools
            )
        )
        await steps.take(answer)
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
        record: Callable[[Step], Awaitable[None]],
    ) -> None:
        self.history = mended(transcript)
        self._tools = {tool.name: tool for tool in tools}
        self._record = record

    async def take(self, step: Step) -> None:
        # In this order: steps that are kept together may be safe in any order.
        self.history.append(step)
        await self._record(step)

    async def mend(self) -> None:
        """Answer the calls that a crash left open: by running them again where that is safe."""
        await trio.lowlevel.checkpoint()
        if not (interrupted := unanswered_calls(self.history)):
            return
        repeatable = [call for call in interrupted if self._is_repeatable(call)]
        for call in interrupted:
            if call not in repeatable:
                await self.take(broken_off(call))
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
        try:
            answer = ToolMessage(call.id, await self._tool(call).run(call))
        except ToolError as exc:
            answer = ToolMessage(call.id, str(exc), failed=True)
        await self.take(answer)

    def _tool(self, call: ToolCall) -> Tool:
        if call.name not in self._tools:
            known = ", ".join(self._tools) or "none"
            raise ToolError(f"there is no tool {call.name!r}; there are: {known}")
        return self._tools[call.name]

    def _is_repeatable(self, call: ToolCall) -> bool:
        return call.name in self._tools and self._tools[call.name].idempotent


def _answers_so_far(history: Sequence[Message]) -> int:
    """Count the answers of this turn, which began with what the agent was last told."""
    count = 0
    for message in reversed(history):
        if isinstance(message, UserMessage):
            break
        count += isinstance(message, AssistantMessage)
    return count
