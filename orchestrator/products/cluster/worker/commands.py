"""The background commands of a turn at a worker: they end with it, and nothing notifies of them."""

import secrets
from collections.abc import Sequence
from pathlib import Path

import trio

from orchestrator.agents import ToolError
from orchestrator.agents.tools.terminal.background import BackgroundCommand
from orchestrator.delegation import TaskId
from orchestrator.delegation.events.processes import ProcessId
from orchestrator.ports import execution


class TurnCommands(execution.OwnCommands):
    """The commands of one turn (`BackgroundCommands`). `WorkerContexts.open_turn` makes them."""

    can_notify = False

    def __init__(self, nursery: trio.Nursery, path: str, most: int) -> None:
        self._nursery = nursery
        self._path = path
        self._most = most
        self._commands: list[execution.Command] = []

    async def start(
        self, command: str, *, workdir: Path, notify: bool, watch: Sequence[str]
    ) -> execution.Command:
        if not self._most:
            raise ToolError(execution.NO_COMMANDS)
        if len(self._running()) >= self._most:
            raise ToolError(
                f"{self._most} commands run in the background of this task already: end one with"
                ' process(action="kill"), or wait for one'
            )
        id_ = ProcessId(f"p_{secrets.token_hex(8)}")
        started = execution.Command(
            id_, command, task=TaskId(self._path), workdir=workdir, watch=watch
        )
        self._remember(started)
        self._nursery.start_soon(_run, started)
        await started.begun.wait()
        if started.error is not None:
            raise ToolError(*started.error.args)
        return started

    def _remember(self, command: execution.Command) -> None:
        over = [it for it in self._commands if it.finished.is_set()]
        forgotten = over[: -execution.REMEMBERED_COMMANDS]
        self._commands = [it for it in self._commands if it not in forgotten]
        self._commands.append(command)

    def known(self) -> Sequence[BackgroundCommand]:
        return list(self._commands)

    async def end(self, command: BackgroundCommand) -> None:
        own = self.own(command)
        own.stop(execution.ENDED_BY_AGENT)
        await own.finished.wait()

    def notices_of(self, command: BackgroundCommand) -> Sequence[int]:
        return ()

    async def close(self) -> str:
        """End all running commands with their descendants; return a note about them, if any."""
        left = self._running()
        for command in left:
            command.stop(execution.TASK_ENDED)
        await trio.lowlevel.checkpoint()
        for command in left:
            await command.finished.wait()
        return execution.ended_note(left) if left else ""

    def _running(self) -> list[execution.Command]:
        return [it for it in self._commands if not it.finished.is_set()]


async def _run(command: execution.Command) -> None:
    try:
        await command.run(lambda _: None)
    finally:
        command.begun.set()
        command.finished.set()
