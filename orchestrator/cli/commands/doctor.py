"""Looking at a journal from all sides: `orchestrator doctor`."""

from pathlib import Path
from typing import Final

from rich.text import Text

from delegation import printable
from orchestrator.cli.journal_queries import require_journal
from orchestrator.cli.terminal.console import Terminal
from orchestrator.journal.sqlite.check import Level, check_journal

HEALTHY: Final = 0
WRONG: Final = 1
GLYPHS: Final = {
    Level.FINE: ("✓", "green"),
    Level.NOTE: ("·", "dim"),
    Level.WRONG: ("✗", "red"),
}


def show_health(journal: Path, console: Terminal) -> int:
    """Print what is found, a line each, and the verdict; return the exit code."""
    require_journal(journal)
    console.print(Text(f"journal {journal}", style="bold"), soft_wrap=True)
    wrong = 0
    for finding in check_journal(journal):
        glyph, style = GLYPHS[finding.level]
        wrong += finding.level is Level.WRONG
        line = Text(f"{glyph} ", style=style)
        text = " ".join(printable(finding.text).split())
        line.append(text, style="none" if wrong else "dim")
        console.print(line, soft_wrap=True)
    if wrong:
        verdict = Text(f"{wrong} of these are wrong", style="bold red")
    else:
        verdict = Text("healthy", style="bold green")
    console.print(verdict)
    return WRONG if wrong else HEALTHY
