"""Setting the scene for the tools of a task: its workspace, its environment, what it starts.

What a task opens here is closed before the task has ended: the commands that it has in the
background, and its git worktree if there is no work in it.
"""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from agents import Agent
from agents.tools.desk import Desk, Shelf
from agents.tools.scene import Scene, playing
from delegation import DeliveryCapability, Origin, TaskId, TaskRecord
from delegation.session_context import session_environ
from orchestrator.background import Background, ProcessesOf
from orchestrator.bookkeeper import Bookkeeper
from orchestrator.roster import Roster
from orchestrator.worktrees import Worktree, Worktrees

CLOSE_SECONDS: Final = 30
"""How long all that a task has opened may take to close. Each part of it takes far less."""
ENDED_WITH_IT: Final = "stopped, because its task has ended"
TASK: Final = "ORCHESTRATOR_TASK"
"""Names who has started a process: the path of its task."""


@attrs.frozen(kw_only=True)
class Surroundings:
    """Where an orchestrator runs."""

    workspace: Path
    """The folder of all agents that say nothing else."""
    environ: Mapping[str, str]
    """The environment of what they start, without secrets."""
    state: Path
    """The folder for what is kept of them."""


NOWHERE: Final = Surroundings(workspace=Path(), environ={}, state=Path())
"""Where no tool is really run."""


class Stage:
    """The scenes of all tasks that are under way."""

    def __init__(
        self,
        book: Bookkeeper,
        roster: Roster,
        background: Background,
        surroundings: Surroundings,
    ) -> None:
        self._book = book
        self._roster = roster
        self._background = background
        self._around = surroundings
        self._shelf = Shelf()
        self._worktrees = Worktrees(
            surroundings.state / "worktrees", surroundings.environ
        )
        self._open: dict[TaskId, Worktree] = {}
        self._notes: dict[TaskId, str] = {}

    @asynccontextmanager
    async def set_for(
        self,
        record: TaskRecord,
        agent: Agent[Any],
        origin: Origin,
        scope: trio.CancelScope,
    ) -> AsyncGenerator[None]:
        """Set the scene for the tools of a task as long as the block lasts.

        Args:
            record: who acts.
            agent: as whom.
            origin: what the tasks it asks for will say of where they come from.
            scope: what the task is stopped by; whatever else stops it only interrupts it.
        """
        if agent.workspace == "worktree":
            above = self._above(record)
            self._open[record.id] = await self._worktrees.open(above, name=record.id)
        scene = Scene(
            workspace=self.workspace_of(record),
            environ={
                **self._around.environ,
                **session_environ(),
                TASK: record.path,
            },
            desk=Desk(self._shelf, record.path),
            processes=ProcessesOf(
                self._background,
                record,
                can_tell=origin.capability is not DeliveryCapability.NONE,
            ),
            redact=self._book.redactor.text,
        )
        is_over = False
        try:
            with playing(scene):
                yield
            is_over = True
        except Exception:
            is_over = True
            raise
        finally:
            is_over = is_over or scope.cancel_called
            is_over = is_over or self._book.ledger.ends_for_good(record.id)
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                if self._ends_with_turn(record, origin):
                    await self._background.end_of(record.id, ENDED_WITH_IT)
                await self._close_worktree(record, is_over=is_over)

    def _ends_with_turn(self, record: TaskRecord, origin: Origin) -> bool:
        # A task never has another turn; a session has, if it can be told of anything.
        return (
            record.request is not None or origin.capability is DeliveryCapability.NONE
        )

    async def _close_worktree(self, record: TaskRecord, *, is_over: bool) -> None:
        await trio.lowlevel.checkpoint()
        worktree = self._open.pop(record.id, None)
        # Whoever is only interrupted goes on in it.
        if worktree is None or not is_over:
            return
        if record.children.unsettled:
            # They work in it, and go on without the turn that asked for them.
            self._notes[record.id] = f"Its tasks still work in {worktree.path}"
        elif note := await self._worktrees.close(worktree):
            self._notes[record.id] = f"{note[0].upper()}{note[1:]}"

    def note_of(self, task: TaskId) -> str:
        """Return what is left of a task that has ended, once."""
        return self._notes.pop(task, "")

    def workspace_of(self, record: TaskRecord) -> Path:
        """Return the folder that the tools of a task work in."""
        if record.id in self._open:
            return self._open[record.id].workspace
        own = self._roster.agent_of(record).workspace
        above = self._above(record)
        return above / own if isinstance(own, Path) else above

    def _above(self, record: TaskRecord) -> Path:
        if record.parent is not None:
            return self.workspace_of(record.parent)
        folder = record.context.get("cwd", "")
        return self._around.workspace / folder if folder else self._around.workspace


def surroundings_of(
    environ: Mapping[str, str], workspace: str | os.PathLike[str] | None, state: Path
) -> Surroundings:
    """Return where an orchestrator runs, with absolute names: a process may change its folder."""
    return Surroundings(
        workspace=Path.cwd() if workspace is None else Path(workspace).absolute(),
        environ=environ,
        state=state,
    )
