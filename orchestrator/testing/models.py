"""Five fake models for tests: gated, spy, failing, streaming and counting.

All except `StreamingModel` wrap a model or a script, so they nest:
`CountingModel(GatedModel("done"))`. They sleep only if a test asks for it.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import trio
from msgspec.structs import replace

from orchestrator.agents import (
    AssistantMessage,
    CallDelta,
    CallId,
    Compacted,
    DefinitionError,
    Failure,
    Model,
    ModelError,
    ModelEvent,
    ModelRequest,
    Price,
    Queued,
    ReasoningDelta,
    Retrying,
    ScriptedModel,
    ScriptExhaustedError,
    Switched,
    TextDelta,
    ToolCall,
    Transcript,
    Usage,
)
from orchestrator.agents.models.http.provider_errors import status_error
from orchestrator.agents.models.wrappers.wrapper import ModelWrapper

StepResult: TypeAlias = str | ToolCall | Sequence[str | ToolCall] | Exception
ScriptStep: TypeAlias = StepResult | Callable[[Transcript], StepResult]
Script: TypeAlias = Model | str | Callable[[Transcript], StepResult] | Iterable[ScriptStep]
"""The source of answers: a model, one step for every call, or a list of steps, one for each call.
"""

Fault: TypeAlias = int | Literal["timeout", "malformed", "garbage"] | Exception | None
"""A failure of a call: an HTTP status, a named fault or an exception; None lets the call through.
"""

Piece: TypeAlias = (
    str
    | ModelEvent
    | ToolCall
    | float
    | trio.Event
    | Callable[[], Awaitable[None]]
    | Exception
    | AssistantMessage
)
"""A part of a streamed answer; see `StreamingModel`."""

FREE: Final = Price()
TIMEOUT_SECONDS: Final = 60.0
GARBAGE: Final = '}{ "this": is no answer'


def model_of(script: Script) -> Model:
    """Return the model itself, or a scripted one."""
    if isinstance(script, str):
        return ScriptedModel.always(script)
    if isinstance(script, Iterable):
        return ScriptedModel(script)  # pyright: ignore[reportUnknownArgumentType] (a model that iterates)
    if callable(script):
        return ScriptedModel.always(script)
    return script


class _Calls:
    """Counts calls, and waits for the next ones."""

    def __init__(self) -> None:
        self.calls = 0
        """The number of calls."""
        self._called = trio.Event()

    async def wait_called(self, times: int = 1) -> None:
        """Wait for this number of calls."""
        await trio.lowlevel.checkpoint()
        while self.calls < times:
            await self._called.wait()

    def _note_call(self) -> int:
        self.calls += 1
        self._called.set()
        self._called = trio.Event()
        return self.calls


class _Wrapper(ModelWrapper, _Calls):
    """Counts the calls of the wrapped model."""

    def __init__(self, script: Script = "done", *, name: str | None = None) -> None:
        ModelWrapper.__init__(self, model_of(script))
        _Calls.__init__(self)
        if name is not None:
            self.name = name


class GatedModel(_Wrapper):
    """Answers when a test releases it. `wait_called` waits until a call has reached the gate."""

    def __init__(self, script: Script = "done", *, name: str | None = None) -> None:
        super().__init__(script, name=name)
        self._released: float = 0
        self._opened = trio.Event()

    def release(self, calls: float = float("inf")) -> None:
        """Let the next calls through, in order: all of them, or this many."""
        self._released += calls
        self._opened.set()
        self._opened = trio.Event()

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        number = self._note_call()
        while number > self._released:
            await self._opened.wait()
        return await self._model.answer(request)


class SpyModel(_Wrapper):
    """Records its requests, each with a copy of the transcript at that time."""

    def __init__(self, script: Script = "done", *, name: str | None = None) -> None:
        super().__init__(script, name=name)
        self.requests: list[ModelRequest] = []

    @property
    def texts(self) -> list[list[str]]:
        """The texts of each request's transcript."""
        return [[it.text for it in request.transcript] for request in self.requests]

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        # A turn goes on appending to its transcript.
        self.requests.append(replace(request, transcript=(*request.transcript,)))
        self._note_call()
        return await self._model.answer(request)


class CountingModel(_Wrapper):
    """Counts its calls, and the calls that are open at the same time."""

    def __init__(self, script: Script = "done", *, name: str | None = None) -> None:
        super().__init__(script, name=name)
        self.running = 0
        self.most_at_once = 0
        self.called_at: list[float] = []
        """The time of each call, in seconds of trio's clock."""
        self.goals: list[str] = []
        """The first message of each call: the goal of its task."""

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.called_at.append(trio.current_time())
        self.goals.append(request.transcript[0].text if request.transcript else "")
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        self._note_call()
        try:
            return await self._model.answer(request)
        finally:
            self.running -= 1


