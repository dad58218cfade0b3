"""The port of all journals at one address: a file, or the journals of a folder or a database.

A session stays in one journal for ever, and numbers of entries (`seq`) belong to one journal. So a
reader of several journals names the journal with each session, and mixes no entries. Methods that
are not async block: call them in a thread where others must not wait.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol

import msgspec
import trio

from orchestrator.delegation import SessionId
from orchestrator.kernel.errors import JournalError, JournalInUseError
from orchestrator.kernel.journal.journal import Journal
from orchestrator.kernel.journal.store import JournalStore


class ListedSession(msgspec.Struct, frozen=True, gc=False):
    """A session, the journal that has it, and when it began."""

    journal: str
    id: SessionId
    began: float


class SessionList(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions of several journals, oldest first."""

    sessions: Sequence[ListedSession]
    count: int
    """How many sessions the journals have in all."""
    unreadable: Mapping[str, JournalError] = {}
    """The journals that cannot be read, and why: a session that is not listed may be there."""


class HeldJournal(msgspec.Struct, frozen=True):
    """A journal that this process writes."""

    name: str
    journal: Journal


class Journals(Protocol):
    """All journals at one address."""

    @property
    def address(self) -> str:
        """The address as people may read it and commands take it: without a password."""
        ...

    @property
    def folder(self) -> Path | None:
        """Where the keys and secrets of a server are; None if no folder belongs to them."""
        ...

    def names(self) -> Sequence[str]:
        """Return the names of the journals that exist, the first one first."""
        ...

    def store(self, name: str) -> JournalStore:
        """Return the store of the journal of a name, whether it exists or not."""
        ...

    def find(self, session: SessionId) -> str | None:
        """Return the name of the journal that has a session; None if none has.

        Raises:
            JournalError: none has it that can be read, and one cannot be read.
        """
        ...

    def sessions(self, *, prefix: str = "", newest: int | None = None) -> SessionList:
        """Return the sessions whose id begins with a prefix, oldest first.

        Args:
            prefix: how the ids begin.
            newest: return the newest so many only; None is all.
        """
        ...

    def sessions_with_task(self, prefix: str) -> SessionList:
        """Return the sessions that have a task whose id begins with a prefix, oldest first."""
        ...

    def waiting(self) -> Mapping[str, Sequence[SessionId]]:
        """Return the journals without a writer whose sessions wait to go on.

        A session waits if it is not idle: its process has died in a turn or with an open door, or
        it has mail, tasks or undelivered replies.
        """
        ...

    def open_free(self, *, address: str = "") -> AbstractAsyncContextManager[HeldJournal]:
        """Open the first free journal for writing, or create another one.

        A journal is free if no process writes it and no session in it waits to go on. A process
        that continues such a session opens its journal by name.

        Args:
            address: where this process is reached over HTTP, for readers on other machines.

        Raises:
            JournalInUseError: there can be only one, and another process writes it.
            JournalError: it cannot be opened, or is no journal.
        """
        ...


@asynccontextmanager
async def open_journal(
    journals: Journals, session: str | None = None
) -> AsyncGenerator[HeldJournal]:
    """Open the journal that has a session for writing; without one, a free journal.

    Raises:
        JournalInUseError: another process writes it.
        JournalError: it cannot be opened, or is no journal.
    """
    async with AsyncExitStack() as stack:
        name = None
        if session is not None:
            name = await trio.to_thread.run_sync(journals.find, SessionId(session))
        if name is None:
            yield await stack.enter_async_context(journals.open_free())
            return
        try:
            opened = await stack.enter_async_context(journals.store(name).open_writer())
        except JournalInUseError as exc:
            raise JournalInUseError(
                exc.path,
                f"it has {session!r}, and {exc.writer} is writing it: wait for that one, or look"
                f" at it from here and act on it: orchestrator watch {session}",
                writer=exc.writer,
            ) from exc
        yield HeldJournal(name, opened)
