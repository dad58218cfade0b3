"""Talking to an agent in the terminal: it answers, and it comes back with news."""

import os
from pathlib import Path
from typing import Any

import trio
from rich.console import Console
from rich.text import Text

from agents import Agent, raising_one_error
from delegation import Reply, printable
from orchestrator.doors.session import Session
from orchestrator.runtime import open_orchestrator

STDIN = 0
CHUNK = 65536


async def chat_in_terminal(
    agent: Agent[Any],
    console: Console,
    *,
    greeting: str,
    session: str | None,
    journal: Path | None,
) -> None:
    """Talk until the input ends."""
    async with (
        open_orchestrator(journal) as orchestrator,
        orchestrator.open_session(agent, session=session) as opened,
    ):
        for line in (greeting, f"session {opened.id}; Ctrl-D ends it"):
            if line:
                console.print(Text(line, style="dim"), soft_wrap=True)
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_tell_news, opened, console)
                await _listen(opened, console)
                nursery.cancel_scope.cancel(reason="the user has left")
        _say_goodbye(opened, console)


async def _listen(session: Session, console: Console) -> None:
    lines = _Lines()
    while True:
        console.print("> ", end="")
        line = await lines.read()
        if line is None:
            return
        if line.strip():
            _say(await session.ask(line), console)


async def _tell_news(session: Session, console: Console) -> None:
    while True:
        reply = await session.replies.receive()
        console.print()
        _say(reply, console)
        console.print("> ", end="")


def _say(reply: Reply, console: Console) -> None:
    if reply.outcome.succeeded:
        console.print(Text(printable(reply.text), style="green"), soft_wrap=True)
    else:
        error = f"{reply.outcome.ending}: {reply.outcome.error}"
        console.print(Text(printable(error), style="red"), soft_wrap=True)


def _say_goodbye(session: Session, console: Console) -> None:
    running = session.tree.counts().get("running", 0)
    left = (
        f"{running} tasks go on when you come back"
        if running
        else "nothing is left running"
    )
    console.print()
    console.print(
        Text(f"{left}: orchestrator chat --session {session.id}", style="dim")
    )


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
