"""Asking whoever sits at the terminal for approval, and understanding the answer."""

import sys
from typing import Final, NoReturn

from rich.text import Text

from delegation import one_line, printable
from delegation.asking import Answer, Ask
from orchestrator.cli.lines import Lines
from orchestrator.cli.terminal import Terminal
from orchestrator.errors import UnknownIdError
from orchestrator.runtime import Orchestrator

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
TOO_LATE: Final = (
    "That is over: it was answered, its time has passed, or its task has ended."
)


def is_attended() -> bool:
    """Tell whether somebody sits there who can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def show_ask(ask: Ask, console: Terminal, *, slash: str = "") -> None:
    """Show what somebody is asked to approve, and how to answer."""
    console.print(Text(f"{ask.path} asks for approval", style="bold yellow"))
    line = Text(f"  {ask.tool}: ", style="yellow")
    line.append(printable(ask.subject), style="not bold")
    console.print(line, soft_wrap=True)
    if ask.details and ask.subject not in ask.details:
        console.print(Text(f"  {one_line(ask.details)}", style="dim"), soft_wrap=True)
    hint = (
        f"  {slash}y once · {slash}t the same in this task · {slash}s the same in this"
        f" session · {slash}n no, and why"
    )
    console.print(Text(hint, style="dim"), soft_wrap=True)


def understood(line: str) -> tuple[Answer, str] | None:
    """Return what somebody answers, and why; None if that is no answer."""
    word, _, reason = line.strip().removeprefix("/").partition(" ")
    answer = WORDS.get(word.lower())
    return None if answer is None else (answer, reason.strip())


async def answer_in_terminal(orchestrator: Orchestrator, console: Terminal) -> NoReturn:
    """Ask for each approval as it comes, until cancelled."""
    lines = Lines()
    seen = 0
    while True:
        while asks := orchestrator.approvals:
            await _answer_one(orchestrator, asks[0], lines, console)
        seen = await orchestrator.wait_changed(after=seen)


async def _answer_one(
    orchestrator: Orchestrator, ask: Ask, lines: Lines, console: Terminal
) -> None:
    show_ask(ask, console)
    while True:
        line = await lines.read()
        if line is None:
            answer: tuple[Answer, str] | None = (
                Answer.DENY,
                "nobody is there to answer",
            )
        else:
            answer = understood(line)
        if answer is not None:
            break
        console.print(Text("  y, t, s, or n and why", style="dim"))
    try:
        await orchestrator.answer(ask.id, answer[0], reason=answer[1], by="the user")
    except UnknownIdError:
        console.print(Text(f"  {TOO_LATE}", style="dim"))
