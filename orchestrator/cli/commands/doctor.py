"""`orchestrator doctor`: check journals without changing them."""

import os
from typing import Final

from rich.text import Text

from orchestrator.agents.sandbox.detection import detect
from orchestrator.cli.exit_codes import FAILED, SUCCEEDED
from orchestrator.cli.journal_queries import require_journal, title_of
from orchestrator.cli.options import JournalOption, journals_of
from orchestrator.cli.sandbox_line import describe_sandbox
from orchestrator.cli.terminal.console import Terminal
from orchestrator.delegation import printable
from orchestrator.ports.journals import Journals, Level
from orchestrator.ports.settings import SANDBOX_VARIABLE

LEVEL_STYLES: Final = {
    Level.FINE: ("✓", "green"),
    Level.NOTE: ("·", "dim"),
    Level.WRONG: ("✗", "red"),
}


def doctor(*, journal: JournalOption = None) -> int:
    """Check that journals are whole, without changing them, and show the sandbox of this machine.

    Exits with 0 if all journals are whole, and with 1 if one is not.
    """
    journals = journals_of(journal)
    require_journal(journals)
    console = Terminal()
    wrong = sum(_check(journals, name, console) for name in journals.names())
    # The machine, and no part of a journal: a weaker one is no fault of that.
    held = describe_sandbox(detect(os.environ.get(SANDBOX_VARIABLE) or "auto"))
    console.print(Text(f"· {printable(held)}", style="dim"), soft_wrap=True)
    if wrong:
        console.print(
            Text(f"{wrong} of these {'is' if wrong == 1 else 'are'} wrong", style="bold red")
        )
        return FAILED
    console.print(Text("healthy", style="bold green"))
    return SUCCEEDED


def _check(journals: Journals, name: str, console: Terminal) -> int:
    """Print the findings in one journal, and return the number of problems."""
    title = title_of(journals, name)
    console.print(Text(f"journal {title}", style="bold"), soft_wrap=True)
    wrong = 0
    for finding in journals.store(name).check():
        glyph, style = LEVEL_STYLES[finding.level]
        wrong += finding.level is Level.WRONG
        line = Text(f"{glyph} ", style=style)
        text = " ".join(printable(finding.text).split())
        line.append(text, style="none" if wrong else "dim")
        console.print(line, soft_wrap=True)
    return wrong
