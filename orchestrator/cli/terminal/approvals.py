"""Approval questions in the terminal: their whole subject, and the answers of the user."""

import os
from collections.abc import Collection
from contextlib import suppress
from typing import Final, NoReturn

import msgspec
import trio
from rich.text import Text

from orchestrator.agents import raising_one_error
from orchestrator.cli.terminal.console import Terminal
from orchestrator.cli.terminal.stdin_lines import STDIN, StdinLines
from orchestrator.cli.terminal.transcript import INDENT, wrapped
from orchestrator.delegation import printable
from orchestrator.delegation.events.approvals import ApprovalId, ApprovalQuestion, ApprovalVerdict
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.sessions import Orchestrator

STDERR: Final = 2
ANSWER_WORDS: Final = {
    "y": ApprovalVerdict.ONCE,
    "yes": ApprovalVerdict.ONCE,
    "t": ApprovalVerdict.TASK,
    "task": ApprovalVerdict.TASK,
    "s": ApprovalVerdict.SESSION,
    "session": ApprovalVerdict.SESSION,
    "n": ApprovalVerdict.DENY,
    "no": ApprovalVerdict.DENY,
}
UNATTENDED_DENIAL: Final = (ApprovalVerdict.DENY, "no user is there to answer")
LINE_END: Final = " ⏎ "
TOO_LATE: Final = "That is over: it was answered, its time has passed, or its task has ended."


def is_attended() -> bool:
    """Return whether a user is at the terminal."""
    return os.isatty(STDIN) and os.isatty(STDERR)


def show_question(question: ApprovalQuestion, console: Terminal, *, slash: str = "") -> None:
    """Print a question, and how to answer it."""
    why = f": {printable(question.why)}" if question.why else ""
    console.print(Text(f"{question.path} asks for approval{why}", style="bold yellow"))
    line = Text(f"  {question.tool}: ", style="yellow")
    # The subject stays in its own column, so that it cannot look like our text.
    subject = printable(question.subject).replace("\n", "\n    ")
    line.append(subject, style="not bold")
    console.print(line, soft_wrap=True)
    if more := _other_arguments(question):
        indented = more.replace("\n", "\n    ")
        console.print(Text(f"  {indented}", style="not bold dim"), soft_wrap=True)
    hint = (
        f"  {slash}y once · {slash}t the same in this task · {slash}s the same in this"
        f" session · {slash}n no, and why"
    )
    console.print(Text(hint, style="dim"), soft_wrap=True)


def one_line_subject(subject: str) -> str:
    """Return a subject on one line, with a mark for each line end."""
    lines = (" ".join(line.split()) for line in printable(subject).splitlines())
    return LINE_END.join(lines)


def question_text(question: ApprovalQuestion) -> str:
    """Return a question with its whole subject and all other arguments, line by line."""
    lines = printable(question.subject).expandtabs(4).splitlines()
    subject = f"\n{INDENT}".join(lines)
    more = _other_arguments(question).expandtabs(4).splitlines()
    if question.why:
        more.append(f"({printable(question.why)})")
    return "\n".join(
        [f"{question.path}  {question.tool}: {subject}", *(f"{INDENT}{line}" for line in more)]
    )


def question_lines(question: str, *, width: int, most: int, hint: str = "") -> list[Text]:
    """Wrap a question to `most` lines, and count the lines left out of its middle."""
    lines = wrapped((Text(line) for line in question.splitlines()), width)
    if len(lines) > most:
        left = len(lines) - most + 1
        more = Text(f"… {left} more lines{hint}", style="bold red")
        # The end of a command may matter most.
        end = 1 if most > 2 else 0
        lines = [*lines[: most - 1 - end], more, *lines[len(lines) - end :]]
    for line in lines:
        line.stylize_before("bold yellow")
    return lines


def _other_arguments(question: ApprovalQuestion) -> str:
    """Return the arguments of a call besides its subject, one per line."""
    if question.details == question.subject:
        return ""
    try:
        arguments = msgspec.json.decode(question.details, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return printable(question.details)  # it was cut, or nested to exhaust the stack
    # The subject of a change to a file is its path, and a digest of the content.
    subjects = (question.subject, question.subject.rpartition(" (content")[0])
    return "\n".join(
        f"{name}: {printable(_argument_text(value))}"
        for name, value in arguments.items()
        if value not in subjects
    )


def _argument_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def parse_answer(line: str) -> tuple[ApprovalVerdict, str] | None:
    """Return the verdict and the reason in a line; None if it is not an answer."""
    word, _, reason = line.strip().removeprefix("/").partition(" ")
    answer = ANSWER_WORDS.get(word.lower())
    return None if answer is None else (answer, reason.strip())


async def wait_question_closed(orchestrator: Orchestrator, question: ApprovalQuestion) -> None:
    """Wait until a question is answered, expired or withdrawn."""
    seen = 0
    await trio.lowlevel.checkpoint()
    with trio.move_on_after(max(0, question.deadline - orchestrator.now())):
        await trio.lowlevel.checkpoint()
        while any(it.id == question.id for it in orchestrator.approvals):
            seen = await orchestrator.wait_changed(after=seen)


def pending_approvals(orchestrator: Orchestrator) -> set[ApprovalId]:
    """Return the questions that are open now: questions of earlier runs are not asked here."""
    return {question.id for question in orchestrator.approvals}


async def answer_in_terminal(
    orchestrator: Orchestrator, console: Terminal, ignored: Collection[ApprovalId]
) -> NoReturn:
    """Ask the user each question except `ignored` ones as it comes, until cancelled."""
    if console.quiet:
        console = Terminal(stderr=True)  # the user must see the question
    lines = StdinLines()
    shown = {*ignored}
    seen = 0
    while True:
        new = [question for question in orchestrator.approvals if question.id not in shown]
        if new:
            shown.add(new[0].id)
            await _answer_one(orchestrator, new[0], lines, console)
        else:
            seen = await orchestrator.wait_changed(after=seen)


async def _answer_one(
    orchestrator: Orchestrator, question: ApprovalQuestion, lines: StdinLines, console: Terminal
) -> None:
    # A line typed before the question is no answer to it.
    lines.discard_typed()
    show_question(question, console)
    with trio.CancelScope() as waiting, raising_one_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when_closed, orchestrator, question, waiting)
            answer = await _read_answer(lines, console)
            nursery.cancel_scope.cancel(reason="the user has answered")
        with suppress(UnknownIdError):
            word, reason = answer
            await orchestrator.answer(question.id, word, reason=reason, by="the user")
            return
    console.print(Text(f"  {TOO_LATE}", style="dim"))


async def _cancel_when_closed(
    orchestrator: Orchestrator, question: ApprovalQuestion, waiting: trio.CancelScope
) -> None:
    await wait_question_closed(orchestrator, question)
    waiting.cancel(reason="the question is closed")


async def _read_answer(lines: StdinLines, console: Terminal) -> tuple[ApprovalVerdict, str]:
    while True:
        line = await lines.read()
        answer = UNATTENDED_DENIAL if line is None else parse_answer(line)
        if answer is not None:
            return answer
        console.print(Text("  y, t, s, or n and why", style="dim"))
