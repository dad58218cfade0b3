"""The command line: finds the command, and turns its errors into exit codes."""

import io
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from orchestrator.cli.command_table import COMMANDS, module_of
from orchestrator.cli.log_output import show_log
from orchestrator.cli.quiet_interrupt import end_quietly_on_interrupt
from orchestrator.version import VERSION

if TYPE_CHECKING:
    from cyclopts import App

INTRODUCTION = "Agents that delegate work to other agents, and the tree of their tasks."
ENDING = (
    "orchestrator COMMAND --help shows the options of a command, --version the version,"
    " --install-completion adds completion to your shell."
)
NO_MEMORY = (
    "there is no memory left; give the process more (see `ulimit -v`). The journal has every"
    " acknowledged result"
)
LITTLE_MEMORY = 512 * 2**20
"""The bytes below which a process is warned: JSON encoding ends it by a signal when memory is out
(msgspec 0.22)."""


def run_command(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # An agent's text may hold characters that this terminal cannot print.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        with show_log():
            return _run_or_help(arguments)
    except BrokenPipeError:
        # The reader of our output has left; without this, Python complains again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run_or_help(arguments: Sequence[str]) -> int:
    match arguments:
        case [] | ["--help" | "-h" | "help"]:
            print(help_page(shutil.get_terminal_size().columns), flush=True)
            return 0
        case ["--version"]:
            print(VERSION)
            return 0
        case ["help", *command]:
            return _run([*command, "--help"])
        case _:
            return _run(arguments)


def help_page(width: int) -> str:
    """Return the help of all commands, wrapped to a width; it imports no command."""
    width = min(width, 100)
    longest = max(len(name) for group in COMMANDS.values() for name in group)
    lines = ["Usage: orchestrator COMMAND", "", *textwrap.wrap(INTRODUCTION, width)]
    for title, group in COMMANDS.items():
        lines += ["", f"{title}:"]
        for name, sentence in group.items():
            begin = f"  {name:<{longest}}  "
            lines += textwrap.wrap(
                sentence, width, initial_indent=begin, subsequent_indent=" " * len(begin)
            )
    return "\n".join([*lines, "", *textwrap.wrap(ENDING, width)])


def _run(arguments: Sequence[str]) -> int:
    with end_quietly_on_interrupt():
        from cyclopts import CycloptsError, UnusedCliTokensError

        from orchestrator.agents import DefinitionError
        from orchestrator.cli.errors import CommandError
        from orchestrator.cli.exit_codes import FAILED, INTERRUPTED, USAGE
        from orchestrator.delegation import printable
        from orchestrator.ports.errors import OrchestratorError

        app = build_app()
        if any(arguments[0] in names for names in COMMANDS.values()):
            import_module(module_of(arguments[0]))
        _warn_of_little_memory()
    try:
        code: int | None = app(arguments, print_error=False, exit_on_error=False)
    except UnusedCliTokensError as exc:
        print(f"orchestrator: {_surplus(arguments[0], exc.unused_tokens or ())}", file=sys.stderr)
        return USAGE
    except (CommandError, OrchestratorError, DefinitionError, CycloptsError) as exc:
        print(f"orchestrator: {' '.join(printable(str(exc)).split())}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except (MemoryError, RuntimeError) as exc:
        if isinstance(exc, RuntimeError) and str(exc) != "can't start new thread":
            raise
        print(f"orchestrator: {NO_MEMORY}", file=sys.stderr)
        return FAILED
    except OSError as exc:
        where = "" if exc.filename is None else f"{printable(str(exc.filename))}: "
        print(f"orchestrator: {where}{exc.strerror or exc}", file=sys.stderr)
        return FAILED
    return code or 0


def _warn_of_little_memory() -> None:
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LITTLE_MEMORY:
        print(
            f"orchestrator: warning: the process has {limit // 2**20} MiB of memory (`ulimit -v`):"
            " a long text may end it without an error; give it 512 MiB",
            file=sys.stderr,
        )


def _surplus(command: str, tokens: Sequence[str]) -> str:
    """Return the error of arguments that a command does not take."""
    from orchestrator.delegation import printable

    listed = printable(shlex.join(tokens))
    return (
        f"{printable(command)} takes no further argument, and there is {listed}: quote a text with"
        f" blanks, or see `orchestrator {printable(command)} --help`"
    )


def build_app() -> "App":
    """Return all commands; each is imported when it is called."""
    from cyclopts import App, Parameter

    app = App(
        name="orchestrator",
        help=INTRODUCTION,
        version=VERSION,
        result_action="return_value",
        # An option that is off by default needs no other one that turns it off, nor a word on it.
        default_parameter=Parameter(negative=(), show_default=_shown_default),
    )
    # Its type does not describe the settings that it passes on.
    app.register_install_completion_command()  # pyright: ignore[reportUnknownMemberType]
    for commands in COMMANDS.values():
        for name in commands:
            app.command(f"{module_of(name)}:{name}", name=name)
    return app


def _shown_default(value: object) -> object:
    return None if value is False or value == "" else value
