"""The commands, and how they end: 0 it went well, 1 the run did not, 2 the user erred.

130 is stopped by Ctrl-C before its end, 143 by SIGTERM.
"""

import io
import math
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final, Literal

import trio
from cyclopts import App, CycloptsError, Parameter

from agents import DefinitionError
from agents.models.named import model_named
from orchestrator.cli.agent_file import load_agent
from orchestrator.cli.chat import chat_in_terminal
from orchestrator.cli.demo import companion
from orchestrator.cli.doctor import show_health
from orchestrator.cli.errors import CommandError
from orchestrator.cli.exporting import Format, export_run
from orchestrator.cli.listing import prune_runs, show_runs
from orchestrator.cli.looks import Progress
from orchestrator.cli.models import ask_model, print_providers
from orchestrator.cli.running import run_goal, show_demo, show_local_demo
from orchestrator.cli.showing import Shape, show_task, show_tree
from orchestrator.cli.stopping import Stop, until_stopped
from orchestrator.cli.terminal import Terminal
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

ProgressOption = Annotated[
    Progress,
    Parameter(
        help="How to show what happens: live in a terminal, plain lines elsewhere (auto),"
        " or as asked for. json writes the facts of the journal to stdout, one a line, and"
        " nothing else."
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
    progress: ProgressOption = "auto",
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
    console = Terminal(stderr=progress == "json")
    if local:
        model = model_named("local:smollm2", os.environ)
        return _stoppable(
            lambda stop: show_local_demo(
                console, model, stop, journal=journal, progress=progress
            )
        )
    return _stoppable(
        lambda stop: show_demo(
            console,
            stop,
            stateless=stateless,
            seconds=seconds,
            journal=journal,
            progress=progress,
        )
    )


@app.command
def run(
    file: str,
    goal: str,
    /,
    *,
    quiet: bool = False,
    progress: ProgressOption = "auto",
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
    return _stoppable(
        lambda stop: run_goal(
            agent, goal, stop, quiet=quiet, journal=journal, progress=progress
        )
    )


@app.command
def chat(
    file: str | None = None,
    /,
    *,
    session: str | None = None,
    progress: ProgressOption = "none",
    journal: JournalOption = None,
) -> int:
    """Talk to an agent. What it has running in the background comes back as news.

    Args:
        file: A Python file that defines the agent, FILE or FILE:NAME; without one, somebody
            scripted answers.
        session: The id of an earlier chat, to go on with it.
    """
    agent = companion(seconds=0.4) if file is None else load_agent(file)
    return _stoppable(
        lambda stop: chat_in_terminal(
            agent,
            Terminal(stderr=progress == "json"),
            stop,
            file=file,
            session=session,
            journal=journal,
            progress=progress,
        )
    )


@app.command
def runs(
    *,
    all: bool = False,  # noqa: A002 (the option's name)
    prune: str | None = None,
    dry_run: bool = False,
    journal: JournalOption = None,
) -> None:
    """List the newest runs, the newest last; or take old ones out of the journal.

    Args:
        all: List all of them.
        prune: Delete the runs that have ended, and of which nothing was heard for so long: 12h,
            30d, 2w.
        dry_run: Only say what would be deleted.
    """
    path = _journal(journal)
    if prune is not None:
        prune_runs(path, prune, dry_run=dry_run, now=time.time())
    elif dry_run:
        raise CommandError("--dry-run goes with --prune")
    else:
        show_runs(path, every=all, journal=journal)


@app.command
def watch(run: str | None = None, /, *, journal: JournalOption = None) -> int:
    """Look at a run from another terminal while it grows, and act on it; or at one that ended.

    Keys: arrows move and fold, Enter shows what a task says and does, x cancels it with all below
    it, m tells it something, a and d answer what waits for approval, f goes to the next that
    failed, w to the next that waits, / searches and n searches on, q leaves.

    Args:
        run: The id of the run, or how it begins; by default the newest one.
    """
    # Imported late: nobody else needs a terminal of their own.
    from orchestrator.cli.watching import watch_run

    return trio.run(watch_run, _journal(journal), run)


@app.command
def doctor(*, journal: JournalOption = None) -> int:
    """Look whether a journal is whole, without changing it. 0 is healthy, 1 is not."""
    return show_health(_journal(journal), Terminal())


@app.command
def tree(
    run: str | None = None,
    /,
    *,
    failed: bool = False,
    depth: int | None = None,
    rows: int | None = None,
    json: bool = False,
    format: Literal["text", "mermaid"] = "text",  # noqa: A002 (the option's name)
    journal: JournalOption = None,
) -> None:
    """Show the tree of a run, from the journal.

    Args:
        run: The id of the run, or how it begins; by default the newest one.
        failed: Only the tasks that failed, and those above them.
        depth: How many levels below the root; what is deeper is counted.
        rows: Fold it into so many lines.
        json: The whole graph as node-link JSON.
        format: Text for people, or a Mermaid flowchart; see also: export.
    """
    shape = Shape(failed=failed, depth=depth, rows=rows)
    path = _journal(journal)
    if json or format == "mermaid":
        shape.require_whole()
        export_run(path, run, wanted="json" if json else "mermaid", output=None)
    else:
        show_tree(path, run, shape)


@app.command
def show(
    task: str,
    /,
    *,
    run: str | None = None,
    json: bool = False,
    journal: JournalOption = None,
) -> None:
    """Show a task: its goal, how it stands, what it used, what it said and did, who it asked.

    Args:
        task: Its id, or how that begins; or its path, such as '/editor/researcher[2]'.
        run: The run in which to look; by default the one that has the task, for a path the
            newest.
        json: All of it as JSON.
    """
    show_task(_journal(journal), task, run, as_json=json)


@app.command
def export(
    run: str | None = None,
    /,
    *,
    format: Format,  # noqa: A002 (the option's name)
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    journal: JournalOption = None,
) -> None:
    """Write the tree of a run for another program.

    Args:
        run: The id of the run, or how it begins; by default the newest one.
        format: text: a line a task. mermaid, dot, svg: a chart of the folded tree, at most 120
            boxes. graphml, json: the whole graph, as networkx reads it. trace: for Perfetto and
            speedscope. html: the report, without transcripts.
        output: The file; by default stdout. One that is there is replaced.
    """
    export_run(_journal(journal), run, wanted=format, output=output)


@app.command
def report(
    run: str | None = None,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    transcripts: Literal["none", "failed", "all"] = "none",
    journal: JournalOption = None,
) -> None:
    """Write a run as one HTML file that needs no network, to look at and to send around.

    Args:
        run: The id of the run, or how it begins; by default the newest one.
        output: The file; by default run-ID.html in this directory. One that is there is
            replaced.
        transcripts: Whose go with it: what agents read and wrote may not be for everybody.
    """
    # Imported late: nobody else needs it.
    from orchestrator.cli.reporting import write_report

    write_report(_journal(journal), run, output=output, transcripts=transcripts)


@app.command
def replay(
    run: str | None = None,
    /,
    *,
    file: str,
    from_: Annotated[str | None, Parameter(name="--from")] = None,
    quiet: bool = False,
    journal: JournalOption = None,
) -> int:
    """Do a run again from what the journal has of it: no model is asked, no tool is run.

    0 is the same, 1 is not: then the first difference is shown.

    Args:
        run: The id of the run, or how it begins; by default the newest one.
        file: The Python file that defines its agent: FILE, or FILE:NAME if it defines several.
        from_: Go on live from where this task was asked for, in a run of its own: the id of a
            task, or its path.
        quiet: With --from, show the answer only.
    """
    # Imported late: nobody else needs a clock that jumps.
    from orchestrator.cli.replaying import fork_from, show_replay

    agent = load_agent(file)
    if from_ is None:
        return show_replay(agent, _journal(journal), run, journal=journal)
    task = from_
    return _stoppable(
        lambda stop: fork_from(
            agent, _journal(journal), run, stop, task=task, quiet=quiet
        )
    )


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


def _stoppable(work: Callable[[Stop], Awaitable[int | None]]) -> int:
    return trio.run(until_stopped, work)


def _journal(named: Path | None) -> Path:
    return default_journal(os.environ) if named is None else named
