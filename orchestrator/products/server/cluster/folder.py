"""The journals of a folder: a server holds some of them, and other processes hold the rest.

A server holds the journals where sessions of a server wait, and one for new sessions. It takes
any other free journal when a client asks for something in it. A damaged journal is reported, and
the others are served.
"""

from collections.abc import Sequence
from typing import Final

import trio

from orchestrator.delegation import SessionId
from orchestrator.delegation.events import SessionOpened
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.errors import JournalError, JournalInUseError
from orchestrator.ports.journals import Journals, JournalStore, Writer
from orchestrator.ports.reads import ID_PATTERN
from orchestrator.products.server.cluster.holder import JournalHolder, opening
from orchestrator.products.server.cluster.located_subject import locate, owner_of
from orchestrator.products.server.request_subject import Subject

LOOK_SECONDS: Final = 0.5
"""The seconds between two looks at a journal without a writer."""
AGAIN_SECONDS: Final = 5
"""The seconds between two attempts to replace a journal that failed."""
TAKE_SECONDS: Final = 30
"""The seconds between two looks at a journal that another process writes."""


class FolderDirectory:
    """Knows the journals of a folder, and takes free ones."""

    def __init__(self, journals: Journals, holder: JournalHolder, address: str) -> None:
        """Hold no journal yet. Other servers reach this one at `address`."""
        self._journals = journals
        self._holder = holder
        self._address = address
        self._failed: set[str] = set()
        """The journals that were lost or cannot be taken; only a request tries one again."""
        self._is_taking_again = False
        holder.on_released(self._note_released)

    async def take_first(self) -> None:
        """Take the journals where sessions of a server wait, and one for new sessions."""
        waiting = await trio.to_thread.run_sync(self._waiting)
        for name in waiting:
            if name not in self._failed:
                await self.try_to_take(name)
        if not self._holder.names and not self._holder.is_draining:
            await self._holder.take(lambda: self._journals.open_free(address=self._address))

    async def take_forever(self, name: str) -> None:
        """Take the journal of jobs as soon as no other process writes it, until the server ends."""
        await trio.lowlevel.checkpoint()
        is_told = False
        while not self._holder.is_draining:
            if name not in self._holder.names and name not in self._failed:
                await self.try_to_take(name)
            writer = None
            if name not in self._holder.names:
                writer = await self.writer(name)
            if writer is not None and not is_told:
                is_told = True
                self._holder.report(
                    f"process {writer.process} writes {name}, so the jobs of the file begin there"
                )
            await trio.sleep(TAKE_SECONDS)

    async def try_to_take(self, name: str) -> None:
        """Take a journal if no other process writes it; report it if it cannot be opened."""
        await trio.lowlevel.checkpoint()
        try:
            await self.take(name)
        except JournalError as exc:
            self._failed.add(name)
            self._holder.report(f"{name} cannot be taken: {exc.problem}")

    def _note_released(self, name: str) -> None:
        """Take another journal if the last one was lost: new sessions need one."""
        if self._holder.is_draining:
            return
        self._failed.add(name)
        if not self._holder.names and not self._is_taking_again:
            self._is_taking_again = True
            self._holder.start_soon(self._take_again)

    async def _take_again(self) -> None:
        await trio.lowlevel.checkpoint()
        while not (self._holder.names or self._holder.is_draining):
            try:
                await self.take_first()
            except JournalError as exc:
                self._holder.report(f"no other journal can be taken: {exc}")
            # A journal that fails at once must not be opened again and again.
            await trio.sleep(AGAIN_SECONDS)
        self._is_taking_again = False

    def _waiting(self) -> list[str]:
        return [
            name
            for name, sessions in self._journals.waiting().items()
            if _is_of_server(self._journals.store(name), sessions)
        ]

    async def locate(self, subject: Subject) -> str | None:
        if not ID_PATTERN.fullmatch(subject.id):
            await trio.lowlevel.checkpoint()
            return None
        return await trio.to_thread.run_sync(locate, self._journals, subject)

    async def owner(self, journal: str, subject: Subject) -> str | None:
        return await trio.to_thread.run_sync(owner_of, self._journals, journal, subject)

    async def writer(self, journal: str) -> Writer | None:
        return await trio.to_thread.run_sync(self._journals.store(journal).writer)

    async def addresses(self) -> Sequence[str]:
        """Return the addresses of the other servers of the folder."""
        return await trio.to_thread.run_sync(self._other_addresses)

    def _other_addresses(self) -> Sequence[str]:
        held = self._holder.names
        others = [name for name in self._journals.names() if name not in held]
        writers = [self._journals.store(name).writer() for name in others]
        found = {it.address for it in writers if it is not None and it.address}
        return sorted(found - {self._address})

    async def take(self, journal: str) -> bool:
        await trio.lowlevel.checkpoint()
        if self._holder.is_draining or journal in self._holder.names:
            return False  # the server ends, or another request has come first
        store = self._journals.store(journal)
        try:
            await self._holder.take(opening(store, journal, self._address), journal)
        except JournalInUseError:
            return False
        self._failed.discard(journal)
        return True

    async def wait_changed(self) -> None:
        with trio.move_on_after(LOOK_SECONDS):
            await self._holder.wait_changed()


def _is_of_server(store: JournalStore, sessions: Sequence[SessionId]) -> bool:
    """Return whether a server has opened one of these sessions; blocking."""
    try:
        with store.open_reader(verify=False) as reader:
            return any(
                isinstance(entry.event, SessionOpened)
                and entry.event.kind is not SessionKind.PROGRAM
                for session in sessions
                for entry in reader.entries(session)
            )
    except JournalError:
        return False  # an unreadable journal is left alone
