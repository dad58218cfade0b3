"""`orchestrator run`: run an agent on a goal, and show the tree while it grows."""

import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
import msgspec
from cyclopts import Parameter

from orchestrator.agents import Agent, Usage
from orchestrator.cli import options
from orchestrator.cli.agent_file import load_agent
from orchestrator.cli.errors import CommandError
from orchestrator.cli.exit_codes import ENDING_CODES
from orchestrator.cli.exposed_journal import warn_of_exposed_journal
from orchestrator.cli.progress.display import open_display
from orchestrator.cli.progress.live_tree import shown_tree
from orchestrator.cli.sandbox_line import SandboxOption, choose_sandbox
from orchestrator.cli.signals import Stop, run_stoppable
from orchestrator.cli.terminal.approvals import is_attended
from orchestrator.cli.terminal.console import Terminal, command, print_hint
from orchestrator.cli.terminal.tree_table import print_ended
from orchestrator.cli.trust import TrustOption
from orchestrator.composition import RunKind, open_orchestrator
from orchestrator.delegation import Outcome, SessionId, TaskId, Tree, printable
from orchestrator.delegation.tree.safe_text import printable_json
from orchestrator.ports.sessions import OnChange, Orchestrator, OtherJournals, Run, budget, goal_key
from orchestrator.ports.settings import Machine


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class ShownRun:
    """How a command shows a run, and where it runs."""

    json: bool = False
    """Print one JSON document instead of the answer: outcome, output, usage, tree."""
    quiet: bool = False
    """Print only the answer."""
    progress: options.ProgressOption = "auto"
    journal: options.JournalOption = None
    sandbox: SandboxOption = None
    trust: TrustOption = False

    def require_one_document(self) -> None:
        """Refuse two kinds of JSON on stdout."""
        if self.json and self.progress == "json":
            raise CommandError(
                "--json is one document when it has ended, and --progress=json a line for each"
                " fact: say which of them stdout is for"
            )


SHOWN: Final = ShownRun()


def run(
    file: options.AnyAgentFile,
    goal: str,
    /,
    *,
    attach: options.AttachOption = (),
    instructions: str | None = None,
    model: options.ModelOption = None,
    limits: options.BlockBudgetOption = None,
    resume_on_crash: bool = False,
    accept_changes: options.AcceptChangesOption = False,
    shown: ShownRun = SHOWN,
) -> int:
    """Run an agent or a pipeline on a goal. The answer goes to stdout, the tree to stderr.

    Exits with 0 if it succeeded, 1 if it failed, 3 if it was over budget, 4 if it ran out of time
    and 5 if it was cancelled; with 2 if the command is wrong.

    Args:
        goal: The goal of the agent; JSON for a pipeline that does not take text.
        instructions: Instructions for this run, in addition to the agent's own.
        resume_on_crash: Continue a run of the same agent and goal that was started with this option
            and interrupted by a crash: for commands that are repeated until they succeed.
    """
    if accept_changes and not resume_on_crash:
        raise CommandError("--accept-changes goes with --resume-on-crash")
    if not goal.strip():
        raise CommandError(
            "the goal is empty: give the agent a task, such as 'Compare the three offers'"
        )
    # The file may run any code, so it is loaded before the event loop starts.
    agent = options.with_model(load_agent(file, model=model, trust=shown.trust), model)
    agent = options.with_instructions(agent, instructions)
    parts = options.parts_of(agent, attach)
    shown.require_one_document()
    interrupted: SessionId | None = None
    if resume_on_crash:
        found = OtherJournals(options.journals_of(shown.journal)).find_interrupted(
            goal_key(agent, goal)
        )
        interrupted = None if found is None else found.id

    async def begin(orchestrator: Orchestrator) -> Run[Any]:
        if interrupted is not None:
            return await orchestrator.resume(agent, interrupted)
        if limits is None:
            return await orchestrator.run(agent, goal, *parts, attended=is_attended())
        with budget(**limits.arguments()):
            return await orchestrator.run(agent, goal, *parts, attended=is_attended())

    return run_stoppable(
        lambda stop: show_run(
            agent,
            begin,
            stop,
            shown,
            run=interrupted,
            runs="durable" if resume_on_crash else "new",
            on_change=options.on_change_of(accept_changes=accept_changes),
        )
    )


