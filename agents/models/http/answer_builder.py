"""An answer as it grows: each protocol reads its own pieces into one.

What was heard is told at once and kept, so an answer that breaks off leaves what it had said.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, NoReturn

import msgspec

from agents.errors import Failure
from agents.messages import AssistantMessage, CallId, ToolCall, Usage
from agents.models.http.strict_schema import ProviderSchema
from agents.models.model import CallDelta, ModelRequest, ReasoningDelta, TextDelta

CUT_OFF: Final = "was cut off at its limit of output tokens"


class UnusableAnswerError(Exception):
    """What a provider said is of no use. It becomes a `ModelError` where we know who said it."""

    def __init__(
        self, kind: Failure, what: str, retry_after: float | None = None
    ) -> None:
        super().__init__(what)
        self.kind = kind
        self.retry_after = retry_after


class _Call:
    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []


class AnswerBuilder(ABC):
    """One answer, in pieces or at once."""

    protocol: ClassVar[str]
    """What an answer is called in an error."""

    def __init__(
        self,
        request: ModelRequest,
        model: str,
        output_schema: ProviderSchema | None = None,
    ) -> None:
        self.usage = Usage(calls=1, unpriced=1)
        self.is_complete = False
        """The provider has said that there is no more to come."""
        self._request = request
        self._model = model
        self._shape = output_schema
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[_Call] = []
        self._places: dict[int, int] = {}

    @abstractmethod
    def feed_event(self, data: bytes) -> bool:
        """Take in one event of a stream, and return whether it was the last."""

    @abstractmethod
    def feed_body(self, body: bytes) -> None:
        """Take in an answer that is not streamed."""

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def is_empty(self) -> bool:
        return not self._text and not self._calls and not self._refusal

    def add_text(self, text: str | None) -> None:
        if text:
            self._text.append(text)
            self._request.tell(TextDelta(text))

    def add_reasoning(self, text: str | None) -> None:
        if text:
            self._request.tell(ReasoningDelta(text))

    def add_refusal(self, text: str | None) -> None:
        if text:
            self._refusal.append(text)

    def add_call(
        self, place: int, *, call_id: str = "", name: str = "", arguments: str = ""
    ) -> None:
        """Take in a piece of the call at this place of the answer."""
        number = self._places.get(place)
        # Some servers give every call the first place, and an id of its own.
        if number is None or (call_id and self._calls[number].id not in {"", call_id}):
            number = self._places[place] = len(self._calls)
            self._calls.append(_Call())
        call = self._calls[number]
        call.id = call.id or call_id
        # Some servers repeat the name with every piece.
        news = name if not call.name else ""
        call.name = call.name or name
        if arguments:
            call.arguments.append(arguments)
        if news or arguments:
            self._request.tell(CallDelta(number, news, arguments))

    def has_arguments(self, place: int) -> bool:
        """Return whether any of this call's arguments were heard."""
        number = self._places.get(place)
        return number is not None and bool(self._calls[number].arguments)

    def fail_cut_off(self) -> NoReturn:
        raise UnusableAnswerError(Failure.CUT_OFF, CUT_OFF)

    def fail_refused(self, why: str) -> NoReturn:
        raise UnusableAnswerError(Failure.REFUSED, f"refused to answer: {why}")

    def build(self) -> AssistantMessage:
        if self._refusal:
            self.fail_refused("".join(self._refusal))
        text = self.text if self._shape is None else self._shape.unwrap(self.text)
        return AssistantMessage(text, self._finished_calls(), self.usage, self._model)

    def _finished_calls(self) -> tuple[ToolCall, ...]:
        if not self._calls:
            return ()
        transcript = self._request.transcript
        taken = {
            call.id
            for message in transcript
            if isinstance(message, AssistantMessage)
            for call in message.calls
        }
        calls: list[ToolCall] = []
        for number, draft in enumerate(self._calls):
            call_id = CallId(draft.id)
            # Not every server gives ids, or new ones. The position makes one unique.
            position = len(transcript)
            while not call_id or call_id in taken:
                call_id = CallId(f"call_{position}_{number}")
                position += 1
            taken.add(call_id)
            calls.append(ToolCall(draft.name, _arguments(draft), id=call_id))
        return tuple(calls)


def _arguments(call: _Call) -> dict[str, Any]:
    written = "".join(call.arguments).strip()
    try:
        # Some servers write nothing, or null, where there are no arguments.
        arguments = msgspec.json.decode(written or "{}", type=dict[str, Any] | None)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise UnusableAnswerError(
            Failure.MALFORMED,
            f"gave a call of {call.name!r} whose arguments are no JSON object ({exc}):"
            f" {written}",
        ) from exc
    return arguments or {}
