"""The commands, and how they end: 0 it went well, 1 the run did not, 2 the user erred."""

import datetime as dt
import io
import math
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final, Literal

import trio
from cyclopts import App, CycloptsError, Parameter
from rich.table import Table
from rich.text import Text

from agents import DefinitionError
from agents.models.named import model_named
from delegation import SessionRecord, one_line, usd
from orchestrator.cli.agent_file import load_agent
from orchestrator.cli.chat import chat_in_terminal
from orchestrator.cli.demo import companion
from orchestrator.cli.errors import CommandError
from orchestrator.cli.models import ask_model, print_providers
from orchestrator.cli.past import find_run, read_ledger
from orchestrator.cli.running import run_goal, show_demo, show_local_demo
from orchestrator.cli.terminal import Terminal
from orchestrator.cli.view import print_reasons, print_tree
from orchestrator.errors import OrchestratorError
from orchestrator.runtime import default_journal

FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130

JournalOption = Annotated[
    Path | None,
    Parameter(
        help="The file that keeps all runs. By default it is in the user's state"
        " directory, or in ORCHESTRATOR_HOME."
    ),
]

app = App(
    name="orchestrator",
    help="Agents that hand work on, and the tree of who asked whom for what.",
    version=version("delegation-orchestrator"),
    result_action="return_value",
)


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
        print(f"orchestrator: {exc.strerror or exc}", file=sys.stderr)
        return FAILED
    return code or 0


@app.command
def demo(
    *,
    stateless: bool = False,
    local: bool = False,
    seconds: float = 0.8,
    journal: JournalOption = None,
) -> int:
    """Watch an editor delegate to researchers: no key, no server.

    Args:
        stateless: Ask through a session that cannot be told anything later: all is joined.
        local: Use a real model, small and silly, that runs on this machine.
        seconds: How long a scripted model takes for an answer.
    """
    if not 0 <= seconds < math.inf:
        raise CommandError(f"--seconds is {seconds}; it must be 0 or more")
    if local:
        model = model_named("local:smollm2", os.environ)
        return trio.run(lambda: show_local_demo(Terminal(), model, journal=journal))
    return trio.run(
        lambda: show_demo(
            Terminal(), stateless=stateless, seconds=seconds, journal=journal
        )
    )


@app.command
def run(
    file: str,
    goal: str,
    /,
    *,
    quiet: bool = False,
    journal: JournalOption = None,
) -> int:
    """Run an agent on a goal. The answer goes to stdout, the tree to stderr.

    Args:
        file: A Python file that defines the agent: FILE, or FILE:NAME if it defines several.
        goal: What the agent is to do.
        quiet: Show the answer only.
    """
    # The file may be anything, so it runs before the event loop does.
    agent = load_agent(file)
    return trio.run(lambda: run_goal(agent, goal, quiet=quiet, journal=journal))


@app.command
def chat(
    file: str | None = None,
    /,
    *,
    session: str | None = None,
    journal: JournalOption = None,
) -> None:
    """Talk to an agent. What it has running in the background comes back as news.

    Args:
        file: A Python file that defines the agent, FILE or FILE:NAME; without one, somebody
            scripted answers.
        session: The id of an earlier chat, to go on with it.
    """
    agent = companion(seconds=0.4) if file is None else load_agent(file)
    trio.run(
        lambda: chat_in_terminal(
            agent, Terminal(), file=file, session=session, journal=journal
        )
    )


@app.command
def runs(*, journal: JournalOption = None) -> None:
    """List all runs, the newest last."""
    ledger = read_ledger(_journal(journal))
    console = Terminal()
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("run", no_wrap=True, min_width=12)
    table.add_column("began", no_wrap=True)
    table.add_column("agent", no_wrap=True)
    table.add_column("status", no_wrap=True, min_width=9)
    for heading in ("tasks", "tokens", "cost"):
        table.add_column(heading, no_wrap=True)
    table.add_column("goal", no_wrap=True, overflow="ellipsis")
    for session in ledger.sessions.values():
        table.add_row(*map(Text, _summary(session)))
    if not console.is_terminal:
        # A file or a pipe has no width; a line must not be cut for it.
        console.width = 1000
    console.print(table)


@app.command
def tree(
    run: str | None = None,
    /,
    *,
    format: Literal["text", "mermaid"] = "text",  # noqa: A002 (the option's name)
    journal: JournalOption = None,
) -> None:
    """Show the tree of a run, from the journal.

    Args:
        run: The id of the run, or how it begins; by default the newest one.
        format: Text for people, or a Mermaid flowchart.
    """
    path = _journal(journal)
    session = find_run(read_ledger(path), run, path)
    if format == "mermaid":
        print(session.tree.to_mermaid())
        return
    console = Terminal()
    console.print(Text(f"run {session.id}", style="bold"))
    print_tree(session.tree, console)
    print_reasons(session.tree, console)


@app.command
def models() -> None:
    """List whose models can be named, and what each needs: a key, an extra."""
    print_providers(Terminal(), os.environ)


@app.command
def ask(model: str, question: str, /, *, reasoning: bool = False) -> int:
    """Ask a model one question. The answer goes to stdout as it comes, its cost to stderr.

    Args:
        model: Its name, such as openai:gpt-5-mini; with 'a | b', b is asked where a fails.
        question: What to ask.
        reasoning: Show what the model thinks too, on stderr.
    """
    return trio.run(
        lambda: ask_model(model, question, reasoning=reasoning, environ=os.environ)
    )


def _journal(named: Path | None) -> Path:
    return default_journal(os.environ) if named is None else named


def _summary(session: SessionRecord) -> tuple[str, ...]:
    node = session.tree[session.root.id]
    began = dt.datetime.fromtimestamp(node["requested"]).astimezone()
    return (
        session.id,
        f"{began:%Y-%m-%d %H:%M}",
        node["agent"],
        node["status"],
        str(len(session.tree)),
        f"{session.tree.total.tokens:,}",
        usd(session.tree.total),
        one_line(node["goal"]),
    )
