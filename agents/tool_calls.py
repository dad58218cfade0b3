"""The steps of a turn: checks the answer of a model, runs its calls, records both."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final

import msgspec
import trio
from msgspec.structs import replace

from orchestrator.agents.approved_call import APPROVED_CALL
from orchestrator.agents.errors import DefinitionError, ModelError, RefusedBy, ToolError
from orchestrator.agents.logprobs import TokenLogprob, spelled_texts
from orchestrator.agents.messages import (
    AssistantMessage,
    CallId,
    Message,
    Part,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    interrupted_answer,
    well_formed,
)
from orchestrator.agents.models.model import Model
from orchestrator.agents.nurseries import raising_one_error
from orchestrator.agents.redaction.long_texts import has_long_text, texts_in
from orchestrator.agents.redaction.redactor import LONG_TEXT, has_redacted
from orchestrator.agents.tools.result_text import ToolResult
from orchestrator.agents.tools.task_context import CURRENT_TASK, TaskContext
from orchestrator.agents.tools.tool import CURRENT_CALL_KEY, CallKey, Tool
from orchestrator.agents.transcript import Transcript
from orchestrator.agents.turn_host import Step, TurnHost
from orchestrator.agents.type_checks import has_type

HELD_CALL_NOT_RUN: Final = (
    "not run: it held a secret, which is not recorded, and the process stopped while it waited for"
    " approval; call it again, with the secret, if it is still wanted"
)

CALL_NOT_REPEATED: Final = (
    "not run again: it held a secret, which is not recorded, and everything stopped before it"
    " had an answer, so it may have run; call it again, with the secret, if it is still wanted"
)

NOTHING_USED: Final = Usage()
NO_TOOLS: Final[Mapping[str, Tool]] = {}


def is_long(step: Step) -> bool:
    """Return whether the search of a step for secrets would stall the event loop."""
    if len(step.text) > LONG_TEXT:
        return True
    if isinstance(step, ToolMessage):
        return False
    for call in step.calls:
        if sum(map(len, texts_in(call.arguments))) > LONG_TEXT:
            return True
    if not (step.reasoning or step.logprobs):
        return False
    return any(len(it.text) > LONG_TEXT for it in step.reasoning) or any(
        map(has_long_text, spelled_texts(step.logprobs))
    )


class TurnSteps:
    """The transcript of a turn, and the tools that add to it."""

    __slots__ = (
        "_host",
        "_repeats",
        "_results",
        "_start",
        "_task",
        "_tools",
        "answers",
        "context",
        "history",
        "used",
    )

    def __init__(  # noqa: PLR0917 (by position, which is faster: one for each turn)
        self,
        transcript: Transcript,
        tools: Sequence[Tool],
        host: TurnHost,
        context: TaskContext[Any] | None,
        repeats: int,
        task: str,
        start: int = 0,
    ) -> None:
        self.history, self._start, so_far = transcript.open_turn(start)
        self.answers = 0
        """How many answers the model has given in this turn."""
        self.used = NOTHING_USED
        """Their usage."""
        for message in so_far:
            if isinstance(message, AssistantMessage):
                self._count(message)
        self._task = task
        self.context = context
        """The context for tools that ask for it; None if no tool does."""
        self._tools = {tool.name: tool for tool in tools} if tools else NO_TOOLS
        self._host = host
        self._repeats = repeats
        self._results: dict[bytes, tuple[tuple[str, tuple[Part, ...]], int]] = {}
        """The last answer to each call, and how often in a row it was the same."""

    def record(self, step: Step, consumes: Sequence[int] = ()) -> Step:
        """Record a step, and return its recorded form."""
        recorded = self._host.record(step, consumes)
        self.history = self.history.followed_by(recorded)
        if isinstance(recorded, AssistantMessage):
            self._count(recorded)
        return recorded

    def add(self, *messages: UserMessage) -> None:
        """Add steering, which the host has recorded."""
        self.history = self.history.followed_by(*messages)

    def _count(self, answer: AssistantMessage) -> None:
        # Most turns have one answer: its usage is the sum.
        self.used = self.used + answer.usage if self.answers else answer.usage
        self.answers += 1

    def messages(self) -> list[Message]:
        """Return the messages of this turn."""
        return [*self.history.of_turn(self._start)][::-1]

    def final_answers(self) -> list[str]:
        """Return the final answers of this turn, the last one first: more than one if it was sent
        back.
        """
        found: list[str] = []
        results: dict[CallId, ToolMessage] = {}
        for message in self.history.of_turn(self._start):
            if isinstance(message, ToolMessage):
                results[message.call] = message
            elif isinstance(message, AssistantMessage):
                answer = self._as_final(message, results)
                found += [] if answer is None else [answer]
        return found

    def final_answer(self) -> str | None:
        """Return the final answer that the turn has come to; None if the model is to go on."""
        results: dict[CallId, ToolMessage] = {}
        for message in self.history.of_turn(self._start):
            if isinstance(message, ToolMessage):
                results[message.call] = message
            elif isinstance(message, AssistantMessage):
                return None if message.incomplete else self._as_final(message, results)
            # Steering stands behind an answer that is to be repaired.
        return None

    def final_result(self, calls: Sequence[ToolCall]) -> str | None:
        """Return the result of calls if it is the final answer; None if the model is to go on."""
        tool = self._tools.get(calls[0].name)
        return None if tool is None or tool.gives_answer is None else self.final_answer()

    def _as_final(
        self, answer: AssistantMessage, results: Mapping[CallId, ToolMessage]
    ) -> str | None:
        """Return the text of a final answer, or the result of a call that is one."""
        if not answer.calls:
            return answer.text
        call = answer.calls[0]
        tool = self._tools.get(call.name)
        if len(answer.calls) > 1 or tool is None or tool.gives_answer is None:
            return None
        result = results.get(call.id)
        is_final = result is not None and not result.failed and tool.gives_answer(call)
        return result.text if result is not None and is_final else None

    def last_text(self) -> str:
        """Return the text of the model beside its last calls."""
        answers = (
            it for it in self.history.of_turn(self._start) if isinstance(it, AssistantMessage)
        )
        return next(answers).text

    async def answer_interrupted(self, interrupted: Sequence[ToolCall]) -> None:
        """Answer the calls that a crash left open: by running them again where that is safe."""
        held = await self._host.before_resume(interrupted)
        again: list[ToolCall] = []
        for call in interrupted:
            is_held = call in held and call.name in self._tools
            if not (is_held or self._is_repeatable(call)):
                self.record(interrupted_answer(call))
            elif self._lacks_secret(call):
                why = HELD_CALL_NOT_RUN if is_held else CALL_NOT_REPEATED
                self.record(ToolMessage(call.id, why, failed=True, refused_by=RefusedBy.CRASH))
            else:
                again.append(call)
        if again:
            await self.run_calls(again)

    def calls_for_caller(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Return those of some calls that the caller of the session runs itself."""
        found: list[ToolCall] = []
        for call in calls:
            tool = self._tools.get(call.name)
            if tool is not None and tool.runs_at_caller:
                found.append(call)
        return found

    def run_calls(self, calls: Sequence[ToolCall]) -> Awaitable[None]:
        """Run calls at the same time, and record each answer as it comes."""
        return self._run_call(calls[0]) if len(calls) == 1 else self._run_together(calls)

    async def _run_together(self, calls: Sequence[ToolCall]) -> None:
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                for call in calls:
                    nursery.start_soon(self._run_call, call)

    async def _run_call(self, call: ToolCall) -> None:
        # Other tasks had their turn while the model answered.
        await trio.lowlevel.checkpoint_if_cancelled()
        consumes: Sequence[int] = ()
        parts: tuple[Part, ...] = ()
        evidence: Mapping[str, Any] | msgspec.UnsetType = msgspec.UNSET
        fingerprint = msgspec.json.encode((call.name, call.arguments))
        try:
            tool = self._tool(call, fingerprint)
            # Nothing is done for an answer that a crash could still undo.
            approved = await self._host.before_tool(call, durable=tool.acts_outside)
            # Never reset: the next call sets its own.
            APPROVED_CALL.set(approved)
            CURRENT_CALL_KEY.set(CallKey(f"{self._task}/{call.id}"))
            if self.context is not None:
                CURRENT_TASK.set(self.context)
            result = await tool.run(call)
            text = result
            if isinstance(result, ToolResult):
                text, consumes, parts = result.text, result.consumes, result.parts
                evidence = result.evidence
            if not isinstance(text, str):
                raise DefinitionError(f"tool {call.name!r} answered {text!r}, not text")
            answer = ToolMessage(call.id, well_formed(text), parts=parts, evidence=evidence)
        except ToolError as exc:
            consumes = exc.consumes
            answer = ToolMessage(
                call.id, well_formed(str(exc)), failed=True, refused_by=exc.refused_by
            )
        except ModelError as exc:
            # Not the model of this task: for this task it is an error of the tool.
            raise RuntimeError(f"tool {call.name!r} failed: {exc}") from exc
        if is_long(answer):
            await self._host.before_record(answer)
        self._count_repeats(fingerprint, answer)
        self.record(answer, consumes)

    def _tool(self, call: ToolCall, fingerprint: bytes) -> Tool:
        if call.name not in self._tools:
            known = ", ".join(self._tools) or "none"
            raise ToolError(
                f"there is no tool {call.name!r}; there are: {known}",
                refused_by=RefusedBy.UNKNOWN_TOOL,
            )
        _, times = self._results.get(fingerprint, (("", ()), 0))
        if times >= self._repeats:
            raise ToolError(
                f"you have made this very call {times} times and always got the same"
                " answer: do something else, or give your final answer",
                refused_by=RefusedBy.REPEAT_LIMIT,
            )
        return self._tools[call.name]

    def _count_repeats(self, fingerprint: bytes, answer: ToolMessage) -> None:
        given = (answer.text, answer.parts)
        last, times = self._results.get(fingerprint, (("", ()), 0))
        if times < self._repeats:
            self._results[fingerprint] = (given, times + 1 if given == last else 1)

    def _is_repeatable(self, call: ToolCall) -> bool:
        tool = self._tools.get(call.name)
        if tool is None:
            return False
        # A task that a server has made of a call goes on there, and is found again.
        is_found_again = bool(tool.server) and self._host.may_have_begun(call)
        return tool.idempotent or is_found_again

    def _lacks_secret(self, call: ToolCall) -> bool:
        """Return whether a call that a crash interrupted would run without its secret.

        A call that a worker may have begun has its secret: it is asked about and not sent again. A
        call that acts on the journal alone reads its recorded arguments.
        """
        return (
            has_redacted(call.arguments)
            and self._tools[call.name].acts_outside
            and not self._host.may_have_begun(call)
        )


