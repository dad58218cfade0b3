"""Talking to an agent in the terminal: it answers, and it comes back with news."""

import os
from pathlib import Path
from typing import Any

import trio
from rich.text import Text

from agents import Agent, raising_one_error
from delegation import Reply, Status, printable
from orchestrator.cli.stopping import Stop
from orchestrator.cli.terminal import Terminal, command
from orchestrator.doors.session import Session
from orchestrator.runtime import open_orchestrator

STDIN = 0
CHUNK = 65536


async def chat_in_terminal(
    agent: Agent[Any],
    console: Terminal,
    stop: Stop,
    *,
    file: str | None,
    session: str | None,
    journal: Path | None,
) -> None:
    """Talk until the input ends, or somebody wants to stop."""
    async with (
        open_orchestrator(journal) as orchestrator,
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
    lines = _Lines()
    while True:
        console.print("> ", end="")
        line: str | None = None
        with stop.idling():
            line = await lines.read()
        if line is None or stop.is_requested:
            return
        if line.strip():
            _say(await session.ask(line), console)


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


class _Lines:
    """Standard input, line by line, in a wait that can be cancelled."""

    def __init__(self) -> None:
        self._unread = b""
        self._ended = False

    async def read(self) -> str | None:
        """Return the next line, or None at the end of the input."""
        await trio.lowlevel.checkpoint()
        while b"\n" not in self._unread and not self._ended:
            await _wait_readable()
            chunk = os.read(STDIN, CHUNK)
            self._ended = not chunk
            self._unread += chunk
        if not self._unread:
            return None
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="replace")


async def _wait_readable() -> None:
    try:
        await trio.lowlevel.wait_readable(STDIN)
    except PermissionError:
        # A plain file cannot be waited for, and never makes anybody wait.
        await trio.lowlevel.checkpoint()
