"""The journal as lines of JSON on standard output: each fact as it is kept, and nothing else.

A line is written when its fact is safe, so nobody reads here what a crash could take back.
"""

import sys
from typing import NoReturn

from orchestrator.journal.subscriptions import FactQueue, fact_line
from orchestrator.runtime import Orchestrator


async def write_facts(orchestrator: Orchestrator, facts: FactQueue) -> NoReturn:
    """Write facts as they come, until cancelled."""
    while True:
        await facts.wait()
        write_lines(facts, until=await orchestrator.wait_durable())


def write_lines(facts: FactQueue, *, until: int | None = None) -> None:
    """Write the facts that nobody has written, all or until one of them."""
    for entry, encoded in facts.take(until=until):
        sys.stdout.write(f"{fact_line(entry, encoded).decode()}\n")
    sys.stdout.flush()