async def show_run(
    agent: Agent[Any],
    begin: Callable[[Orchestrator], Awaitable[Run[Any]]],
    stop: Stop,
    shown: ShownRun,
    *,
    run: SessionId | None = None,
    opens: SessionId | None = None,
    runs: RunKind = "new",
    on_change: OnChange = "refuse",
) -> int | None:
    """Show a run while it grows and when it has ended, and return its exit code.

    `run` is an earlier run to continue; `opens` a run whose journal is opened instead.
    """
    journal, progress = shown.journal, shown.progress
    console = Terminal(stderr=True, quiet=shown.quiet or progress in {"json", "none"})
    if not shown.quiet:
        warn_of_exposed_journal([agent], journal)
    choice = await choose_sandbox(shown.sandbox, [agent], quiet=shown.quiet)
    ended: Run[Any] | None = None
    async with (
        open_display(progress, console, journal) as display,
        open_orchestrator(
            journal,
            session=opens or run,
            runs=runs,
            on_change=on_change,
            machine=Machine(sandbox=choice),
        ) as orchestrator,
    ):
        stop.set_orchestrator(orchestrator)
        with stop.work_scope, stop.ignore_closed():
            async with display.open_view(orchestrator, run=run):
                ended = await begin(orchestrator)
        if ended is None:
            print_stopped(orchestrator, console, journal, run)
            return None
        print_ended(ended.tree, console)
        if note := ended.outcome.note:
            print_hint(console, f"Note: {printable(note)}")
        print_hint(
            console,
            f"Look at it again: {command('tree', ended.id, journal=journal)}",
            f"In the browser:   {command('report', ended.id, '--open', journal=journal)}",
        )
        if shown.json:
            print(_run_json(ended))
        elif ended.outcome.output and progress != "json":
            print(printable(ended.outcome.output))
    if not ended.outcome.succeeded:
        error = f"/{agent.name} {describe_outcome(ended.outcome)}"
        print(f"orchestrator: {error}", file=sys.stderr)
    return ENDING_CODES[ended.outcome.ending]


def print_stopped(
    orchestrator: Orchestrator, console: Terminal, journal: str | None, run: SessionId | None = None
) -> None:
    """Print that a signal stopped the run, its outcome so far, and how to see it again."""
    runs = orchestrator.runs[-1:] if run is None else [run]
    tree = shown_tree(orchestrator, run)
    if tree is not None and len(tree) > 1:
        print_ended(tree, console, now=orchestrator.now())
    again = f"; see: {command('tree', runs[0], journal=journal)}" if runs else ""
    print(f"orchestrator: stopped{again}", file=sys.stderr)


def describe_outcome(outcome: Outcome) -> str:
    """Return an outcome's ending and error on one line."""
    return f"{outcome.ending}: {' '.join(printable(outcome.error).split())}"


def _run_json(run: Run[Any]) -> str:
    outcome = run.outcome
    document = {
        "run": run.id,
        "agent": run.agent.name,
        "outcome": outcome.ending,
        "output": _output_json(run),
        "error": outcome.error,
        "kind": outcome.kind,
        "note": outcome.note,
        "usage": _usage_json(run.usage),
        "tree": [_task_json(run.tree, task) for task in run.tree],
    }
    return printable_json(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def _output_json(run: Run[Any]) -> Any:
    text = run.outcome.output
    if run.agent.output is str or not run.outcome.succeeded:
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text  # the redactor removed a secret, so it is no JSON any more


def _usage_json(usage: Usage) -> dict[str, Any]:
    return {
        "calls": usage.calls,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": None if usage.unpriced else usage.micro_usd / 1_000_000,
        "estimated_calls": usage.estimated,
    }


def _task_json(tree: Tree, task: TaskId) -> dict[str, Any]:
    node = tree[task]
    times: list[float | None] = [node.started, node.ended]
    return {
        "id": task,
        "parent": node.parent,
        "path": node.path,
        "agent": node.agent,
        "goal": node.goal,
        "label": node.label,
        "mode": node.mode,
        "status": node.status,
        "error": node.error,
        "seconds": _seconds(*times),
        "usage": _usage_json(node.total),
    }


def _seconds(started: float | None, ended: float | None) -> float | None:
    return None if started is None or ended is None else round(ended - started, 3)
