"""The memory of one task: `memory` records each change as a fact, and then writes the file.

A call that a crash interrupts is made again, and finds the fact and the prepared file: its change
is applied once. A fork reads and changes its copy in the journal, and no file.

Imported late: most agents have no memory.
"""

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import trio
from msgspec.structs import replace

from orchestrator.agents import Tool, ToolCall, ToolError, arguments_schema, read_arguments
from orchestrator.agents.feature_checks import MEMORY
from orchestrator.agents.redaction.long_texts import search_ahead
from orchestrator.agents.tools.evidence import FileChange, effect_fields
from orchestrator.agents.tools.result_text import ToolResult
from orchestrator.delegation import TaskRecord
from orchestrator.delegation.events.state_change import change_state
from orchestrator.delegation.memory import (
    MemoryChange,
    MemoryState,
    UseMemory,
    change_of,
    changed_text,
    memory_note,
    shown_memory,
    version_of,
)
from orchestrator.kernel.engine.memory_file import MemoryFile
from orchestrator.kernel.journal.bookkeeper import Bookkeeper

TRIES: Final = 20
"""How often a change is made anew, because others have changed the file meanwhile."""
DESCRIPTION: Final = (
    "Read or change your memory, a text that outlives this run. `view` returns it; `append` adds"
    " `text` at its end; `edit` replaces `old`, which is in it exactly once, by `new`; `write`"
    " replaces all of it by `text`, if it still has the `version` that you have read."
)


class TaskMemory:
    """The memory of one task."""

    def __init__(self, book: Bookkeeper, record: TaskRecord, path: Path) -> None:
        self._book = book
        self._record = record
        self._file = MemoryFile(path)
        self._key = str(path)
        session = book.ledger.sessions[record.session]
        self._session = session
        self._is_fork = bool(session.forked_from)

    async def note(self) -> str:
        """Return the part of the instructions that has the memory, and record the text."""
        await trio.lowlevel.checkpoint()
        try:
            return memory_note(await self._shown())
        except ToolError as exc:
            return f"Your memory cannot be read: {exc}"

    def tool(self) -> Tool:
        return Tool(
            name=MEMORY,
            description=DESCRIPTION,
            parameters=_parameters(),
            run=self._run,
            # A call that a crash interrupted finds its change, and reads its recorded arguments.
            idempotent=True,
            acts_outside=False,
        )

    async def _run(self, call: ToolCall) -> ToolResult:
        use = read_arguments(call, UseMemory)
        if use.action == "view":
            return ToolResult(await self._shown())
        use = use.redacted(self._book.redactor.redact)
        key = f"{self._record.call_prefix}/{call.id}"
        if self._is_fork:
            return await self._change_copy(use, key)
        done = self._state.changes.get(key)
        for _ in range(TRIES):
            change = done or await self._prepare(use, key)
            # Once it is a fact, the file gets it.
            with trio.CancelScope(shield=True):
                await self._book.wait_durable()
                if await trio.to_thread.run_sync(self._file.apply, key, change.before):
                    return self._result(change)
            done = None
        await self._withdraw(key)
        raise ToolError("others change the memory all the time: nothing was written; try again")

    async def _prepare(self, use: UseMemory, key: str) -> MemoryChange:
        """Write the changed text beside the file, and record the change."""
        problem: ToolError | None = None
        try:
            before, after = await trio.to_thread.run_sync(
                self._file.prepare, key, partial(self._changed, use)
            )
        except ToolError as exc:
            problem = exc
        else:
            return await self._record_change(before, after, key)
        if key in self._state.changes:
            await self._withdraw(key)
        raise problem

    def _changed(self, use: UseMemory, current: str) -> str:
        if use.action == "write" and self._book.redactor.redact(current) != current:
            raise ToolError("the memory holds secrets that you were not shown: edit other parts")
        return changed_text(current, use)

    async def _record_change(self, before: str, after: str, key: str) -> MemoryChange:
        change = change_of(self._key, self._file.path.name, before, after)
        await search_ahead(self._book.redactor, [after, change.diff])
        self._book.post(
            change_state(
                self._session.id, MemoryState, texts={self._key: after}, changes={key: change}
            )
        )
        return change

    async def _withdraw(self, key: str) -> None:
        """Record that a change was not made, and then remove the prepared file."""
        with trio.CancelScope(shield=True):
            self._book.post(change_state(self._session.id, MemoryState, changes={key: None}))
            await self._book.wait_durable()
            await trio.to_thread.run_sync(self._file.discard, key)

    async def _change_copy(self, use: UseMemory, key: str) -> ToolResult:
        change = self._state.changes.get(key)
        if change is None:
            before = await self._current()
            change = await self._record_change(before, changed_text(before, use), key)
        await self._book.wait_durable()
        result = self._result(change)
        return replace(result, text=f"{result.text}\n[This run is a fork: its memory is its own.]")

    async def _shown(self) -> str:
        text = await self._current()
        redacted = self._book.redactor.redact(text)
        return shown_memory(self._file.path.name, redacted, version_of(text))

    async def _current(self) -> str:
        known = self._state.texts.get(self._key)
        if self._is_fork and known is not None:
            await trio.lowlevel.checkpoint()
            return known
        text = await trio.to_thread.run_sync(self._file.read)
        await search_ahead(self._book.redactor, [text])
        if known is None or self._book.redactor.redact(text) != known:
            self._book.post(change_state(self._session.id, MemoryState, texts={self._key: text}))
        return text

    def _result(self, change: MemoryChange) -> ToolResult:
        text = f"changed to version {change.after}:\n{change.diff}"
        return ToolResult(text, evidence=_evidence(change, self._file.path.name))

    @property
    def _state(self) -> MemoryState:
        return self._session.state(MemoryState)


def _evidence(change: MemoryChange, name: str) -> Mapping[str, Any]:
    lines = change.diff.splitlines()[2:]
    added, removed = (sum(it.startswith(sign) for it in lines) for sign in "+-")
    before = "" if change.before == version_of("") else change.before
    return effect_fields(FileChange(name, change.after, before, added=added, removed=removed))


@cache
def _parameters() -> Mapping[str, Any]:
    return arguments_schema(UseMemory)
