"""`orchestrator workers`: list the workers, their work, and the calls that wait for a worker."""

import sys
from collections import Counter
from collections.abc import Sequence

import attrs
import trio
from rich.text import Text

from orchestrator.agents import Transcript, unanswered_calls
from orchestrator.backends import journals_at
from orchestrator.cli.commands import worker
from orchestrator.cli.terminal.console import Terminal, print_table
from orchestrator.cli.terminal.style import format_seconds
from orchestrator.delegation import printable
from orchestrator.delegation.events import CallPlaced
from orchestrator.ports.errors import JournalError
from orchestrator.ports.journals import fold_entries
from orchestrator.products.cluster.work import WorkerSeen


@attrs.frozen
class LentCall:
    """A lent call or turn that waits for a worker or runs at one."""

    path: str
    tool: str
    placed: CallPlaced


def workers(*, journal: worker.DatabaseOption = None, queue: worker.QueueOption = "absurd") -> int:
    """List the workers, their work, and the calls that wait for a worker.

    Exits with 0, and with 1 if a call waits at a place without a worker.
    """
    address = worker.require_database(journal)
    seen = trio.run(_seen, address, queue)
    lent = _lent_calls(address)
    console = Terminal()
    _print_workers(seen, console)
    _print_calls(lent, console)
    present = {it.beat.place for it in seen if it.alive}
    return int(any(not it.placed.execution and it.placed.place not in present for it in lent))


async def _seen(address: str, queue: str) -> Sequence[WorkerSeen]:
    async with worker.open_exchange_at(address, queue) as exchange:
        return await exchange.presence.workers()


def _lent_calls(address: str) -> Sequence[LentCall]:
    """Return the open lent calls of all journals; the waiting ones come first."""
    journals = journals_at(address)
    found: list[LentCall] = []
    for name in journals.names():
        try:
            with journals.store(name).open_reader(verify=False) as reader:
                for session in reader.active_sessions():
                    ledger = fold_entries(reader.entries(session), name)
                    found += [
                        LentCall(task.path, _tool_of(task.transcript, placed), placed)
                        for task in ledger.tasks.values()
                        for placed in task.placed.values()
                        if placed.execution or task.awaits_worker
                    ]
        except JournalError as exc:
            print(f"orchestrator: {printable(str(exc))}", file=sys.stderr)
    return sorted(found, key=lambda it: bool(it.placed.execution))


def _tool_of(transcript: Transcript, placed: CallPlaced) -> str:
    if placed.turn:
        return "its turn"
    names = {call.id: call.name for call in unanswered_calls(transcript)}
    return names.get(placed.call, "a tool")


def _print_workers(seen: Sequence[WorkerSeen], console: Terminal) -> None:
    if not seen:
        console.print(Text("no workers: orchestrator worker FILE --place ...", "dim"))
        return
    headings = ("worker", "place", "runs", "version", "heard of")
    ordered = sorted(seen, key=lambda it: (it.beat.place, it.beat.worker))
    print_table(console, headings, map(_cells, ordered), wrapped=headings)


def _cells(it: WorkerSeen) -> Sequence[str | Text]:
    beat, heard = it.beat, f"{format_seconds(it.silent)} ago"
    return (
        *(printable(beat.worker), printable(beat.place)),
        f"{len(beat.executions)} of {beat.slots}",
        printable(beat.version),
        Text(heard if it.alive else f"{heard}: it is gone", "" if it.alive else "red"),
    )


def _print_calls(lent: Sequence[LentCall], console: Terminal) -> None:
    for it in lent:
        where = (
            f"runs at {it.placed.place!r}, on worker {it.placed.worker}"
            if it.placed.execution
            else f"waits for a worker at {it.placed.place!r}"
        )
        wants = f" with version {it.placed.wants}" if it.placed.wants else ""
        line = f"{it.path}: {it.tool} {where}{wants}"
        console.print(Text(printable(line), "" if it.placed.execution else "yellow"))
    waiting = Counter(it.placed.place for it in lent if not it.placed.execution)
    for place, count in waiting.items():
        console.print(Text(f"{count} waiting at {place!r}", "bold yellow"))
