"""Reads: sessions, tasks, entries and live facts, for every view."""

# The imports are the ports.
# pyright: reportUnusedImport=false

from orchestrator.kernel.journal.fact_feed import FactFeed, FactLine
from orchestrator.kernel.journal.subscriptions import FactQueue, fact_line
from orchestrator.kernel.read_api import ID_PATTERN, FoundSession, FoundTask, ReadApi
