"""`orchestrator ask`: send one question to a model that is set up like an agent's."""

import math
import os
import sys

import trio
from rich.text import Text

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Model,
    ModelError,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    Retrying,
    Switched,
    TextDelta,
    Usage,
    UserMessage,
    raising_one_error,
    well_formed,
)
from orchestrator.agents.secret_references import resolve_references
from orchestrator.cli.errors import CommandError
from orchestrator.cli.exit_codes import FAILED, SUCCEEDED
from orchestrator.cli.terminal.console import Terminal
from orchestrator.delegation import printable, usd
from orchestrator.ports.execution import MODELS_CLOSE_SECONDS, ModelResolver


def ask(model: str, question: str, /, *, reasoning: bool = False) -> int:
    """Ask a model one question. The answer streams to stdout, its cost goes to stderr.

    Args:
        model: The name of the model, such as openai:gpt-5-mini; 'a | b' asks b if a fails.
        question: The question.
        reasoning: Show the reasoning of the model too, on stderr.
    """
    if not question.strip():
        raise CommandError("there is nothing to ask: the question is empty")
    return trio.run(_ask, model, question, _AnswerPrinter(shows_reasoning=reasoning))


async def _ask(name: str, question: str, printer: "_AnswerPrinter") -> int:
    models = ModelResolver({**os.environ, **resolve_references(os.environ)})
    try:
        model = models.model_of(Agent("ask", model=name))
        began = trio.current_time()
        match await _answer(model, question, printer):
            case AssistantMessage() as answer:
                printer.note(_summary(answer, trio.current_time() - began))
                return SUCCEEDED
            case ModelError() as error:
                printer.end_lines()
                why = " ".join(printable(str(error)).split())
                line = f"orchestrator: failed ({error.kind.value}): {why}"
                print(line, file=sys.stderr)
                return FAILED
    finally:
        with trio.move_on_after(MODELS_CLOSE_SECONDS, shield=True):
            await models.aclose()


async def _answer(
    model: Model, question: str, printer: "_AnswerPrinter"
) -> AssistantMessage | ModelError:
    outcome: AssistantMessage | ModelError
    send, receive = trio.open_memory_channel[ModelEvent](math.inf)
    request = ModelRequest(
        instructions="",
        transcript=(UserMessage(well_formed(question)),),
        tools=(),
        tell=send.send_nowait,
    )
    with raising_one_error():
        # The nursery owns the printer: a closed pipe must not raise in the midst of a stream, and
        # the text that came before a failure is printed too.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(printer.show, receive)
            with send:
                try:
                    outcome = await model.answer(request)
                except ModelError as exc:
                    outcome = exc
    return outcome


class _AnswerPrinter:
    """Prints an answer as it streams: its text on stdout, all else on stderr."""

    def __init__(self, *, shows_reasoning: bool) -> None:
        self._stderr = Terminal(stderr=True)
        self._shows_reasoning = shows_reasoning
        # The last characters written to stdout and to stderr.
        self._last_text = "\n"
        self._last_reasoning = "\n"

    async def show(self, events: trio.MemoryReceiveChannel[ModelEvent]) -> None:
        async for event in events:
            match event:
                case TextDelta(text):
                    self._print_text(text)
                case ReasoningDelta(text):
                    self._print_reasoning(text)
                # The text printed so far stays; the next attempt begins on a new line.
                case Retrying(kind, error, seconds):
                    wait = f"asking again in {seconds:.1f} s"
                    self.note(f"{kind.value}: {error}; {wait}")
                case Switched(kind, error, model):
                    self.note(f"{kind.value}: {error}; asking {model}")
                case _:
                    pass  # the request has no tools, and no history to compact

    def note(self, sentence: str) -> None:
        """Print a sentence about the answer, on its own line of stderr."""
        self.end_lines()
        line = " ".join(printable(sentence).split())
        self._stderr.print(Text(line, style="dim"), soft_wrap=True)

    def end_lines(self) -> None:
        """Make the next print begin on a new line."""
        self._end_reasoning()
        self._end_text()

    def _print_text(self, text: str) -> None:
        if text:
            self._end_reasoning()
            self._last_text = text[-1]
            print(printable(text), end="", flush=True)

    def _print_reasoning(self, text: str) -> None:
        if text and self._shows_reasoning:
            self._end_text()
            self._last_reasoning = text[-1]
            self._stderr.print(Text(printable(text), style="dim"), end="", soft_wrap=True)

    def _end_text(self) -> None:
        if self._last_text != "\n":
            self._last_text = "\n"
            print(flush=True)

    def _end_reasoning(self) -> None:
        if self._last_reasoning != "\n":
            self._last_reasoning = "\n"
            self._stderr.print()


def _summary(answer: AssistantMessage, seconds: float) -> str:
    used = answer.usage
    return (
        f"{answer.model}: {used.input_tokens:,} input tokens ({used.cached_tokens:,} cached),"
        f" {used.output_tokens:,} output tokens ({used.reasoning_tokens:,} reasoning),"
        f" {_money(used)}, {seconds:.1f} s"
    )


def _money(usage: Usage) -> str:
    # One answer costs less than a cent: print micro-dollars.
    return usd(usage) if usage.unpriced else f"${usage.micro_usd / 1_000_000:.6f}"
