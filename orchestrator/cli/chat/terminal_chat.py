"""A chat in a terminal: the answer streams above the line that the user types."""

from typing import Final

import trio
from rich.cells import cell_len
from rich.text import Text

from orchestrator.agents import raising_one_error
from orchestrator.cli.chat.line_editor import Key, LineEditor
from orchestrator.cli.chat.slash_commands import ChangeModel, SlashCommands, background_tasks
from orchestrator.cli.signals import Stop
from orchestrator.cli.terminal import style as styles
from orchestrator.cli.terminal.console import Terminal, print_hint
from orchestrator.cli.terminal.transcript import cut_at_word
from orchestrator.cli.terminal.tree_frame import DELEGATE_TASK, calls_text
from orchestrator.delegation import Ending, Mode, Reply, TaskId, one_line, printable, root_of
from orchestrator.ports import sessions


class WrappedStream:
    """The lines of a text that arrives in pieces."""

    def __init__(self) -> None:
        self.text = ""
        """The text so far."""
        self.unfinished = ""
        """The last line, which may still grow."""

    def add(self, text: str, width: int) -> list[str]:
        """Add a piece, and return the lines that are now complete."""
        self.text += text
        *ended, self.unfinished = (self.unfinished + text).split("\n")
        lines = [part for line in ended for part in wrap_line(line, width)]
        *more, self.unfinished = wrap_line(self.unfinished, width)
        return [*lines, *more]

    def end(self) -> list[str]:
        """Return the unfinished line, and start a new text."""
        left = [self.unfinished] if self.unfinished else []
        self.text = self.unfinished = ""
        return left


def wrap_line(line: str, width: int) -> list[str]:
    """Cut a line into parts that fit a width, between words where possible; at least one part."""
    parts: list[str] = []
    while cell_len(line) > width:
        cut = cut_at_word(line, width)
        parts.append(line[:cut].rstrip())
        line = line[cut:]
    return [*parts, line]


TICK_SECONDS: Final = 0.25
"""The seconds between two drawings of the spinner and the clock of the status."""