def checked_answer(answer: object, model: Model, history: Transcript) -> AssistantMessage:
    """Return a model's answer if it can be recorded, with call ids that are used only once."""
    given: Any = answer  # no type checker has seen the model of a user
    if not (
        isinstance(answer, AssistantMessage)
        and isinstance(given.text, str)
        and isinstance(given.logprobs, tuple)
        and (not given.calls or all([isinstance(it, ToolCall) for it in given.calls]))  # noqa: C419
        and (not answer.logprobs or all(has_type(it, TokenLogprob) for it in answer.logprobs))
        and answer.usage.is_whole
    ):
        raise DefinitionError(
            f"model {model.name!r} answered {answer!r}, which is not an AssistantMessage of"
            " text, calls, whole numbers and log probabilities of tokens"
        )
    calls = _with_own_ids(answer.calls, history) if answer.calls else answer.calls
    if calls is not answer.calls:
        answer = replace(answer, calls=calls)
    if not answer.text.isascii():
        answer = replace(answer, text=well_formed(answer.text))
    return answer


def _with_own_ids(calls: tuple[ToolCall, ...], history: Transcript) -> tuple[ToolCall, ...]:
    ids = [call.id for call in calls]
    are_new = "" not in ids and len(set(ids)) == len(ids)
    if are_new and not any(map(history.has_call, ids)):
        return calls
    return tuple(
        [
            replace(call, id=CallId(f"{call.id}~{len(history)}.{index}"))
            for index, call in enumerate(calls)
        ]
    )
