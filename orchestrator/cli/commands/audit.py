"""`orchestrator audit`: the actions over HTTP and through the control socket, with their times."""

import datetime as dt
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final

import attrs
import trio
from cyclopts import Parameter

from orchestrator.cli.errors import CommandError
from orchestrator.cli.exit_codes import FAILED, SUCCEEDED
from orchestrator.cli.journal_queries import parse_age, require_journal, title_of
from orchestrator.cli.options import JournalOption, journals_of
from orchestrator.cli.terminal.console import Terminal, print_table
from orchestrator.delegation import printable
from orchestrator.delegation.tree.safe_text import json_text
from orchestrator.ports.errors import JournalInUseError
from orchestrator.ports.journals import (
    CHECKPOINT,
    AuditEvent,
    AuditHead,
    AuditLog,
    AuditRow,
    Journals,
    JournalStore,
    key_actor,
    local_actor,
)

COLUMNS: Final = ("row", "time", "actor", "action", "target", "outcome", "peer")


def audit(
    *,
    since: str | None = None,
    key: str | None = None,
    json: bool = False,
    ndjson: bool = False,
    head: bool = False,
    anchor: Annotated[tuple[str, ...], Parameter(show_default=False, consume_multiple=True)] = (),
    prune: str | None = None,
    journal: JournalOption = None,
) -> int:
    """Show who did what and when, and check that no row was changed. Exits with 1 if one was.

    Each journal has a chain of its own.

    Args:
        since: Only rows that are newer than this: 12h, 30d, 2w.
        key: Only actions with the key of this name.
        json: Print one JSON array.
        ndjson: Print one JSON object per line.
        head: Print only the head of each chain, as JOURNAL:SEQ:HASH (SEQ:HASH for one journal).
            Keep it where the owner of the journal cannot write.
        anchor: A head that you kept: the chain must still contain it. Repeat it for several
            journals.
        prune: Delete the rows that are older than this, and put a checkpoint in their place. The
            journal must not be in use.
    """
    journals = journals_of(journal)
    require_journal(journals)
    names = journals.names()
    kept = _parse_anchors(anchor, names)
    if prune is not None:
        _prune(journals, before=time.time() - parse_age(prune))
        return SUCCEEDED
    from_ = -1.0 if since is None else time.time() - parse_age(since, "--since")
    actor = None if key is None else key_actor(key)
    logs = {name: _read(journals.store(name)) for name in names}
    if head:
        for name, log in logs.items():
            print(log.head if len(names) == 1 else f"{name}:{log.head}")
    else:
        shown = [
            _ShownRow(name if len(names) > 1 else "", row)
            for name, log in logs.items()
            for row in log.rows
            if row.at >= from_ and actor in {None, row.event.actor}
        ]
        if len(names) > 1:
            shown.sort(key=lambda it: it.row.at)
        show: Callable[[list[_ShownRow]], None] = _print_table
        if json or ndjson:
            show = _print_json if json else _print_lines
        show(shown)
    is_whole = True
    for name, log in logs.items():
        anchors: Sequence[AuditHead | None] = kept.get(name) or [None]
        for one in anchors:
            broken = log.find_break(anchor=one)
            if broken is not None:
                is_whole = False
                where = "" if len(names) == 1 else f" in {title_of(journals, name)}"
                print(
                    f"orchestrator: row {broken.seq} of the audit{where} {broken.problem}",
                    file=sys.stderr,
                )
                break
    return SUCCEEDED if is_whole else FAILED


@attrs.frozen
class _ShownRow:
    """A row, and the name of its journal if there are several."""

    journal: str
    row: AuditRow


def _read(store: JournalStore) -> AuditLog:
    with store.open_reader(verify=False) as reader:
        log = reader.audit()
        return AuditLog(rows=list(log.rows), pruned=log.pruned, head=log.head)


def _parse_anchors(texts: Sequence[str], names: Sequence[str]) -> Mapping[str, list[AuditHead]]:
    """Return the kept heads by journal; a head without a journal belongs to the first one."""
    found: dict[str, list[AuditHead]] = {}
    for text in texts:
        journal, _, rest = text.strip().partition(":")
        is_named = rest.count(":") == 1
        name = journal if is_named else names[0]
        if name not in names:
            raise CommandError(f"--anchor: there is no journal {journal!r}")
        try:
            head = AuditHead.parse(rest if is_named else text)
        except ValueError as exc:
            raise CommandError(f"--anchor: {exc}") from exc
        found.setdefault(name, []).append(head)
    return found


def _print_table(rows: list[_ShownRow]) -> None:
    journal = ["journal"] if any(it.journal for it in rows) else []
    print_table(Terminal(), (*COLUMNS, *journal), [_cells(it, journal) for it in rows])


def _cells(it: _ShownRow, journal: Sequence[str]) -> list[str]:
    row, event = it.row, it.row.event
    actor = event.actor
    if event.owner and key_actor(event.owner) != actor:
        actor = f"{actor} of {event.owner}"
    outcome = event.outcome
    if event.count != 1:
        outcome = f"{outcome} ({event.count:,} times)"
    cells = (
        str(row.seq),
        f"{dt.datetime.fromtimestamp(row.at, dt.UTC):%Y-%m-%d %H:%M:%SZ}",
        *(actor, event.action, event.target, outcome, event.peer),
        *([it.journal] if journal else []),
    )
    return [printable(cell) for cell in cells]


def _print_json(rows: list[_ShownRow]) -> None:
    print(json_text([_as_printed(row) for row in rows]))


def _print_lines(rows: list[_ShownRow]) -> None:
    for row in rows:
        print(json_text(_as_printed(row)))


def _as_printed(it: _ShownRow) -> dict[str, object]:
    # A damaged row may not be text; a terminal must survive control characters.
    return {
        name: printable(value).encode(errors="replace").decode()
        if isinstance(value, str)
        else value
        for name, value in {
            **it.row.as_dict(),
            **({"journal": it.journal} if it.journal else {}),
        }.items()
    }


def _prune(journals: Journals, *, before: float) -> None:
    event = AuditEvent(actor=local_actor(os.getuid()), action=CHECKPOINT)
    held: list[JournalInUseError] = []

    async def prune() -> int:
        await trio.lowlevel.checkpoint()
        deleted = 0
        for store in map(journals.store, journals.names()):
            try:
                deleted += await store.prune_audit(before=before, at=time.time(), event=event)
            except JournalInUseError as exc:
                held.append(exc)
        return deleted

    deleted = trio.run(prune)
    if deleted:
        print(f"deleted {deleted:,} rows of the audit; a checkpoint names the last one")
    elif not held:
        print("the audit has no rows that are older")
    # The rows of the other journals are deleted in any case.
    for error in held:
        raise error
