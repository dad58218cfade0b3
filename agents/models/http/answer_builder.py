"""Builds an answer from the pieces of a stream: one subclass for each protocol.

Each piece is emitted and stored as it arrives, so an answer that breaks off leaves its text.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NoReturn

import msgspec

from orchestrator.agents.errors import Failure
from orchestrator.agents.logprobs import TokenLogprob
from orchestrator.agents.messages import AssistantMessage, CallId, ReasoningBlock, ToolCall, Usage
from orchestrator.agents.models.http.allowance import read_allowances
from orchestrator.agents.models.http.answer_errors import CUT_OFF, UnusableAnswerError
from orchestrator.agents.models.http.answer_limits import require_few_values
from orchestrator.agents.models.http.strict_schema import ProviderSchema
from orchestrator.agents.models.http.wire_logprobs import WireLogprob, read_logprobs
from orchestrator.agents.models.model import CallDelta, ModelRequest, ReasoningDelta, TextDelta
from orchestrator.agents.tools.text_input import INPUT

SHOWN_OF_ARGUMENTS: Final = 10_000


class _CallDraft:
    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.is_text = False
        """The arguments are one text, of a custom tool."""


class AnswerBuilder(ABC):
    """One answer, in pieces or at once."""

    protocol: ClassVar[str]
    """The name of an answer in errors."""

    def __init__(
        self, request: ModelRequest, model: str, output_schema: ProviderSchema | None = None
    ) -> None:
        self.usage = Usage(calls=1, unpriced=1)
        self.is_complete = False
        """The provider has marked the end of the answer."""
        self.characters = 0
        """How long text, reasoning and calls are together."""
        self._request = request
        self._model = model
        self._output_schema = output_schema
        self._text: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._refusal: list[str] = []
        self._calls: list[_CallDraft] = []
        self._reasoning: list[tuple[int, dict[str, Any]]] = []
        self._numbers: dict[int, int] = {}
        """The number of each call, by its index in the protocol."""

    def note_headers(self, headers: Mapping[str, str]) -> None:
        """Tell the queue of the call how much the provider still allows."""
        call = self._request.call
        if call is None or call.note_allowance is None:
            return
        for allowance in read_allowances(headers):
            call.note_allowance(allowance)

    @abstractmethod
    def feed_event(self, data: bytes) -> bool:
        """Read one event of a stream, and return whether it was the last."""

    @abstractmethod
    def feed_body(self, body: bytes) -> None:
        """Read an answer that is not streamed."""

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def calls(self) -> int:
        """How many calls the answer has so far."""
        return len(self._calls)

    @property
    def is_empty(self) -> bool:
        return not self._text and not self._calls and not self._refusal

    def add_text(self, text: str | None) -> None:
        if text:
            self.characters += len(text)
            self._text.append(text)
            self._request.tell(TextDelta(text))

    def add_logprobs(self, tokens: Sequence[WireLogprob] | None) -> None:
        for it in read_logprobs(tokens):
            self.characters += len(it.token)
            self.characters += sum(len(other.token) for other in it.alternatives)
            self._logprobs.append(it)

    def add_reasoning(self, text: str | None) -> None:
        if text:
            self.characters += len(text)
            self._request.tell(ReasoningDelta(text))

    def add_reasoning_block(self, data: dict[str, Any], position: int | None = None) -> None:
        """Add data that the provider wants back, at a position in the message, or its end."""
        if position is None:
            position = 1 + len(self._calls) if self._text or self._calls else 0
        self._reasoning.append((position, data))

    def add_refusal(self, text: str | None) -> None:
        if text:
            self.characters += len(text)
            self._refusal.append(text)

    def add_call(
        self,
        index: int,
        *,
        call_id: str = "",
        name: str = "",
        arguments: str = "",
        is_text: bool = False,
    ) -> None:
        """Add a piece of the call with this index; `is_text` for the text of a custom tool."""
        number = self._numbers.get(index)
        # Some servers give every call index 0, and an id of its own.
        if number is None or (call_id and self._calls[number].id not in {"", call_id}):
            number = self._numbers[index] = len(self._calls)
            self._calls.append(_CallDraft())
        call = self._calls[number]
        call.id = call.id or call_id
        call.is_text = call.is_text or is_text
        # Some servers repeat the name with every piece.
        new_name = name if not call.name else ""
        call.name = call.name or name
        if arguments:
            self.characters += len(arguments)
            call.arguments.append(arguments)
        if new_name or arguments:
            self._request.tell(CallDelta(number, new_name, arguments))

    def has_arguments(self, index: int) -> bool:
        """Return whether any arguments of this call have arrived."""
        number = self._numbers.get(index)
        return number is not None and bool(self._calls[number].arguments)

    def fail_cut_off(self) -> NoReturn:
        raise UnusableAnswerError(Failure.CUT_OFF, CUT_OFF)

    def fail_refused(self, reason: str) -> NoReturn:
        raise UnusableAnswerError(Failure.REFUSED, f"refused to answer: {reason}")

    def fail_filtered(self) -> NoReturn:
        raise UnusableAnswerError(Failure.FILTERED, "refused to answer: its filter found something")

    def build(self) -> AssistantMessage:
        if self._refusal:
            self.fail_refused("".join(self._refusal))
        text = self.text
        if self._request.output is not None:
            # It will be parsed.
            require_few_values(text.encode(errors="replace"))
        if self._output_schema is not None:
            text = self._output_schema.unwrap(text)
        return AssistantMessage(
            text,
            self._finished_calls(),
            self.usage,
            self._model,
            reasoning=self._finished_reasoning(),
            logprobs=self._finished_logprobs(text),
        )

    def _finished_reasoning(self) -> tuple[ReasoningBlock, ...]:
        # A new question follows a final answer, and no provider needs the reasoning for it.
        if not self._calls:
            return ()
        return tuple(
            ReasoningBlock(self._model, data, position) for position, data in self._reasoning
        )

    def _finished_logprobs(self, text: str) -> tuple[TokenLogprob, ...]:
        # A server may send them unasked, and they do not fit an answer that was unwrapped.
        is_asked = self._request.settings.top_logprobs is not None
        return tuple(self._logprobs) if is_asked and text == self.text else ()

    def _finished_calls(self) -> tuple[ToolCall, ...]:
        if not self._calls:
            return ()
        transcript = self._request.transcript
        taken = set[CallId]()
        calls: list[ToolCall] = []
        for number, draft in enumerate(self._calls):
            call_id = CallId(draft.id)
            # Not every server gives ids, or fresh ones. The position makes one unique.
            position = len(transcript)
            while not call_id or call_id in taken or transcript.has_call(call_id):
                call_id = CallId(f"call_{position}_{number}")
                position += 1
            taken.add(call_id)
            calls.append(ToolCall(draft.name, _arguments(draft), id=call_id))
        return tuple(calls)


def _arguments(call: _CallDraft) -> dict[str, Any]:
    text = "".join(call.arguments)
    if call.is_text:
        return {INPUT: text}
    text = text.strip()
    require_few_values(text.encode(errors="replace"))
    try:
        # Some servers write nothing, or null, for a call without arguments.
        arguments = msgspec.json.decode(text or "{}", type=dict[str, Any] | None)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise UnusableAnswerError(
            Failure.MALFORMED,
            f"gave a call of {call.name!r} whose arguments are not a JSON object ({exc}):"
            f" {text[:SHOWN_OF_ARGUMENTS]}",
        ) from exc
    return arguments or {}
