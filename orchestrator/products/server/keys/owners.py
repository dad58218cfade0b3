"""The owner of each session, known without reading the session: as fast as for a missing one."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from orchestrator.delegation import Encoded, SessionId
from orchestrator.delegation.events import Entry, SessionOpened
from orchestrator.ports.reads import ReadApi
from orchestrator.products.server.keys.key import DEFAULT, Key

SPARE: Final = 1_000
"""The most pruned sessions that stay known for a while."""


class Owners:
    """Knows the owners of all sessions. `open_owners` makes it."""

    def __init__(self, read: ReadApi) -> None:
        self._all = read.session_ids
        self._owners: dict[SessionId, str] = {}
        """The owners of sessions that do not belong to `default`."""
        self._sessions: dict[str, dict[SessionId, None]] = {}
        """The sessions of each owner except `default`, oldest first."""

    def sees(self, key: Key, session: SessionId) -> bool:
        """Return whether a session exists and the key sees it."""
        return session in self._all and key.may_see(self._owners.get(session, DEFAULT))

    def newest(self, key: Key) -> list[SessionId]:
        """Return the sessions that a key sees, newest first."""
        if key.is_admin:
            return [*self._all][::-1]
        if key.owner == DEFAULT:
            return [id_ for id_ in [*self._all][::-1] if id_ not in self._owners]
        own = self._sessions.get(key.owner, {})
        return [id_ for id_ in reversed(own) if id_ in self._all]

    def add(self, session: SessionId, owner: str) -> None:
        self._owners[session] = owner
        self._sessions.setdefault(owner, {})[session] = None
        if len(self._owners) > 2 * len(self._all) + SPARE:
            self._forget_pruned()

    def note_opened(self, entry: Entry, _encoded: Encoded) -> None:
        if isinstance(entry.event, SessionOpened) and entry.event.owner:
            self.add(entry.session, entry.event.owner)

    def _forget_pruned(self) -> None:
        self._set_all({it: who for it, who in self._owners.items() if it in self._all})

    def add_earlier(self, earlier: Mapping[SessionId, str]) -> None:
        """Add sessions that are older than the sessions added before."""
        self._set_all({**earlier, **self._owners})

    def _set_all(self, owners: Mapping[SessionId, str]) -> None:
        self._owners, self._sessions = {}, {}
        for session, owner in owners.items():
            self.add(session, owner)


@asynccontextmanager
async def open_owners(read: ReadApi) -> AsyncGenerator[Owners]:
    """Know the owners of all sessions, as long as the block lasts."""
    owners = Owners(read)
    with read.subscribe(owners.note_opened, kinds=[SessionOpened]):
        owners.add_earlier(await read.owners())
        yield owners
