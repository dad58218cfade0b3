"""The steps of a turn: what a model says is checked, what it calls is run, both are kept."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias, TypeVar, cast

import attrs
import msgspec
import trio

from agents.approval import ApprovalCheck
from agents.errors import DefinitionError, ModelError, ToolError
from agents.messages import (
    AssistantMessage,
    CallId,
    Message,
    ToolCall,
    ToolMessage,
    Transcript,
    Usage,
    interrupted_answer,
    well_formed,
    with_interrupted_answers,
)
from agents.models.model import Model
from agents.nurseries import raising_one_error
from agents.redaction.named_values import REDACTED
from agents.tools.tool import CURRENT_CALL_KEY, CallKey, Tool

SECRET_NOT_RECORDED: Final = (
    "not run: it held a secret, which is not kept, and everything stopped while it waited for"
    " approval; call it again, with the secret, if it is still wanted"
)

Step: TypeAlias = AssistantMessage | ToolMessage
Recorder: TypeAlias = Callable[[Step], Step]
"""Keeps a step, and returns it as it is kept: nobody is to read more than that."""
StepT = TypeVar("StepT", AssistantMessage, ToolMessage)


class TurnSteps:
    """The transcript of a turn, and the tools that add to it."""

    __slots__ = (
        "_answers",
        "_gate",
        "_ready",
        "_record",
        "_repeats",
        "_task",
        "_tools",
        "history",
    )

    def __init__(
        self,
        transcript: Transcript,
        tools: Sequence[Tool],
        record: Recorder,
        wait_durable: Callable[[], Awaitable[None]],
        *,
        repeats: int,
        task: str,
        approvals: ApprovalCheck | None = None,
    ) -> None:
        self.history = with_interrupted_answers(transcript)
        self._task = task
        self._tools = {tool.name: tool for tool in tools}
        self._record = record
        self._ready = wait_durable
        self._repeats = repeats
        self._gate = approvals
        self._answers: dict[bytes, tuple[str, int]] = {}
        """What each call was answered last, and how often in a row."""

    def record(self, step: StepT) -> StepT:
        """Keep a step, and return it as it is kept."""
        kept = cast("StepT", self._record(step))
        self.history.append(kept)
        return kept

    async def answer_interrupted(self, interrupted: Sequence[ToolCall]) -> None:
        """Answer the calls that a crash left open: by running them again where that is safe."""
        # Before anybody can let one through: then nobody could tell whether it ran.
        held = [call for call in interrupted if self._awaits_approval(call)]
        await self._ready()
        again: list[ToolCall] = []
        for call in interrupted:
            if call in held and REDACTED.encode() in _fingerprint(call):
                self.record(ToolMessage(call.id, SECRET_NOT_RECORDED, failed=True))
            elif call in held or self._is_repeatable(call):
                again.append(call)
            else:
                self.record(interrupted_answer(call))
        if again:
            await self.run_calls(again)

    def calls_for_caller(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Return those of some calls that are for whoever asked to run."""
        tools = self._tools
        return [
            it for it in calls if it.name in tools and tools[it.name].runs_at_caller
        ]

    async def run_calls(self, calls: Sequence[ToolCall]) -> None:
        """Run calls at the same time, and keep each answer as it comes."""
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
            if self._gate is not None:
                await self._gate.wait_approved(call)
            if tool.takes_call_key or not tool.idempotent:
                # It must be known for ever that this may have happened.
                await self._ready()
            # Never put back: the next call sets its own.
            CURRENT_CALL_KEY.set(CallKey(f"{self._task}/{call.id}"))
            said = await tool.run(call)
            if not _is(said, str):
                raise DefinitionError(f"tool {call.name!r} answered {said!r}, not text")
            answer = ToolMessage(call.id, well_formed(said))
        except ToolError as exc:
            answer = ToolMessage(call.id, well_formed(str(exc)), failed=True)
        except ModelError as exc:
            # Not the model of this task: that it failed is an error of the tool.
            raise RuntimeError(f"tool {call.name!r} failed: {exc}") from exc
        self._count_repeats(call, answer.text)
        self.record(answer)

    def _tool(self, call: ToolCall) -> Tool:
        if call.name not in self._tools:
            known = ", ".join(self._tools) or "none"
            raise ToolError(f"there is no tool {call.name!r}; there are: {known}")
        _, times = self._answers.get(_fingerprint(call), ("", 0))
        if times >= self._repeats:
            raise ToolError(
                f"you have made this very call {times} times and always got the same"
                " answer: do something else, or give your final answer"
            )
        return self._tools[call.name]

    def _count_repeats(self, call: ToolCall, text: str) -> None:
        made = _fingerprint(call)
        last, times = self._answers.get(made, ("", 0))
        if times < self._repeats:
            self._answers[made] = (text, times + 1 if text == last else 1)

    def _is_repeatable(self, call: ToolCall) -> bool:
        return call.name in self._tools and self._tools[call.name].idempotent

    def _awaits_approval(self, call: ToolCall) -> bool:
        """Tell whether it waited for approval, and so was never run."""
        if call.name not in self._tools or self._gate is None:
            return False
        return self._gate.is_pending(call)


def checked_answer(
    answer: object, model: Model, history: Sequence[Message]
) -> AssistantMessage:
    """Return what a model said if it can be kept, with ids that are used only once."""
    if not (
        isinstance(answer, AssistantMessage)
        and _is(answer.text, str)
        and (not answer.calls or all(_is(call, ToolCall) for call in answer.calls))
        and _is_whole(answer.usage)
    ):
        raise DefinitionError(
            f"model {model.name!r} answered {answer!r}, which is no AssistantMessage of"
            " text, calls and whole numbers"
        )
    if answer.calls:
        answer = attrs.evolve(answer, calls=_with_own_ids(answer.calls, history))
    if not answer.text.isascii():
        answer = attrs.evolve(answer, text=well_formed(answer.text))
    return answer


def _with_own_ids(
    calls: tuple[ToolCall, ...], history: Sequence[Message]
) -> tuple[ToolCall, ...]:
    used = {
        call.id
        for message in history
        if isinstance(message, AssistantMessage)
        for call in message.calls
    }
    ids = [call.id for call in calls]
    if "" not in ids and len(set(ids)) == len(ids) and used.isdisjoint(ids):
        return calls
    return tuple(
        attrs.evolve(call, id=CallId(f"{call.id}~{len(history)}.{index}"))
        for index, call in enumerate(calls)
    )


def _is_whole(usage: Usage) -> bool:
    # Spelled out: attrs takes apart a value in ten times the time, and this is every answer.
    return (
        type(usage.calls) is int
        and type(usage.input_tokens) is int
        and type(usage.output_tokens) is int
        and type(usage.cost) is int
        and type(usage.unpriced) is int
        and type(usage.cached_tokens) is int
        and type(usage.reasoning_tokens) is int
    )


def _fingerprint(call: ToolCall) -> bytes:
    return msgspec.json.encode([call.name, call.arguments])


def _is(value: object, kind: type[object]) -> bool:
    """Tell what no type checker has looked at."""
    return isinstance(value, kind)
