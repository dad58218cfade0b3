"""Background commands: one nursery owns them all, and facts record the end of each.

A command ends with the receiver of its notices: with its task, with a turn that cannot be notified
later, or with its session. No command outlives the orchestrator. After a crash, the next process on
the same machine finds a command by its id and ends it. A process on another machine cannot see the
command, and posts that; a process on the first machine reports its end.
"""

import os
import secrets
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import trio

from orchestrator.agents import CallKey, ToolError, unanswered_calls
from orchestrator.agents.tools.terminal.background import BackgroundCommand, tag_of
from orchestrator.agents.tools.terminal.process_tags import kill_tagged, tagged_processes
from orchestrator.agents.tools.terminal.tools import TERMINAL
from orchestrator.delegation import TaskId, TaskRecord
from orchestrator.delegation.events import (
    ProcessEnded,
    ProcessMatched,
    ProcessStarted,
    ProcessUnreachable,
)
from orchestrator.delegation.events.processes import MAX_OUTPUT_TAIL, ProcessId
from orchestrator.kernel.execution.workspace.command import CLOSED, Command, UnreachableCommand
from orchestrator.kernel.execution.workspace.host import Host
from orchestrator.kernel.journal.bookkeeper import Bookkeeper

REMEMBERED_COMMANDS: Final = 32
"""How many commands of a task are remembered that have ended."""
LEAVING_SECONDS: Final = 0.5
"""How long killed processes may still start others, when this process is about to exit."""
TASK_ENDED: Final = "stopped, because its task has ended"
NO_COMMANDS: Final = "no command may run in the background here"
ENDED_BY_AGENT: Final = "you have ended it"
NEVER_BEGUN: Final = "it was never begun"
LOST: Final = (
    "its orchestrator died while it ran; whether it had finished, and what else it printed,"
    " is not known"
)


def describe_ended_there(host: str) -> str:
    """Return how a command ended that was left on another machine."""
    return (
        f"its orchestrator died while it ran on {host}, where what was left of it has been ended;"
        " whether it had finished, and what else it printed, is not known"
    )


