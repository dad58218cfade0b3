"""The table of commands, and the exit code of each: see `exit_codes`."""

import io
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from cyclopts import App, CycloptsError

from agents import DefinitionError
from delegation import printable
from orchestrator.cli.commands.ask import ask
from orchestrator.cli.commands.audit import audit
from orchestrator.cli.commands.chat import chat
from orchestrator.cli.commands.demo import demo
from orchestrator.cli.commands.doctor import doctor
from orchestrator.cli.commands.export import export
from orchestrator.cli.commands.gateway import gateway
from orchestrator.cli.commands.jobs import jobs
from orchestrator.cli.commands.keys import keys
from orchestrator.cli.commands.mcp import mcp
from orchestrator.cli.commands.models import models
from orchestrator.cli.commands.replay import replay
from orchestrator.cli.commands.report import report
from orchestrator.cli.commands.resume import resume
from orchestrator.cli.commands.run import run
from orchestrator.cli.commands.runs import runs
from orchestrator.cli.commands.schedule import schedule
from orchestrator.cli.commands.serve import serve
from orchestrator.cli.commands.show import show
from orchestrator.cli.commands.simulate import simulate
from orchestrator.cli.commands.tree import tree
from orchestrator.cli.commands.ui import ui
from orchestrator.cli.commands.watch import watch
from orchestrator.cli.commands.worker import worker
from orchestrator.cli.commands.workers import workers
from orchestrator.cli.errors import CommandError
from orchestrator.cli.exit_codes import FAILED, INTERRUPTED, USAGE
from orchestrator.errors import OrchestratorError

app = App(
    name="orchestrator",
    help="Agents that delegate work to other agents, and the tree of their tasks.",
    version=version("delegation-orchestrator"),
    result_action="return_value",
)

for _command in (
    demo,
    run,
    resume,
    chat,
    ui,
    serve,
    mcp,
    gateway,
    schedule,
    jobs,
    worker,
    workers,
    keys,
    runs,
    watch,
    doctor,
    audit,
    tree,
    show,
    export,
    report,
    replay,
    simulate,
    models,
    ask,
):
    app.command(_command)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # An agent's text may hold characters that this terminal cannot print.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        code: int | None = app(arguments, print_error=False, exit_on_error=False)
    except (CommandError, OrchestratorError, DefinitionError, CycloptsError) as exc:
        print(f"orchestrator: {' '.join(printable(str(exc)).split())}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has left; without this, Python complains again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as exc:
        where = "" if exc.filename is None else f"{printable(str(exc.filename))}: "
        print(f"orchestrator: {where}{exc.strerror or exc}", file=sys.stderr)
        return FAILED
    return code or 0
