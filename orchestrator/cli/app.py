"""The commands, and how they end: 0 it went well, 1 the run did not, 2 the user erred.

A run that was over budget, out of time or cancelled has a code of its own: `cli/report.py`.
130 is stopped by Ctrl-C before its end, 143 by SIGTERM.
"""

import io
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

from cyclopts import App, CycloptsError

from agents import DefinitionError
from delegation import printable
from orchestrator.cli.commands import doing, looking
from orchestrator.cli.commands import serve as serving
from orchestrator.cli.errors import CommandError
from orchestrator.cli.options import FAILED, USAGE
from orchestrator.errors import OrchestratorError

INTERRUPTED: Final = 130

app = App(
    name="orchestrator",
    help="Agents that hand work on, and the tree of who asked whom for what.",
    version=version("delegation-orchestrator"),
    result_action="return_value",
)


for _command in (
    doing.demo,
    doing.run,
    doing.chat,
    serving.serve,
    looking.runs,
    looking.watch,
    looking.doctor,
    looking.tree,
    looking.show,
    looking.export,
    looking.report,
    doing.replay,
    doing.simulate,
    doing.models,
    doing.ask,
):
    app.command(_command)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # What an agent says may hold characters that this terminal cannot show.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        code: int | None = app(arguments, print_error=False, exit_on_error=False)
    except (CommandError, OrchestratorError, DefinitionError, CycloptsError) as exc:
        print(f"orchestrator: {' '.join(str(exc).split())}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has left; Python would complain once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as exc:
        where = "" if exc.filename is None else f"{printable(str(exc.filename))}: "
        print(f"orchestrator: {where}{exc.strerror or exc}", file=sys.stderr)
        return FAILED
    return code or 0
