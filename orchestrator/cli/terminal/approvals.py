"""Asking whoever sits at the terminal for approval, and understanding the answer."""

import os
from collections.abc import Collection
from contextlib import suppress
from typing import Final, NoReturn

import msgspec
import trio
from rich.text import Text

from agents import raising_one_error
from delegation import one_line, printable
from delegation.events.approvals import Answer, ApprovalId, Ask
from orchestrator.cli.terminal.console import Terminal
from orchestrator.cli.terminal.stdin_lines import STDIN, Lines
from orchestrator.errors import UnknownIdError
from orchestrator.runtime import Orchestrator

STDERR: Final = 2
WORDS: Final = {
    "y": Answer.ONCE,
    "yes": Answer.ONCE,
    "t": Answer.TASK,
    "task": Answer.TASK,
    "s": Answer.SESSION,
    "session": Answer.SESSION,
    "n": Answer.DENY,
    "no": Answer.DENY,
}
NOBODY_THERE: Final = (Answer.DENY, "nobody is there to answer")
TOO_LATE: Final = (
    "That is over: it was answered, its time has passed, or its task has ended."
)


def is_attended() -> bool:
    """Tell whether somebody sits there who can be asked."""
    return os.isatty(STDIN) and os.isatty(STDERR)


def show_ask(ask: Ask, console: Terminal, *, slash: str = "") -> None:
    """Show what somebody is asked to approve, and how to answer."""
    console.print(Text(f"{ask.path} asks for approval", style="bold yellow"))
    line = Text(f"  {ask.tool}: ", style="yellow")
    # What it says cannot pass for what we say: it stays in its own column.
    subject = printable(ask.subject).replace("\n", "\n    ")
    line.append(subject, style="not bold")
    console.print(line, soft_wrap=True)
    if not _says_no_more(ask):
        console.print(Text(f"  {one_line(ask.details)}", style="dim"), soft_wrap=True)
    hint = (
        f"  {slash}y once · {slash}t the same in this task · {slash}s the same in this"
        f" session · {slash}n no, and why"
    )
    console.print(Text(hint, style="dim"), soft_wrap=True)


def _says_no_more(ask: Ask) -> bool:
    """Tell whether there is nothing in a call but what is asked about."""
    if ask.details == ask.subject:
        return True
    try:
        said = msgspec.json.decode(ask.details, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return False  # it was cut, or somebody tries what we can bear
    return list(said.values()) in ([], [ask.subject])


def understood(line: str) -> tuple[Answer, str] | None:
    """Return what somebody answers, and why; None if that is no answer."""
    word, _, reason = line.strip().removeprefix("/").partition(" ")
    answer = WORDS.get(word.lower())
    return None if answer is None else (answer, reason.strip())


async def wait_over(orchestrator: Orchestrator, ask: Ask) -> None:
    """Wait until a question was answered, or nobody can answer it any more."""
    seen = 0
    await trio.lowlevel.checkpoint()
    with trio.move_on_after(max(0, ask.deadline - orchestrator.now())):
        await trio.lowlevel.checkpoint()
        while any(it.id == ask.id for it in orchestrator.approvals):
            seen = await orchestrator.wait_changed(after=seen)


def pending(orchestrator: Orchestrator) -> set[ApprovalId]:
    """Return what is asked now: those who ask before we begin have others who talk to them."""
    return {ask.id for ask in orchestrator.approvals}


async def answer_in_terminal(
    orchestrator: Orchestrator, console: Terminal, others: Collection[ApprovalId]
) -> NoReturn:
    """Ask for each approval as it comes, until cancelled.

    Args:
        orchestrator: who needs somebody.
        console: where that is shown.
        others: what is not asked here.
    """
    if console.quiet:
        console = Terminal(stderr=True)  # a question that nobody sees is none
    lines = Lines()
    shown = {*others}
    seen = 0
    while True:
        new = [ask for ask in orchestrator.approvals if ask.id not in shown]
        if new:
            shown.add(new[0].id)
            await _answer_one(orchestrator, new[0], lines, console)
        else:
            seen = await orchestrator.wait_changed(after=seen)


async def _answer_one(
    orchestrator: Orchestrator, ask: Ask, lines: Lines, console: Terminal
) -> None:
    # What was typed before the question is no answer to it.
    lines.forget_typed()
    show_ask(ask, console)
    with trio.CancelScope() as waiting, raising_one_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_give_up, orchestrator, ask, waiting)
            answer = await _read_answer(lines, console)
            nursery.cancel_scope.cancel(reason="somebody has answered")
        with suppress(UnknownIdError):
            word, reason = answer
            await orchestrator.answer(ask.id, word, reason=reason, by="the user")
            return
    console.print(Text(f"  {TOO_LATE}", style="dim"))


async def _give_up(
    orchestrator: Orchestrator, ask: Ask, waiting: trio.CancelScope
) -> None:
    await wait_over(orchestrator, ask)
    waiting.cancel(reason="nobody needs an answer any more")


async def _read_answer(lines: Lines, console: Terminal) -> tuple[Answer, str]:
    while True:
        line = await lines.read()
        answer = NOBODY_THERE if line is None else understood(line)
        if answer is not None:
            return answer
        console.print(Text("  y, t, s, or n and why", style="dim"))
