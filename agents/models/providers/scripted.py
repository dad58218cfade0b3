"""A model that answers from a script: for tests, demonstrations and simulation."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

import trio
from msgspec.structs import replace

from orchestrator.agents.errors import DefinitionError, Failure, ModelError, ScriptExhaustedError
from orchestrator.agents.messages import AssistantMessage, CallId, Message, ToolCall, Usage
from orchestrator.agents.models.http.answer_errors import CUT_OFF
from orchestrator.agents.models.model import ModelRequest, Price, TextDelta
from orchestrator.agents.models.settings import ModelSettings
from orchestrator.agents.transcript import Transcript
from orchestrator.agents.type_checks import has_type

StepResult: TypeAlias = str | ToolCall | Sequence[str | ToolCall] | Exception
ScriptStep: TypeAlias = StepResult | Callable[[Transcript], StepResult]

# English text in the tokenizers of today's models.
CHARACTERS_PER_TOKEN: Final = 4
FREE: Final = Price()


class ScriptedModel:
    """Answers with the steps of a list, one for each request.

    A step is a final answer (`str`), a `ToolCall`, a list of texts and calls (what models say as
    they call tools, in parallel), an exception (the provider failed), or a function of the
    transcript that returns one of these.
    """

    name = "scripted"

    def __init__(
        self, steps: Iterable[ScriptStep], seconds: float = 0, *, price: Price | None = None
    ) -> None:
        self._steps = list(steps)
        self._seconds = seconds
        self.price = FREE if price is None else price
        self._repeats = False
        self._taken = 0
        self._conversations = 0
        """How many transcripts it was asked to begin."""

    @classmethod
    def always(
        cls, step: ScriptStep, seconds: float = 0, *, price: Price | None = None
    ) -> "ScriptedModel":
        """Return a model that answers every request with the same step."""
        model = cls([step], seconds, price=price)
        model._repeats = True
        return model

    def __repr__(self) -> str:
        return f"<ScriptedModel {self._taken} of {len(self._steps)} steps taken>"

    def count_tokens(self, request: ModelRequest) -> int:
        """Return how many tokens it will read, exactly."""
        read = request.transcript.total(_message_tokens)
        return _tokens(request.instructions) + read

    def settings_problem(self, settings: ModelSettings) -> str | None:
        asks = settings.top_logprobs is not None
        return "a script has no log probabilities" if asks else None

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        # The step is taken before the wait, so requests get steps in the order they came.
        step = self._steps[0] if self._repeats else self._next_step(request.transcript)
        await trio.sleep(self._seconds)
        result = step(request.transcript) if callable(step) else step
        if isinstance(result, Exception):
            raise result
        text, calls = _text_and_calls(result)
        if text:
            request.tell(TextDelta(_within(text, request.max_output)))
        return self._message(request, text, calls)

    def _next_step(self, transcript: Transcript) -> ScriptStep:
        if not any(isinstance(it, AssistantMessage) for it in transcript):
            self._conversations += 1
        if self._taken == len(self._steps):
            raise ScriptExhaustedError(len(self._steps), self._conversations)
        self._taken += 1
        return self._steps[self._taken - 1]

    def _message(
        self, request: ModelRequest, text: str, calls: tuple[ToolCall, ...]
    ) -> AssistantMessage:
        written = _tokens(text)
        if calls:
            written += sum(map(_call_tokens, calls))
            calls = _with_ids(calls, len(request.transcript))
        limit = request.max_output
        if limit is not None and written > limit:
            raise ModelError(
                f"{self.name} {CUT_OFF}",
                kind=Failure.CUT_OFF,
                partial=_within(text, limit),
                usage=self._usage(request, limit),
            )
        return AssistantMessage(text, calls, self._usage(request, written), self.name)

    def _usage(self, request: ModelRequest, written: int) -> Usage:
        read = self.count_tokens(request)
        cost = 0
        if self.price is not FREE:
            cost = self.price.cost_of(input_tokens=read, output_tokens=written)
        return Usage(1, read, written, cost)


def _text_and_calls(result: StepResult) -> tuple[str, tuple[ToolCall, ...]]:
    # Most steps are one text or one call: thousands of simulated agents answer at once.
    if isinstance(result, str):
        return result, ()
    if isinstance(result, ToolCall):
        return "", (result,)
    if not isinstance(result, (list, tuple)) or not all(
        has_type(part, str, ToolCall) for part in result
    ):
        raise DefinitionError(
            f"a step of a script came to {result!r}; it must be a text, a ToolCall, a list"
            " of them or an exception"
        )
    text = "".join(part for part in result if isinstance(part, str))
    return text, tuple(part for part in result if isinstance(part, ToolCall))


def _with_ids(calls: tuple[ToolCall, ...], position: int) -> tuple[ToolCall, ...]:
    # The position in the transcript makes an id unique there, also after a restart.
    return tuple(
        call if call.id else replace(call, id=CallId(f"call_{position}_{index}"))
        for index, call in enumerate(calls)
    )


def _within(text: str, tokens: int | None) -> str:
    """Return the start of a text, up to a number of tokens."""
    return text if tokens is None else text[: tokens * CHARACTERS_PER_TOKEN]


def _tokens(text: str) -> int:
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def _call_tokens(call: ToolCall) -> int:
    return _tokens(call.name) + _tokens(str(call.arguments))


def _message_tokens(message: Message) -> int:
    tokens = _tokens(message.text)
    if isinstance(message, AssistantMessage) and message.calls:
        tokens += sum(map(_call_tokens, message.calls))
    return tokens
