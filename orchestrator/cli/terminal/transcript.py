"""The transcript of a task as terminal lines."""

from collections.abc import Iterable, Iterator
from typing import Final, assert_never

import msgspec
from rich.cells import cell_len
from rich.text import Text

from orchestrator.agents import AssistantMessage, ToolCall
from orchestrator.cli.terminal.style import format_seconds, format_tokens
from orchestrator.delegation import events, printable
from orchestrator.delegation.tree.glyphs import shown_mode

INDENT: Final = " " * 9
LONG_JSON: Final = 60
"""From this length on, JSON is shown on several lines."""
MOST_LINES: Final = 1_000
"""The number of lines of one text that are shown; the journal has the rest."""


def transcript_lines(entries: Iterable[events.Entry]) -> list[Text]:
    """Return the entries of a task as lines, each with its time."""
    lines: list[Text] = []
    began: float | None = None
    for entry in events.in_parts(entries):
        began = entry.at if began is None else began
        margin = Text(f"{format_seconds(entry.at - began):>7}  ", "dim")
        for line in _event_lines(entry.event):
            lines.append(margin + line)
            margin = Text(INDENT)
    return lines


def _event_lines(event: events.Event) -> Iterator[Text]:  # noqa: C901, PLR0912, PLR0915 (a case a fact)
    if isinstance(event, events.TurnResumed):
        accepted = ", with changes accepted" if event.accepts_changes else ""
        yield Text(f"goes on{accepted}", "dim")
        return
    if isinstance(event, events.TurnInterrupted):
        yield from _body(f"interrupted: {event.reason}", "red")
        return
    if isinstance(event, events.JournalOpened | events.DoorFact | events.JobFact):
        return
    match event:
        case events.TaskRequested(request, mode, reason):
            yield Text(f"asked for, {shown_mode(mode, reason)}: {reason.sentence}", "dim")
            for said in request.handed or ():
                who = "the user" if said.role == "user" else "the agent before"
                yield from _body(f"{who}: {said.text}", "dim")
            yield from _body(request.goal, "bold")
            if request.context:
                yield from _body(request.context, "")
        case events.MessageReceived(_, text):
            yield Text("the user", "bold blue")
            yield from _body(text, "")
        case events.TaskStarted() | events.TurnStarted():
            yield Text("begins", "dim")
        case events.ModelAnswered(_, message, _, left_out):
            if left_out:
                note = f"has not read {left_out} characters, to fit its window"
                yield Text(note, "yellow")
            yield from _before_call(event)
            yield from _answer(message)
        case events.ModelFailed():
            yield from _failed_call(event)
        case events.ToolAnswered(_, message):
            yield Text("answer" if not message.failed else "error", "magenta")
            yield from _body(message.text, "red" if message.failed else "dim")
            for part in message.parts:
                yield from _body(f"with {part.label}", "dim")
        case events.Steered(_, _, text, by):
            yield Text(f"message from {by}", "bold blue")
            yield from _body(text, "")
        case events.SteeringSeen():
            yield Text("has read the message", "dim")
        case events.ApprovalAsked(_, id_, _, tool, subject):
            yield Text(f"! asks for approval {id_}", "bold yellow")
            yield from _body(f"{tool}: {subject}", "yellow")
        case events.ApprovalAnswered(_, _, answer, reason, by):
            why = f": {reason}" if reason else ""
            yield from _body(f"{by or 'the user'} says {answer}{why}", "yellow")
        case events.ProcessStarted(_, _, command):
            yield from _body(f"begins in the background: {command}", "cyan")
        case events.ProcessUnreachable(_, id_, host):
            yield from _body(
                f"whether {id_} still runs is not known: {host} took over, and cannot see it",
                "bold yellow",
            )
        case events.WorkspaceOpened(_, host, path):
            yield from _body(f"works on {host} in {path}", "dim")
        case events.ProcessEnded(_, _, how, output):
            yield Text(f"a command in the background {how}", "cyan")
            yield from _body(output, "dim")
        case events.NetworkRequested():
            yield from _network_request(event)
        case events.CallPlaced():
            yield from _body(placed_text(event), "cyan")
        case events.CancelRequested():
            yield Text("is asked to end", "yellow")
        case events.StartsPaused(_, paused):
            again = "starts no new tasks until it is unpaused" if paused else "is unpaused"
            yield Text(again, "yellow")
        case events.TaskSettled(_, outcome) | events.TurnEnded(_, _, outcome):
            style = "bold green" if outcome.succeeded else "bold red"
            yield Text(outcome.ending, style)
            yield from _body(outcome.error, "red")
            yield from _body(outcome.traceback, "dim")
            yield from _body(outcome.note and f"note: {outcome.note}", "yellow")
            yield from _body(outcome.output, "green")
        case events.QuietChanged() | events.ModelCalled() | events.ProcessMatched():
            pass
        case _:
            assert_never(event)


