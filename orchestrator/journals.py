"""Journals: the files and databases that keep facts, and how a program reads them."""

from orchestrator.backends import journals_at, store_at
from orchestrator.kernel.engine.model_events import TaskModelEvent
from orchestrator.kernel.journal.journal import Journal
from orchestrator.kernel.journal.journals import Journals
from orchestrator.kernel.journal.memory import MemoryJournal
from orchestrator.kernel.journal.reader import JournalReader
from orchestrator.kernel.journal.store import JournalStore
from orchestrator.kernel.read_api import ReadApi

__all__ = [
    "Journal",
    "JournalReader",
    "JournalStore",
    "Journals",
    "MemoryJournal",
    "ReadApi",
    "TaskModelEvent",
    "journals_at",
    "store_at",
]
