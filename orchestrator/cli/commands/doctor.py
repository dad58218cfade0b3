"""`orchestrator doctor`: check a journal without changing it."""

from typing import Final

from rich.text import Text

from delegation import printable
from orchestrator.cli.exit_codes import FAILED, SUCCEEDED
from orchestrator.cli.journal_queries import require_journal
from orchestrator.cli.options import JournalOption, journal_path
from orchestrator.cli.terminal.console import Terminal
from orchestrator.journal.backends import store_at
from orchestrator.journal.store import Level

LEVEL_STYLES: Final = {
    Level.FINE: ("✓", "green"),
    Level.NOTE: ("·", "dim"),
    Level.WRONG: ("✗", "red"),
}


def doctor(*, journal: JournalOption = None) -> int:
    """Look whether a journal is whole, without changing it. 0 is healthy, 1 is not."""
    path = journal_path(journal)
    require_journal(path)
    console = Terminal()
    console.print(Text(f"journal {path}", style="bold"), soft_wrap=True)
    wrong = 0
    for finding in store_at(path).check():
        glyph, style = LEVEL_STYLES[finding.level]
        wrong += finding.level is Level.WRONG
        line = Text(f"{glyph} ", style=style)
        text = " ".join(printable(finding.text).split())
        line.append(text, style="none" if wrong else "dim")
        console.print(line, soft_wrap=True)
    if wrong:
        console.print(Text(f"{wrong} of these are wrong", style="bold red"))
        return FAILED
    console.print(Text("healthy", style="bold green"))
    return SUCCEEDED
