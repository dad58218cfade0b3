"""The journals that a process writes for its editor, each with an orchestrator."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TypeAlias

import trio

from orchestrator.delegation import SessionId
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.journals import HeldJournal, Journals
from orchestrator.ports.sessions import Orchestrator

OpenOrchestrator: TypeAlias = Callable[[HeldJournal], AbstractAsyncContextManager[Orchestrator]]


class Holder:
    """Opens journals when sessions need them. The nursery owns their orchestrators."""

    def __init__(
        self,
        journals: Journals,
        open_orchestrator: OpenOrchestrator,
        orchestrators: list[Orchestrator],
        nursery: trio.Nursery,
    ) -> None:
        """Hold journals at an address; `orchestrators` gets each that is opened."""
        self._journals = journals
        self._open_orchestrator = open_orchestrator
        self._orchestrators = orchestrators
        self._nursery = nursery
        self._held: dict[str, Orchestrator] = {}
        """The orchestrators by the names of their journals; new sessions are in the first one."""
        self._opening = trio.Lock()

    async def orchestrator_of(self, session: SessionId | None) -> Orchestrator:
        """Return the orchestrator that has a session; without one, that of new sessions.

        Raises:
            UnknownIdError: no journal has the session.
            JournalInUseError: another process writes its journal.
        """
        async with self._opening:
            name = None
            if session is not None:
                for it in self._held.values():
                    if session in it.read.session_ids:
                        return it
                name = await trio.to_thread.run_sync(self._journals.find, session)
                if name is None or name in self._held:
                    raise UnknownIdError(f"there is no session {session!r}")
            elif self._held:
                return next(iter(self._held.values()))
            held: Orchestrator = await self._nursery.start(self.serve, name)
            return held

    async def serve(self, name: str | None, task_status: trio.TaskStatus[Orchestrator]) -> None:
        """Write a journal until cancelled; without a name, a free one."""
        async with AsyncExitStack() as opened:
            if name is None:
                held = await opened.enter_async_context(self._journals.open_free())
            else:
                store = self._journals.store(name)
                held = HeldJournal(name, await opened.enter_async_context(store.open_writer()))
            orchestrator = await opened.enter_async_context(self._open_orchestrator(held))
            self._held[held.name] = orchestrator
            self._orchestrators.append(orchestrator)
            task_status.started(orchestrator)
            await trio.sleep_forever()
