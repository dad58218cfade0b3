"""The journal as lines of JSON on standard output: each fact as it is kept, and nothing else.

A line is written when its fact is safe, so nobody reads here what a crash could take back.
"""

import sys
from typing import NoReturn

import msgspec

from delegation import Encoded
from delegation.events import Entry
from orchestrator.following import Facts
from orchestrator.runtime import Orchestrator


def line_of(entry: Entry, encoded: Encoded) -> str:
    """Return a fact as one line, without a line end."""
    line = {
        "seq": entry.seq,
        "at": entry.at,
        "session": entry.session,
        "kind": encoded.kind,
        "version": encoded.version,
        "body": msgspec.Raw(encoded.body),
    }
    return msgspec.json.encode(line).decode()


async def write_facts(orchestrator: Orchestrator, facts: Facts) -> NoReturn:
    """Write facts as they come, until cancelled."""
    while True:
        await facts.wait()
        write_lines(facts, until=await orchestrator.wait_kept())


def write_lines(facts: Facts, *, until: int | None = None) -> None:
    """Write the facts that nobody has written, all or until one of them."""
    for entry, encoded in facts.take(until=until):
        sys.stdout.write(f"{line_of(entry, encoded)}\n")
    sys.stdout.flush()
