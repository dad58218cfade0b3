"""Pairing codes: a person who shows a valid code may talk from then on.

The operator gives a code to the person, who sends `/pair CODE`. A code is valid for an hour and for
one person. A person who guesses gets no answer, and is ignored for an hour after five wrong codes.
The state of one session of the journal records the paired people, so they survive a crash.
"""

from collections.abc import Callable
from typing import ClassVar, Final

import trio

from orchestrator.delegation import SessionId
from orchestrator.delegation.events import change_state
from orchestrator.delegation.session_state import NO_ENTRIES, Entries, SessionState
from orchestrator.ports.journals import Facts
from orchestrator.ports.reads import ReadApi
from orchestrator.ports.sessions import KeptDoor
from orchestrator.products.chat.one_time_codes import HOUR, OneTimeCodes

PAIRED: Final = SessionId("c_paired_users")
"""The session whose state names the people who were paired."""
MOST_CODES: Final = 3
MOST_WRONG: Final = 5
MOST_GUESSERS: Final = 1_000
"""The most guessing people; beyond, no code is accepted for an hour, since they are one person."""


class PairedState(SessionState, frozen=True):
    """The people who were paired."""

    NAME: ClassVar[str] = "paired"
    users: Entries[str] = NO_ENTRIES
    """Their names, by `PLATFORM:USER`."""


class PairingCodes:
    """The codes of one gateway, and the people who have shown one."""

    def __init__(
        self, facts: Facts, read: ReadApi, door: KeptDoor, clock: Callable[[], float]
    ) -> None:
        self._facts = facts
        self._read = read
        self._door = door
        self._clock = clock
        self._codes = OneTimeCodes[bool](clock, most=MOST_CODES)
        self._wrong: dict[str, list[float]] = {}
        """The times of each person's wrong codes."""
        self._paired: set[str] = set()

    async def load(self) -> None:
        """Read the paired people."""
        await self._facts.load(PAIRED)
        session = self._read.records.sessions.get(PAIRED)
        if session is not None:
            self._paired.update(session.state(PairedState).users)

    def new_code(self) -> str:
        """Return a new code; a fourth code makes the oldest invalid."""
        return self._codes.new(True)

    def is_paired(self, user: str) -> bool:
        """Return whether a person (`PLATFORM:USER`) was paired."""
        return user in self._paired

    async def pair(self, user: str, code: str, name: str) -> bool:
        """Pair a person who shows a valid code, and return whether the code was valid."""
        await trio.lowlevel.checkpoint()
        now = self._clock()
        if not self._may_try(user, now):
            return False
        if not self._codes.take(code):
            self._wrong.setdefault(user, []).append(now)
            return False
        await self.load()
        if PAIRED not in self._read.records.sessions:
            self._door.open_record(PAIRED)
        self._facts.post(change_state(PAIRED, PairedState, users={user: name or user}))
        await self._facts.wait_durable()
        self._paired.add(user)
        return True

    def _may_try(self, user: str, now: float) -> bool:
        self._wrong = {
            it: recent
            for it, times in self._wrong.items()
            if (recent := [time for time in times if time > now - HOUR])
        }
        is_many = len(self._wrong) >= MOST_GUESSERS
        return not is_many and len(self._wrong.get(user, ())) < MOST_WRONG
