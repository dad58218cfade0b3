"""Summaries of runs at rest, kept for the next list: a search in 10,000 runs reads each run once.

A fact of a run drops its summary, so a kept summary is never stale.
"""

from typing import Final

import msgspec

from orchestrator.delegation import Encoded, SessionId
from orchestrator.delegation.events import Entry
from orchestrator.ports.journals import SessionSummary
from orchestrator.ports.reads import FoundSession, ReadApi
from orchestrator.products.server.api.bodies import RunSummary, run_summary, summary_of

MAX_BYTES: Final = 12_000_000
"""The size of all summaries: 19,000 of 640 bytes, or fewer with long metadata."""


class RunSummaries:
    """The summaries of one journal, encoded, so that the garbage collector ignores them."""

    def __init__(self, read: ReadApi) -> None:
        self._read = read
        self._kept: dict[SessionId, bytes] = {}
        """The oldest first."""
        self._bytes = 0

    def note_fact(self, entry: Entry, _encoded: Encoded) -> None:
        if (body := self._kept.pop(entry.session, None)) is not None:
            self._bytes -= len(body)

    def get(self, run: SessionId) -> RunSummary | None:
        """Return the summary of a run, if it is kept."""
        body = self._kept.get(run)
        return None if body is None else msgspec.json.decode(body, type=RunSummary)

    def keep(self, found: FoundSession, *, seq: int) -> None:
        """Keep the summary of a run at rest, if no fact came after `seq`, when it was read."""
        run = found.session.id
        is_now = found.records is self._read.records or seq == self._read.last_seq
        if is_now and found.session.is_at_rest:
            self._keep(run, summary_of(found.session, found.records))

    def keep_stored(self, summary: SessionSummary, *, seq: int) -> None:
        """Keep a summary that the journal has, if no fact came after `seq`, when it was read."""
        if seq == self._read.last_seq and not summary.deleted:
            self._keep(summary.id, run_summary(summary))

    def _keep(self, run: SessionId, summary: RunSummary) -> None:
        body = msgspec.json.encode(summary)
        self._bytes += len(body) - len(self._kept.pop(run, b""))
        self._kept[run] = body
        while self._bytes > MAX_BYTES:
            self._bytes -= len(self._kept.pop(next(iter(self._kept))))
