"""Talking to an agent in the terminal: it answers, and it comes back with news."""

from pathlib import Path
from typing import Any, Final

import trio
from rich.text import Text

from agents import Agent, raising_one_error
from delegation import Reply, Status, printable
from orchestrator.cli.approvals import TOO_LATE, show_ask, understood
from orchestrator.cli.errors import CommandError
from orchestrator.cli.lines import Lines
from orchestrator.cli.looks import Progress
from orchestrator.cli.progress import showing
from orchestrator.cli.stopping import Stop
from orchestrator.cli.terminal import Terminal, command
from orchestrator.doors.session import Session
from orchestrator.errors import UnknownIdError
from orchestrator.runtime import open_orchestrator

COMMANDS: Final = "/y, /t, /s and /n answer what needs your approval."


async def chat_in_terminal(
    agent: Agent[Any],
    console: Terminal,
    stop: Stop,
    *,
    file: str | None,
    session: str | None,
    journal: Path | None,
    progress: Progress = "none",
) -> None:
    """Talk until the input ends, or somebody wants to stop."""
    if progress == "live":
        raise CommandError(
            "a chat has no live picture, for you type there; in another terminal:"
            " orchestrator watch"
        )
    async with (
        showing(progress, console, journal) as shown,
        open_orchestrator(journal) as orchestrator,
        shown.watched(orchestrator, asking=False),
        orchestrator.open_session(agent, session=session) as opened,
    ):
        stop.use(orchestrator)
        if file is None:
            _hint(
                console, "the model is scripted; for a real one: orchestrator chat FILE"
            )
        _hint(console, f"session {opened.id}; Ctrl-D ends it")
        with stop.scope, raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_tell_news, opened, console)
                nursery.start_soon(_show_asks, opened, console)
                await _listen(opened, console, stop)
                await stop.wait_drained()
                nursery.cancel_scope.cancel(reason="the user has left")
        running = opened.tree.counts().get(Status.RUNNING, 0)
        left = (
            f"{running} tasks go on when you come back" if running else "to come back"
        )
        arguments = ["chat", *([] if file is None else [file]), "--session", opened.id]
        console.print()
        _hint(console, f"{left}: {command(*arguments, journal=journal)}")


async def _listen(session: Session, console: Terminal, stop: Stop) -> None:
    lines = Lines()
    while True:
        console.print("> ", end="")
        line: str | None = None
        with stop.idling():
            line = await lines.read()
        if line is None or stop.is_requested:
            return
        if line.startswith("/"):
            await _obey(line, session, console)
        elif line.strip():
            _say(await _ask(session, line, lines, console), console)


async def _ask(session: Session, text: str, lines: Lines, console: Terminal) -> Reply:
    """Say something, and obey commands until there is a reply: it may wait for them."""
    with raising_one_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_obey_all, session, lines, console)
            reply = await session.ask(text)
            nursery.cancel_scope.cancel(reason="there is a reply")
    return reply


async def _obey_all(session: Session, lines: Lines, console: Terminal) -> None:
    while (line := await lines.read_command()) is not None:
        await _obey(line, session, console)


async def _obey(line: str, session: Session, console: Terminal) -> None:
    """Answer the oldest question that is open."""
    answer = understood(line)
    await trio.lowlevel.checkpoint()
    if answer is None:
        _hint(console, f"There is no {line.split(maxsplit=1)[0]}. {COMMANDS}")
        return
    if not (asks := session.open_asks):
        _hint(console, "Nothing waits for an approval.")
        return
    try:
        await session.answer(asks[0].id, answer[0], reason=answer[1], by="the user")
    except UnknownIdError:
        _hint(console, TOO_LATE)


async def _show_asks(session: Session, console: Terminal) -> None:
    async for ask in session.asks:
        console.print()
        show_ask(ask, console, slash="/")


async def _tell_news(session: Session, console: Terminal) -> None:
    while True:
        reply = await session.replies.receive()
        console.print()
        _say(reply, console)
        console.print("> ", end="")


def _say(reply: Reply, console: Terminal) -> None:
    style = "green" if reply.outcome.succeeded else "red"
    console.print(Text(printable(reply.text), style=style), soft_wrap=True)


def _hint(console: Terminal, line: str) -> None:
    console.print(Text(line, style="dim"), soft_wrap=True)