def _answer(message: AssistantMessage) -> Iterator[Text]:
    model = message.model or "the model"
    tokens = format_tokens(message.usage)
    yield Text(f"{model}, {tokens} tokens", "bold cyan")
    yield from _body(message.text, "")
    for call in message.calls:
        yield from _body(_call_text(call), "magenta")


def _before_call(event: events.ModelAnswered | events.ModelFailed) -> Iterator[Text]:
    if (waited := event.waited) is not msgspec.UNSET:
        yield Text(f"has waited {waited[1] - waited[0]:,.1f} s for the provider", "yellow")
    if (given := event.settings) is not msgspec.UNSET:
        text = ", ".join(f"{name}={value!r}" for name, value in given.items())
        yield from _body(f"asked with {text}", "dim")


def _failed_call(event: events.ModelFailed) -> Iterator[Text]:
    yield from _before_call(event)
    tokens = format_tokens(event.usage)
    if event.reason is events.ModelFailure.SUMMARY:
        yield Text(f"what it was told was summarized, {tokens} tokens", "dim")
    elif event.reason is events.ModelFailure.QUESTION:
        yield Text(f"its parent was asked, {tokens} tokens", "dim")
    elif event.reason is events.ModelFailure.CONVERSATION:
        yield Text(f"the conversation was summarized for its tasks, {tokens} tokens", "dim")
        yield from _body(event.text, "dim")
        return
    elif event.reason is events.ModelFailure.BROKEN_OFF:
        yield Text(f"the model is broken off, {tokens} tokens", "yellow")
    else:
        yield Text(f"the model failed, {tokens} tokens", "red")
        yield from _body(event.error, "red")
    if event.text:
        yield from _body(event.text, "")
        yield Text("… it had said no more", "dim")


def _network_request(event: events.NetworkRequested) -> Iterator[Text]:
    if not event.allowed:
        yield from _body(f"a command was refused {event.target}", "yellow")
        return
    size = f"{event.sent:,} bytes sent, {event.received:,} received"
    yield from _body(f"a command reached {event.target}: {size}", "dim cyan")


def placed_text(event: events.CallPlaced) -> str:
    """Return the place where a lent call or turn runs or waits."""
    what = "its turn" if event.turn else "a call"
    if event.place.startswith("mcp:"):
        return f"{what} goes on as the task {event.execution} of the server {event.worker}"
    if event.worker:
        return f"{what} runs at {event.place!r}, on worker {event.worker}"
    wants = f" with version {event.wants}" if event.wants else ""
    return f"{what} waits for a worker at {event.place!r}{wants}"


def _call_text(call: ToolCall) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    return f"{call.name}({arguments})"


def _body(text: str, style: str) -> Iterator[Text]:
    lines = printable(_readable(text)).expandtabs(4).splitlines()
    for line in lines[:MOST_LINES]:
        yield Text(line, style)
    if len(lines) > MOST_LINES:
        yield Text(f"… {len(lines) - MOST_LINES:,} more lines", "dim")


def _readable(text: str) -> str:
    """Return JSON on several lines, unless it is short; other text is unchanged."""
    if len(text) < LONG_JSON or text[0] not in "{[":
        return text
    try:
        return msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, RecursionError):
        return text


def wrapped(lines: Iterable[Text], width: int) -> list[Text]:
    """Wrap lines to a width, and indent the continuation lines."""
    result: list[Text] = []
    space = max(10, width - len(INDENT))
    for line in lines:
        if line.cell_len <= width:
            result.append(line)
            continue
        head, rest = line.divide([len(INDENT)])
        pieces = _pieces(rest, space)
        result.append(head + pieces[0])
        result += (Text(INDENT) + piece for piece in pieces[1:])
    return result


def _pieces(line: Text, width: int) -> list[Text]:
    """Cut a line into pieces, at the end of a word where possible."""
    pieces: list[Text] = []
    while line.cell_len > width:
        cut = cut_at_word(line.plain, width)
        pieces.append(line[:cut])
        line = line[cut:]
    return [*pieces, line]


def cut_at_word(line: str, width: int) -> int:
    """Return the position to cut a long line at: after a word, unless the word is very long."""
    # Cells are as wide as a character or twice that.
    cut = max(1, width)
    while cut > 1 and cell_len(line[:cut]) > width:
        cut -= 1
    space = line.rfind(" ", 1, cut + 1)
    return space + 1 if space > width // 2 else cut