class BackgroundRunner:
    """Runs and ends the background commands of all tasks."""

    def __init__(self, book: Bookkeeper, host: Host) -> None:
        self._book = book
        self._host = host
        self._queued: list[Command] = []
        self._queue_changed = trio.lowlevel.ParkingLot()
        self._is_closing = False
        self._commands: dict[TaskId, dict[ProcessId, Command]] = {}
        self._left: dict[str, str] = {}
        """The machine of each command that was left on another machine, by the command's tag."""

    def close(self) -> None:
        """Start no more commands."""
        self._is_closing = True

    async def run_forever(self) -> NoReturn:
        """Run commands as they are started. This nursery owns every one of them."""
        async with trio.open_nursery() as commands:
            try:
                while True:
                    while self._queued:
                        commands.start_soon(self._run_command, self._queued.pop())
                    await self._queue_changed.park()
            finally:
                # The callers that wait for one of these to begin or to end wait no longer.
                self.close()
                while self._queued:
                    self._end_unstarted(self._queued.pop())

    async def _run_command(self, command: Command) -> None:
        def on_line(line: str) -> None:
            if command.should_notify(line) and self._can_post(command):
                left_out, command.left_out = command.left_out, 0
                self._book.post(ProcessMatched(command.task, command.id, (line,), left_out))

        try:
            await command.run(on_line)
        finally:
            self._post_ended(command)

    def _end_unstarted(self, command: Command) -> None:
        """End a command that was never started."""
        command.ended = NEVER_BEGUN
        command.error = ToolError(f"the command was not started: {CLOSED}")
        self._post_ended(command)

    def _post_ended(self, command: Command) -> None:
        try:
            if self._can_post(command):
                self._book.post(
                    ProcessEnded(
                        command.task,
                        command.id,
                        command.ended,
                        command.output.tail_text(MAX_OUTPUT_TAIL),
                        command.left_out,
                    )
                )
        finally:
            command.begun.set()
            command.finished.set()

    def _can_post(self, command: Command) -> bool:
        """Return whether the ledger still knows a command: its task may have ended before it."""
        if self._book.closed or self._book.is_broken:
            return False
        ledger = self._book.records
        task = ledger.tasks.get(command.task)
        session = None if task is None else ledger.sessions.get(task.session)
        return session is not None and command.id in session.processes

    async def start(self, command: Command, *, notify: bool) -> None:
        """Run a command, and return when it has started, or could not start."""
        record = self._book.records.tasks[command.task]
        most = self._book.records.rules.processes
        if not most:
            raise ToolError(NO_COMMANDS)
        processes = self._book.records.sessions[record.session].processes.values()
        if sum(not process.is_unreachable for process in processes) >= most:
            raise ToolError(
                f"{most} commands run in the background of this session already: end one with"
                ' process(action="kill"), or wait for one'
            )
        self._book.post(
            ProcessStarted(command.task, command.id, command.command, notify, self._host.name)
        )
        self._remember(command)
        # From here on a crash leaves it to the next process to end it.
        try:
            await self._book.wait_durable()
        except BaseException:
            self._end_unstarted(command)
            raise
        if self._is_closing:
            self._end_unstarted(command)
        else:
            self._queued.append(command)
            self._queue_changed.unpark()
        await command.begun.wait()

    def _remember(self, command: Command) -> None:
        # The commands of evicted sessions are forgotten with them.
        tasks = self._book.records.tasks
        self._commands = {
            task: commands for task, commands in self._commands.items() if task in tasks
        }
        known = self._commands.setdefault(command.task, {})
        known[command.id] = command
        over = [it.id for it in known.values() if it.ended]
        for id_ in over[:-REMEMBERED_COMMANDS]:
            del known[id_]

    def commands_of(self, task: TaskId) -> Sequence[Command]:
        return list(self._commands.get(task, {}).values())

    async def end(self, commands: Iterable[Command], why: str) -> None:
        """End commands, and return when each has ended with all that it started."""
        commands = list(commands)
        for command in commands:
            command.stop(why)
        await trio.lowlevel.checkpoint()
        for command in commands:
            await command.finished.wait()

    async def end_commands_of(self, task: TaskId, why: str) -> Sequence[Command]:
        """End the background commands of a task, forget them, and return the running ones."""
        left = [it for it in self.commands_of(task) if not it.finished.is_set()]
        await self.end(left, why)
        self._commands.pop(task, None)
        return left

    def unreachable_of(self, task: TaskId) -> Sequence[UnreachableCommand]:
        """Return the commands of a task that were left on another machine."""
        session = self._book.records.tasks[task].session
        return [
            UnreachableCommand(process)
            for process in self._book.records.sessions[session].processes.values()
            if process.task == task and process.is_unreachable
        ]

    def notices_of(self, command: Command) -> list[int]:
        """Return the unread notices of a command."""
        session = self._book.records.tasks[command.task].session
        notices = self._book.records.sessions[session].process_notices()
        return [seq for seq, process in notices if process == command.id]

    async def end_leftovers(self, last_host: str) -> None:
        """End the commands that an earlier process left on this machine, and post their ends.

        A signal reaches only this machine, and a command on another one may still run there. That
        it cannot be seen is posted once, and `wait_ended_elsewhere` waits for its end.
        """
        left = [
            process
            for session in self._book.records.sessions.values()
            for process in session.processes.values()
        ]
        here = [process for process in left if self._host.runs(process.host)]
        tags: list[str] = [process.id for process in here]
        calls = list(self._open_calls())
        if calls and not self._host.runs(last_host):
            self._left |= dict.fromkeys(calls, last_host)
        elif calls:
            # Looked at without a thread: it takes milliseconds, and there is hardly ever any.
            tags += [tag for tag, found in tagged_processes(*calls).items() if found]
        await trio.lowlevel.checkpoint()
        if tags:
            await trio.to_thread.run_sync(kill_tagged, *tags)
        for process in here:
            self._book.post(ProcessEnded(process.task, process.id, LOST))
        for process in left:
            if process in here:
                continue
            self._left[process.id] = process.host
            if not process.is_unreachable:
                self._book.post(ProcessUnreachable(process.task, process.id, self._host.name))

    async def wait_ended_elsewhere(self) -> None:
        """Post the ends of commands on other machines, as processes there report them."""
        await trio.lowlevel.checkpoint()
        if not self._left or self._book.open_left_commands is None:
            return
        async with self._book.open_left_commands() as commands:
            await commands.ask(self._left)
            while self._left:
                ended = await commands.wait_ended()
                for tag in ended:
                    self._left.pop(tag, None)
                    self._post_ended_elsewhere(ProcessId(tag))
                await self._book.wait_durable()
                await commands.forget(ended)

    def _post_ended_elsewhere(self, id_: ProcessId) -> None:
        # The processes of calls do not belong to a session: their calls were answered as broken
        # off.
        for session in list(self._book.records.sessions.values()):
            process = session.processes.get(id_)
            if process is not None and process.is_unreachable:
                how = describe_ended_there(process.host)
                self._book.post(ProcessEnded(process.task, id_, how))

    def _open_calls(self) -> Iterator[str]:
        """Yield the tags of foreground commands that a crash interrupted: their output is lost."""
        for task in self._book.records.tasks.values():
            if task.placed_turn is not None:
                continue  # a worker runs them, and ends them
            for call in unanswered_calls(task.transcript):
                ask = task.questions.get(call.id)
                was_run = ask is None or not ask.was_not_run
                if call.name == TERMINAL and was_run:
                    yield tag_of(CallKey(f"{task.call_prefix}/{call.id}"))

    def kill_now(self) -> None:
        """Kill all commands at once, for a process that is about to exit."""
        live = [
            command
            for commands in self._commands.values()
            for command in commands.values()
            if not command.ended and command.process is not None
        ]
        for command in live:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(command.pid, signal.SIGKILL)
        # A foreground command had its grace, and may have ignored that.
        tags = [*(command.id for command in live), *self._open_calls()]
        if tags:
            kill_tagged(*tags, seconds=LEAVING_SECONDS)


