"""`orchestrator runs`: list the runs of all journals, or prune old ones."""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import trio

from orchestrator.cli import journal_queries
from orchestrator.cli.errors import CommandError
from orchestrator.cli.options import JournalOption, journals_of
from orchestrator.cli.terminal.console import Terminal, command, print_hint
from orchestrator.cli.terminal.run_list import print_runs
from orchestrator.delegation import SessionId
from orchestrator.ports.errors import JournalInUseError
from orchestrator.ports.journals import AuditEvent, Journals, JournalStore, Pruned, local_actor

NEWEST: Final = 20
"""The number of runs that are listed without `--all`."""


def runs(
    *,
    all: bool = False,  # noqa: A002 (the option's name)
    prune: str | None = None,
    delete: str | None = None,
    dry_run: bool = False,
    journal: JournalOption = None,
) -> None:
    """List the newest runs, the newest last; or delete old ones from the journals.

    Args:
        all: List all of them.
        prune: Delete the runs that have ended and have no fact newer than this: 12h, 30d, 2w.
        delete: Delete this run, whatever its age, if it is idle or its facts are damaged.
        dry_run: Only print which runs would be deleted.
    """
    journals = journals_of(journal)
    if prune is not None:
        _prune_runs(
            journals, before=time.time() - journal_queries.parse_age(prune), dry_run=dry_run
        )
    elif delete is not None:
        _delete_run(journals, SessionId(delete))
    elif dry_run:
        raise CommandError("--dry-run goes with --prune")
    else:
        _list_runs(journals, newest=None if all else NEWEST, journal=journal)


def _list_runs(journals: Journals, *, newest: int | None, journal: str | None) -> None:
    runs = journal_queries.read_runs(journals, newest=newest)
    if runs.unreadable and not (runs.shown or runs.damaged):
        raise runs.unreadable[0]
    print_runs(runs, Terminal())
    shown = len(runs.shown) + len(runs.damaged)
    if shown < runs.count:
        again = command("runs", "--all", journal=journal)
        hint = f"the newest {shown} of {runs.count:,}; all: {again}"
        print_hint(Terminal(stderr=True), hint)
    interrupted = [session.id for session in runs.shown if session.awaits_resume]
    if interrupted:
        again = command("resume", "FILE", interrupted[-1], journal=journal)
        were = "was" if len(interrupted) == 1 else "were"
        hint = f"{len(interrupted)} {were} interrupted; to resume one: {again}"
        print_hint(Terminal(stderr=True), hint)
    for error in (*runs.unreadable, *runs.damaged.values()):
        raise error


def _prune_runs(journals: Journals, *, before: float, dry_run: bool) -> None:
    journal_queries.require_journal(journals)
    if dry_run:
        stores = map(journals.store, journals.names())
        expired = [store.preview_prune(before=before) for store in stores]
        print(f"would prune {_describe_pruned(_sum(expired))}")
        return
    held: list[JournalInUseError] = []

    async def prune() -> Pruned:
        await trio.lowlevel.checkpoint()
        pruned: list[Pruned] = []
        for store in map(journals.store, journals.names()):
            try:
                pruned.append(await _prune_one(store, before))
            except JournalInUseError as exc:
                held.append(exc)
        return _sum(pruned)

    pruned = trio.run(prune)
    if len(held) < len(journals.names()):
        _print_pruned(pruned)
    # The others are pruned in any case.
    for error in held:
        raise error


async def _prune_one(store: JournalStore, before: float) -> Pruned:
    # Imported late: a list of runs needs no process that runs agents.
    from orchestrator.ports.control import Prune, connect_control

    if store.file is not None:
        async with connect_control(store.file) as writer:
            if writer is not None:
                return _received(await writer.request(Prune(before)))
    return await store.prune(before=before, audit=_audited("prune"))


def _delete_run(journals: Journals, run: SessionId) -> None:
    journal_queries.require_journal(journals)
    name = journals.find(run)
    if name is None:
        raise CommandError(f"there is no run {run!r}; see: orchestrator runs")
    store = journals.store(name)
    # Imported late: a list of runs needs no process that runs agents.
    from orchestrator.ports.control import DeleteRun, connect_control

    async def delete() -> Pruned:
        if store.file is not None:
            async with connect_control(store.file) as writer:
                if writer is not None:
                    return _received(await writer.request(DeleteRun(run)))
        journal_queries.require_deletable(journals, name, run)
        return await store.prune(before=0, only=run, audit=_audited("delete"))

    _print_pruned(trio.run(delete))


def _sum(pruned: Sequence[Pruned]) -> Pruned:
    return Pruned(
        runs=sum(it.runs for it in pruned),
        entries=sum(it.entries for it in pruned),
        active=sum(it.active for it in pruned),
        freed=sum(it.freed for it in pruned),
    )


def _audited(action: str) -> tuple[float, AuditEvent]:
    """Return an audit event of this process, and its time."""
    return time.time(), AuditEvent(
        actor=local_actor(os.getuid()), action=action, peer=f"pid {os.getpid()}"
    )


def _received(response: Mapping[str, Any]) -> Pruned:
    return Pruned(
        runs=response["runs"],
        entries=response["entries"],
        active=response["active"],
        freed=response["freed"],
    )


def _print_pruned(pruned: Pruned) -> None:
    megabytes = f"{pruned.freed / 1_000_000:,.1f} MB"
    print(f"pruned {_describe_pruned(pruned)}; {megabytes} are free again")


def _describe_pruned(pruned: Pruned) -> str:
    counts = f"{pruned.runs:,} runs ({pruned.entries:,} entries)"
    if pruned.active:
        return f"{counts}, and none of the {pruned.active:,} that are not idle"
    return counts
