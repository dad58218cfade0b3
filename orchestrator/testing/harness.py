"""The test harness: a journal in memory that is opened, crashes, and is opened again."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from orchestrator.agents import Agent
from orchestrator.composition import open_orchestrator
from orchestrator.delegation import Rules
from orchestrator.delegation.events import Entry, Event, in_parts
from orchestrator.kernel.doors.one_shot import Run
from orchestrator.kernel.journal.memory import MemoryJournal
from orchestrator.kernel.orchestrator import Orchestrator
from orchestrator.kernel.settings import Models
from orchestrator.ports.settings import Machine
from orchestrator.testing.crashing_journal import CrashedError, CrashingJournal
from orchestrator.testing.invariants import assert_laws

OutputT = TypeVar("OutputT")
EventT = TypeVar("EventT", bound=Event)


class Harness:
    """One journal, and any number of orchestrators on it, one after the other."""

    def __init__(
        self,
        *,
        rules: Rules | None = None,
        models: Models | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Create an empty journal. The options apply to every orchestrator on it."""
        self.rules = rules
        self._models = models
        # Leave out the developer's keys: a test must not call a provider.
        self._environ: Mapping[str, str] = {} if environ is None else environ
        self._journal = MemoryJournal()

    @property
    def entries(self) -> Sequence[Entry]:
        """All entries of the journal."""
        return self._journal.entries

    def facts(self, kind: type[EventT]) -> list[EventT]:
        """Return the facts of one kind, oldest first."""
        return facts(self.entries, kind)

    @asynccontextmanager
    async def open(self, *, crash_after: int | None = None) -> AsyncGenerator[Orchestrator]:
        """Open an orchestrator on the journal; it resumes interrupted work.

        Args:
            crash_after: the number of the last durable entry. The orchestrator crashes after it:
                the block ends at once, and the test continues after the block.
        """
        journal = self._journal
        crashing = None
        if crash_after is not None:
            crashing = CrashingJournal(journal, after=crash_after)
        try:
            async with open_orchestrator(
                crashing or journal,
                rules=self.rules,
                models=self._models,
                machine=Machine(environ=self._environ),
            ) as orchestrator:
                yield orchestrator
        except CrashedError:
            return
        if crashing is not None and not crashing.crashed:
            raise AssertionError(
                f"the orchestrator did not crash: the journal has {len(journal.entries)}"
                f" entries, and would crash after {crash_after}"
            )

    async def run(self, agent: Agent[OutputT], goal: str) -> Run[OutputT]:
        """Open an orchestrator, run an agent, and close it again."""
        async with self.open() as orchestrator:
            return await orchestrator.run(agent, goal)

    def assert_laws(self) -> None:
        """Raise `AssertionError` if the journal breaks a law."""
        assert_laws(self.entries, self.rules)


def facts(entries: Sequence[Entry], kind: type[EventT]) -> list[EventT]:
    """Return the facts of one kind in a journal, oldest first, also as parts of other facts."""
    return [entry.event for entry in in_parts(entries) if isinstance(entry.event, kind)]