class FailingModel(_Wrapper):
    """Fails its first calls, with one fault each; later calls go through.

    An HTTP status such as `429` or `500` fails at once, like the provider's answer. `"timeout"`
    fails after a minute, `"malformed"` is an answer that breaks the protocol, and `"garbage"` is an
    answer with meaningless text. An exception is raised unchanged.
    """

    def __init__(
        self,
        faults: Iterable[Fault],
        script: Script = "done",
        *,
        retry_after: float | None = None,
        name: str | None = None,
    ) -> None:
        """Create a model that fails.

        Args:
            faults: the faults, one for each call, in order.
            script: the source of answers for calls without a fault.
            retry_after: the seconds in the Retry-After header of a 429.
            name: the name of the model; by default the name of the wrapped model.
        """
        super().__init__(script, name=name)
        self._faults = list(faults)
        self._retry_after = retry_after
        for fault in self._faults:
            if isinstance(fault, str) and fault not in {*_NAMED_FAULTS, "garbage"}:
                raise DefinitionError(
                    f"{fault!r} is not a fault: give an HTTP status, 'timeout', 'malformed',"
                    " 'garbage', an exception or None"
                )

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        # Taken before the wait, so that calls meet the faults in order.
        fault = self._faults.pop(0) if self._faults else None
        self._note_call()
        if fault is None:
            return await self._model.answer(request)
        await trio.sleep(TIMEOUT_SECONDS if fault == "timeout" else 0)
        if fault == "garbage":
            return AssistantMessage(GARBAGE, usage=Usage(calls=1), model=self.name)
        raise self._error(fault)

    def _error(self, fault: int | str | Exception) -> Exception:
        if isinstance(fault, Exception):
            return fault
        if isinstance(fault, str):
            kind, what = _NAMED_FAULTS[fault]
            return ModelError(f"{self.name} {what}", kind=kind)
        headers: Mapping[str, str] = {}
        if fault == 429 and self._retry_after is not None:
            headers = {"retry-after": str(self._retry_after)}
        error = status_error(fault, headers, b"a fault to order")
        return ModelError(f"{self.name} {error}", kind=error.kind, retry_after=error.retry_after)


_NAMED_FAULTS: Final = {
    "timeout": (Failure.TIMEOUT, f"did not answer within {TIMEOUT_SECONDS:.0f} s"),
    "malformed": (Failure.MALFORMED, "answered with what is no answer"),
}


class StreamingModel(_Calls):
    """Streams its answers piece by piece.

    * `str`: emits a `TextDelta`, and adds to the answer's text
    * a `ModelEvent`: is emitted unchanged, and adds no text to the answer
    * `ToolCall`: is one of the answer's calls
    * a number: waits this many seconds
    * `trio.Event`: waits for the event
    * an async function: is called without arguments, and awaited
    * `Exception`: is raised
    * `AssistantMessage`: is the answer, in place of the pieces
    """

    def __init__(
        self,
        answers: Iterable[Iterable[Piece]],
        *,
        name: str = "streaming",
        usage: Usage | None = None,
        price: Price | None = FREE,
    ) -> None:
        """Stream these answers, one for each call.

        Args:
            answers: the pieces of each answer.
            name: the name of the model.
            usage: the usage of each answer; by default one call.
            price: the price of the model; None if it is unknown.
        """
        super().__init__()
        self.name = name
        self.price = price
        self._answers: list[Sequence[Piece]] = [tuple(pieces) for pieces in answers]
        self._usage = Usage(calls=1) if usage is None else usage
        self._repeats = False

    @classmethod
    def always(
        cls,
        *pieces: Piece,
        name: str = "streaming",
        usage: Usage | None = None,
        price: Price | None = FREE,
    ) -> "StreamingModel":
        """Return a model that streams the same answer for every call."""
        model = cls([pieces], name=name, usage=usage, price=price)
        model._repeats = True
        return model

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        number = self._note_call()
        if number > len(self._answers) and not self._repeats:
            raise ScriptExhaustedError(len(self._answers))
        pieces = self._answers[0 if self._repeats else number - 1]
        text: list[str] = []
        calls: list[ToolCall] = []
        await trio.lowlevel.checkpoint()
        for piece in pieces:
            match piece:
                case str():
                    text.append(piece)
                    request.tell(TextDelta(piece))
                    # Let readers receive each text separately.
                    await trio.lowlevel.checkpoint()
                case ToolCall():
                    # The position in the transcript makes the id unique.
                    id_ = CallId(f"call_{len(request.transcript)}_{len(calls)}")
                    calls.append(replace(piece, id=piece.id or id_))
                case int() | float():
                    await trio.sleep(piece)
                case trio.Event():
                    await piece.wait()
                case Exception():
                    raise piece
                case AssistantMessage():
                    return piece
                case (
                    TextDelta()
                    | ReasoningDelta()
                    | CallDelta()
                    | Retrying()
                    | Switched()
                    | Compacted()
                    | Queued()
                ):
                    request.tell(piece)
                case _:
                    await piece()
        return AssistantMessage("".join(text), tuple(calls), self._usage, self.name)
