"""A chat whose input is a pipe or a file: each line is a message, and the reply is printed."""

from typing import NoReturn

import trio
from rich.text import Text

from orchestrator.agents import raising_one_error
from orchestrator.cli.chat.slash_commands import ChangeModel, SlashCommands
from orchestrator.cli.signals import Stop
from orchestrator.cli.terminal.console import Terminal
from orchestrator.cli.terminal.stdin_lines import StdinLines
from orchestrator.delegation import Reply, printable
from orchestrator.ports.sessions import Session


class PipedChat:
    """A conversation, line by line. Replies to later notices are printed as they come."""

    def __init__(
        self,
        session: Session,
        commands: SlashCommands,
        console: Terminal,
        stop: Stop,
        lines: StdinLines,
    ) -> None:
        self._session = session
        self._commands = commands
        self._console = console
        self._stop = stop
        self._lines = lines
        self._changed: ChangeModel | None = None
        """The model that the user has asked for during a turn."""

    async def run(self) -> ChangeModel | None:
        """Talk until the input ends, a signal comes or the user changes the model."""
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._print_replies_forever)
                nursery.start_soon(self._commands.approvals.show_all)
                changed = await self._read_messages()
                await self._stop.wait_drained()
                nursery.cancel_scope.cancel(reason="the user has left")
        return changed

    async def _read_messages(self) -> ChangeModel | None:
        while True:
            self._console.print("> ", end="")
            line: str | None = None
            with self._stop.end_wait_on_signal():
                line = await self._lines.read()
            if line is None or self._stop.is_requested:
                return None
            if self._commands.is_command(line):
                self._changed = await self._commands.handle(line)
            elif line.strip():
                self._print_reply(await self._ask(line))
            if self._changed is not None:
                return self._changed

    async def _ask(self, text: str) -> Reply:
        """Send a message, and handle commands until the reply: the turn may wait for approval."""
        with raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._handle_commands_forever)
                reply = await self._session.ask(text)
                nursery.cancel_scope.cancel(reason="there is a reply")
        return reply

    async def _handle_commands_forever(self) -> None:
        while True:
            line = await self._lines.read_command(self._commands.is_command)
            if line is None:
                break
            self._changed = await self._commands.handle(line) or self._changed
        await self._commands.approvals.deny_what_turns_wait_for()

    async def _print_replies_forever(self) -> NoReturn:
        while True:
            reply = await self._session.replies.receive()
            self._console.print()
            self._print_reply(reply)
            self._console.print("> ", end="")

    def _print_reply(self, reply: Reply) -> None:
        style = "green" if reply.outcome.succeeded else "red"
        self._console.print(Text(printable(reply.text), style=style), soft_wrap=True)
