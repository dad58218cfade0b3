"""What many commands share: options, and how they are begun and stopped."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Final

import trio
from cyclopts import Parameter

from orchestrator.cli.signals import GRACE_SECONDS, Stop, run_until_stopped
from orchestrator.cli.terminal.style import Progress
from orchestrator.runtime import default_journal

FAILED: Final = 1
USAGE: Final = 2

JournalOption = Annotated[
    Path | None,
    Parameter(
        help="The file that keeps all runs. By default it is in the user's state"
        " directory, or in ORCHESTRATOR_HOME."
    ),
]

ProgressOption = Annotated[
    Progress,
    Parameter(
        help="How to show what happens: live in a terminal, plain lines elsewhere (auto),"
        " or as asked for. json writes the facts of the journal to stdout, one a line, and"
        " nothing else."
    ),
]


def stoppable(
    work: Callable[[Stop], Awaitable[int | None]], grace: float = GRACE_SECONDS
) -> int:
    """Do something that signals stop in good order, and return its exit code."""
    return trio.run(run_until_stopped, work, grace)


def journal_of(named: Path | None) -> Path:
    """Return the file that is meant."""
    return default_journal(os.environ) if named is None else named
