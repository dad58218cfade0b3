"""Refused requests, counted for some time before they are recorded.

Refused clients must not fill the disk: equal refusals are one row of the audit, and the number of
rows in a span of time is limited.
"""

from typing import Final, NoReturn

import trio
from msgspec.structs import replace

from orchestrator.kernel.journal.audit import AuditEvent, AuditWriter

SPAN_SECONDS: Final = 30
"""How long refusals are counted before they are recorded."""
MOST_ROWS: Final = 50
"""How many different refusals are recorded in each span; further ones are counted as one."""
OTHERS: Final = "others"


class RefusalCounter:
    """Counts refusals. The one who makes it runs `record_forever`, and flushes it at the end."""

    def __init__(self, writer: AuditWriter) -> None:
        self._writer = writer
        self._counts: dict[AuditEvent, tuple[str, int]] = {}
        """The target of the first one, and how many there are."""
        self._has_some = trio.Event()

    def count(self, event: AuditEvent) -> None:
        """Count one refusal; those that differ in their targets alone are equal."""
        kind = replace(event, target="")
        if kind not in self._counts and len(self._counts) >= MOST_ROWS:
            kind = replace(kind, actor=OTHERS, owner="", peer=OTHERS, action=OTHERS)
        target, count = self._counts.get(kind, (event.target, 0))
        self._counts[kind] = (target, count + event.count)
        self._has_some.set()

    def flush(self) -> None:
        """Record the counts, unless the journal is closed."""
        counts, self._counts = self._counts, {}
        self._has_some = trio.Event()
        if self._writer.closed:
            return
        for event, (target, count) in counts.items():
            self._writer.audit(replace(event, target=target, count=count))

    async def record_forever(self) -> NoReturn:
        """Record the counts from time to time."""
        while True:
            await self._has_some.wait()
            await trio.sleep(SPAN_SECONDS)
            self.flush()
