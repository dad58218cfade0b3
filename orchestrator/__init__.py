"""The house: everything that waits, opens, sends or spawns."""

# The rules look first whether the package `agents` is ours.
import delegation as delegation

# isort: split
from orchestrator.doors.one_shot import Run
from orchestrator.doors.session import Session
from orchestrator.errors import (
    ClosedError,
    JournalError,
    JournalInUseError,
    OrchestratorError,
    RunFailedError,
    SessionOpenError,
    UnknownIdError,
)
from orchestrator.listening import Heard
from orchestrator.runtime import Orchestrator, open_orchestrator
from orchestrator.storage.journal import Journal
from orchestrator.storage.memory import MemoryJournal

__all__ = [
    "ClosedError",
    "Heard",
    "Journal",
    "JournalError",
    "JournalInUseError",
    "MemoryJournal",
    "Orchestrator",
    "OrchestratorError",
    "Run",
    "RunFailedError",
    "Session",
    "SessionOpenError",
    "UnknownIdError",
    "open_orchestrator",
]