class OwnCommands:
    """The operations of tools on commands that were started in this process."""

    async def wait(self, command: BackgroundCommand, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.own(command).finished.wait()

    async def write(self, command: BackgroundCommand, text: str) -> None:
        process = self.own(command).process
        assert process is not None, "it has begun"
        await process.write(text)

    async def close_input(self, command: BackgroundCommand) -> None:
        process = self.own(command).process
        assert process is not None, "it has begun"
        await process.close_stdin()

    def unread(
        self, command: BackgroundCommand, *, hold_back: int, context: int
    ) -> tuple[str, str]:
        own = self.own(command)
        before = own.output.before(own.polled_to, context)
        text, total = own.output.since(own.polled_to)
        held = min(hold_back, len(text))
        own.polled_to = total - held
        return before, text[: len(text) - held]

    def own(self, command: BackgroundCommand) -> Command:
        assert isinstance(command, Command), "it was started here"
        return command


class TaskCommands(OwnCommands):
    """The commands of one task, as its tools see them."""

    def __init__(
        self, background: BackgroundRunner, record: TaskRecord, *, can_notify: bool
    ) -> None:
        self._background = background
        self._task = record.id
        self.can_notify = can_notify

    async def start(
        self, command: str, *, workdir: Path, notify: bool, watch: Sequence[str]
    ) -> Command:
        started = Command(
            ProcessId(f"p_{secrets.token_hex(8)}"),
            command,
            task=self._task,
            workdir=workdir,
            watch=watch,
        )
        await self._background.start(started, notify=notify)
        if started.error is not None:
            raise ToolError(*started.error.args, consumes=self._background.notices_of(started))
        return started

    def known(self) -> Sequence[BackgroundCommand]:
        return [
            *self._background.unreachable_of(self._task),
            *self._background.commands_of(self._task),
        ]

    async def end(self, command: BackgroundCommand) -> None:
        await self._background.end([self.own(command)], ENDED_BY_AGENT)

    def notices_of(self, command: BackgroundCommand) -> Sequence[int]:
        return self._background.notices_of(self.own(command))