class TerminalChat:
    """A conversation with one session."""

    def __init__(
        self,
        orchestrator: sessions.Orchestrator,
        session: sessions.Session,
        commands: SlashCommands,
        editor: LineEditor,
        console: Terminal,
        *,
        stop: Stop,
        shows_tasks: bool,
    ) -> None:
        self._orchestrator = orchestrator
        self._session = session
        self._commands = commands
        self._editor = editor
        self._console = console
        self._stop = stop
        self._shows_tasks = shows_tasks
        self._record = orchestrator.read.records.sessions[session.id]
        # The last turn of these has ended, or is resumed: then it is shown as it goes on.
        self._turns_before = self._record.turns - (self._record.turn is not None)
        self._root = root_of(session.id)
        self._answer = WrappedStream()
        self._last_answer = ""
        self._turn_began: float | None = None
        self._tick = 0

    async def run(self) -> ChangeModel | None:
        """Talk until the user leaves, a signal comes or the user changes the model."""
        changed: ChangeModel | None = None
        with self._session.events() as events, raising_one_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._print_events, events)
                nursery.start_soon(self._print_earlier_replies)
                nursery.start_soon(self._commands.approvals.show_all)
                nursery.start_soon(self._draw_forever)
                with self._stop.end_wait_on_signal():
                    changed = await self._read_inputs(nursery)
                await self._stop.wait_drained()
                nursery.cancel_scope.cancel(reason="the user has left")
        self._print_lines(self._answer.end())
        self._editor.show(unfinished="", status="", is_busy=False)
        return changed

    # Input of the user.

    async def _read_inputs(self, nursery: trio.Nursery) -> ChangeModel | None:
        await trio.lowlevel.checkpoint()
        async for typed in self._editor.inputs:
            if typed is Key.INTERRUPT:
                nursery.start_soon(self._interrupt)
            elif self._commands.is_command(typed):
                self._echo(typed)
                if (changed := await self._commands.handle(typed)) is not None:
                    return changed
            elif typed.strip():
                self._echo(typed)
                nursery.start_soon(self._send, typed)
        return None

    def _echo(self, line: str) -> None:
        first, *others = printable(line).splitlines() or [""]
        self._print_lines([f"> {first}", *(f"  {it}" for it in others)], "bold")

    async def _send(self, text: str) -> None:
        await trio.lowlevel.checkpoint()
        with self._stop.ignore_closed():
            await self._session.ask(text)  # its reply is shown while it is written

    async def _interrupt(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._is_busy:
            await self._orchestrator.cancel(self._session.id)
        else:
            print_hint(self._console, "Ctrl-D leaves")

    @property
    def _is_busy(self) -> bool:
        return self._record.turn is not None or bool(self._record.mail)

    # Output of the agent.

    async def _print_events(self, events: sessions.RunEvents) -> None:
        while some := await events.receive_some():
            for event in some:
                self._print_event(event)
            self._draw()

    def _print_event(self, event: sessions.RunEvent) -> None:
        if event.task != self._root:
            self._print_task_event(event)
            return
        match event:
            case sessions.TextWritten(text=text):
                text = printable(text).expandtabs(4)
                self._print_answer(self._answer.add(text, self._console.width))
                self._last_answer = self._answer.text
            case sessions.TextReplaced(text=text):
                self._end_answer()
                self._say("(the answer was changed)")
                self._print_text(text)
                self._last_answer = text
            case sessions.ModelRetried(error=error):
                self._end_answer()
                self._say(f"(asked again: {one_line(error)})")
            case sessions.ToolCalled(call=call):
                self._end_answer()
                if call.name != DELEGATE_TASK and self._shows_tasks:
                    self._say(f"· {calls_text([call])}")
            case sessions.TaskEnded():
                self._end_turn(event)
            case (
                sessions.ToolReturned()
                | sessions.TaskDelegated()
                | sessions.ApprovalNeeded()
                | sessions.ReasoningWritten()
            ):
                pass

    def _print_task_event(self, event: sessions.RunEvent) -> None:
        """Print that a task of this session starts in the background, or has ended."""
        if not self._shows_tasks:
            return
        node = self._session.tree[event.task]
        name = node.path.rpartition("/")[2]
        match event:
            case sessions.TaskDelegated(mode=mode, goal=goal, parent=self._root):
                self._end_answer()
                where = ", in the background" if mode == Mode.DETACHED else ""
                self._say(f"· {name}{where}: {one_line(goal)}")
            case sessions.TaskEnded(outcome=outcome) if node.mode == Mode.DETACHED:
                self._end_answer()
                line = f"· {name} {outcome.ending}"
                if outcome.error:
                    line += f": {one_line(outcome.error)}"
                self._say(line, styles.STATUS_COLOURS[outcome.ending])
            case _:
                pass

    def _end_turn(self, event: sessions.TaskEnded) -> None:
        self._end_answer()
        outcome = event.outcome
        if outcome.ending is Ending.CANCELLED:
            self._say("(stopped)", "yellow")
        elif not outcome.succeeded:
            self._print_text(f"{outcome.ending}: {outcome.error}", "red")
        elif outcome.output.strip() != self._last_answer.strip():
            # A pipeline streams nothing, and a typed answer is checked first.
            self._print_text(outcome.output)
        self._last_answer = ""
        self._turn_began = None
        self._print_lines([""])

    def _end_answer(self) -> None:
        self._print_answer(self._answer.end())

    def _print_answer(self, lines: list[str]) -> None:
        if lines:
            # First: the editor draws in a thread of its own, and would show the line twice.
            self._draw()
        self._print_lines(lines)

    async def _print_earlier_replies(self) -> None:
        """Print replies that no earlier chat took. Replies of this chat were already shown."""
        while True:
            reply: Reply = await self._session.replies.receive()
            if reply.turn <= self._turns_before:
                style = "" if reply.outcome.succeeded else "red"
                self._print_text(reply.text, style)
                self._print_lines([""])

    def _print_text(self, text: str, style: str = "") -> None:
        width = self._console.width
        lines = printable(text).expandtabs(4).splitlines()
        self._print_lines([it for line in lines for it in wrap_line(line, width)], style)

    def _print_lines(self, lines: list[str], style: str = "") -> None:
        if lines:
            self._console.print(Text("\n".join(lines), style=style), soft_wrap=True)

    def _say(self, line: str, style: str = "dim") -> None:
        self._console.print(Text(self._in_charset(line), style=style))

    def _in_charset(self, line: str) -> str:
        return line.translate(styles.ASCII_FALLBACK) if styles.is_ascii(self._console) else line

    # The status.

    async def _draw_forever(self) -> None:
        seen = 0
        while True:
            self._draw()
            if self._is_busy or background_tasks(self._session.tree):
                await trio.sleep(TICK_SECONDS)
            else:
                seen = await self._orchestrator.wait_changed(after=seen)

    def _draw(self) -> None:
        self._tick += 1
        status = self._in_charset(" · ".join(self._status_parts()))
        width = self._console.width - 1
        self._editor.show(
            unfinished=self._answer.unfinished,
            status=wrap_line(status, width)[0],
            is_busy=self._is_busy,
        )

    def _status_parts(self) -> list[str]:
        now = self._orchestrator.now()
        spinner = styles.SPINNER[self._tick % len(styles.SPINNER)]
        parts: list[str] = []
        if self._is_busy:
            self._turn_began = self._turn_began or now
            calls = self._orchestrator.calls(self._root)
            doing = calls_text(calls) if calls else "answering"
            took = styles.format_seconds(now - self._turn_began)
            parts += [f"{spinner} {doing} {took}", "Ctrl-C stops"]
        running = background_tasks(self._session.tree)
        if running:
            mark = "" if self._is_busy else f"{spinner} "
            parts.append(f"{mark}in the background: {self._names(running, now)}")
        if not parts:
            parts.append(self._commands.model)
        used = self._session.tree.total
        if used.tokens:
            parts.append(f"{styles.format_tokens(used)} tok {styles.format_money(used)}".rstrip())
        if not self._is_busy and not running:
            parts.append("/help")
        return parts

    def _names(self, tasks: list[TaskId], now: float, most: int = 3) -> str:
        names: list[str] = []
        for task in tasks[:most]:
            node = self._session.tree[task]
            started = node.started
            took = "" if started is None else f" {styles.format_seconds(now - started)}"
            names.append(f"{node.path.rpartition('/')[2]}{took}")
        more = f" and {len(tasks) - most} more" if len(tasks) > most else ""
        return f"{', '.join(names)}{more}"
