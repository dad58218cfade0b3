"""Five fake models for tests: gated, spy, failing, streaming and counting.

All but `StreamingModel` wrap a model or a script, so they nest:
`CountingModel(GatedModel("done"))`. None of them sleeps unless a test asks for it.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import attrs
import trio

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
"""What answers: a model, one step for every call, or a list of steps, one a call."""

Fault: TypeAlias = int | Literal["timeout", "malformed", "garbage"] | Exception | None
"""How a call fails: an HTTP status, a named fault, or an exception; None lets the call through."""

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
    """The number of calls so far, and a wait for the next ones."""

    def __init__(self) -> None:
        self.calls = 0
        """How often it was called."""
        self._called = trio.Event()

    async def wait_called(self, times: int = 1) -> None:
        """Wait until it was called that often."""
        await trio.lowlevel.checkpoint()
        while self.calls < times:
            await self._called.wait()

    def _note_call(self) -> int:
        self.calls += 1
        self._called.set()
        self._called = trio.Event()
        return self.calls


class _Wrapper(ModelWrapper, _Calls):
    """Counts the calls of the model that it wraps."""

    def __init__(self, script: Script = "done", *, name: str | None = None) -> None:
        ModelWrapper.__init__(self, model_of(script))
        _Calls.__init__(self)
        if name is not None:
            self.name = name


class GatedModel(_Wrapper):
    """Answers when it is released. `wait_called` waits until a call stands at the gate."""

    def __init__(self, script: Script = "done", *, name: str | None = None) -> None:
        super().__init__(script, name=name)
        self._released: float = 0
        self._opened = trio.Event()

    def release(self, calls: float = float("inf")) -> None:
        """Let the next calls through, in the order in which they came: all, or that many."""
        self._released += calls
        self._opened.set()
        self._opened = trio.Event()

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        number = self._note_call()
        while number > self._released:
            await self._opened.wait()
        return await self._model.answer(request)


class SpyModel(_Wrapper):
    """Keeps the requests that it gets, each with the transcript as it was then."""

    def __init__(self, script: Script = "done", *, name: str | None = None) -> None:
        super().__init__(script, name=name)
        self.requests: list[ModelRequest] = []

    @property
    def texts(self) -> list[list[str]]:
        """The texts of each request's transcript."""
        return [[it.text for it in request.transcript] for request in self.requests]

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        # A turn goes on appending to its transcript.
        self.requests.append(attrs.evolve(request, transcript=(*request.transcript,)))
        self._note_call()
        return await self._model.answer(request)


class CountingModel(_Wrapper):
    """Counts its calls, and how many of them are under way at once."""

    def __init__(self, script: Script = "done", *, name: str | None = None) -> None:
        super().__init__(script, name=name)
        self.running = 0
        self.most_at_once = 0
        self.called_at: list[float] = []
        """When each call came, in seconds of trio's clock."""
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
    """Fails its first calls, one fault each; later calls go through.

    `429`, `500` and other HTTP statuses fail at once, as the provider's answer would.
    `"timeout"` fails after a minute, `"malformed"` is an answer that breaks the protocol, and
    `"garbage"` an answer in which no text makes sense. An exception is raised as it is.
    """

    def __init__(
        self,
        faults: Iterable[Fault],
        script: Script = "done",
        *,
        retry_after: float | None = None,
        name: str | None = None,
    ) -> None:
        """Make a model fail.

        Args:
            faults: what the calls meet, in the order in which they come.
            script: what answers where there is no fault.
            retry_after: what a 429 asks for, in seconds.
            name: how the model is called; else as what it wraps.
        """
        super().__init__(script, name=name)
        self._faults = list(faults)
        self._retry_after = retry_after
        for fault in self._faults:
            if isinstance(fault, str) and fault not in {*_NAMED_FAULTS, "garbage"}:
                raise DefinitionError(
                    f"{fault!r} is no fault: give an HTTP status, 'timeout', 'malformed',"
                    " 'garbage', an exception or None"
                )

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        # Taken before the wait, so calls meet faults in the order in which they come.
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

    * `str`: emits a `TextDelta`, and is part of the answer's text
    * a `ModelEvent`: is emitted as it is, and is no part of the answer
    * `ToolCall`: is one of the answer's calls
    * a number: waits that many seconds
    * `trio.Event`: waits for the event
    * an async function: is called without arguments, and awaited
    * `Exception`: is raised
    * `AssistantMessage`: is the answer, instead of what the pieces come to
    """

    def __init__(
        self,
        answers: Iterable[Iterable[Piece]],
        *,
        name: str = "streaming",
        usage: Usage | None = None,
        price: Price | None = FREE,
    ) -> None:
        """Stream these answers, one a call.

        Args:
            answers: the pieces of each answer.
            name: how the model is called.
            usage: what each answer uses; one call, if it is not given.
            price: what that costs; None if it is not known.
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
                    # Readers get each text by itself.
                    await trio.lowlevel.checkpoint()
                case ToolCall():
                    # The position in the transcript makes an id unique there.
                    id_ = CallId(f"call_{len(request.transcript)}_{len(calls)}")
                    calls.append(attrs.evolve(piece, id=piece.id or id_))
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
