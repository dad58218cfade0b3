"""Facts of the journal as NDJSON on stdout, and nothing else.

A fact is written once it is durable, so a crash takes no line back.
"""

import sys
from typing import NoReturn

from orchestrator.delegation.tree.safe_text import printable_json
from orchestrator.kernel.journal.subscriptions import FactQueue, fact_line
from orchestrator.kernel.runtime import Orchestrator


async def write_facts(orchestrator: Orchestrator, facts: FactQueue) -> NoReturn:
    """Write facts as they become durable, until cancelled."""
    while True:
        await facts.wait()
        write_lines(facts, until=await orchestrator.wait_durable())


def write_lines(facts: FactQueue, *, until: int | None = None) -> None:
    """Write the pending facts: all, or up to a sequence number."""
    for entry, encoded in facts.take(until=until):
        line = printable_json(fact_line(entry, encoded).decode())
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
