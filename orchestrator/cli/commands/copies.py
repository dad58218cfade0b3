"""`orchestrator fork` and `retry`: start a new run with the facts of an old one."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import attrs
from cyclopts import Parameter

from orchestrator.agents import Agent
from orchestrator.cli.agent_file import agent_of_run, load_agent
from orchestrator.cli.commands.run import SHOWN, ShownRun, show_run
from orchestrator.cli.errors import CommandError
from orchestrator.cli.options import AgentFile, RunOfPath, journals_of
from orchestrator.cli.signals import run_stoppable
from orchestrator.cli.task_lookup import find_task
from orchestrator.cli.terminal.console import Terminal, print_hint
from orchestrator.delegation import TaskId, Tree, one_line, usd
from orchestrator.ports.execution import reachable_agents
from orchestrator.ports.sessions import ChangeAgent, Orchestrator, Run
from orchestrator.products.evaluation.repetitions import repeat_task
from orchestrator.products.evaluation.settings import SettingsChange, parse_setting
from orchestrator.products.history.replay.fork import copy_run
from orchestrator.products.history.replay.kept_facts import facts_before, facts_without

CopiedTask = Annotated[
    str,
    Parameter(
        help="The id of a task, or its start; or its path, such as '/editor/researcher[2]'. The id"
        " of the run does the whole run again."
    ),
]


SetOption = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        negative="",
        show_default=False,
        help="Another value in a field of an agent of the task or of its descendants, such as"
        " researcher.model=openai:gpt-5; repeat it for several fields.",
    ),
]


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class Repetition:
    """How a task runs again."""

    stop: bool = False
    """End with the result of the task: nothing above it runs."""
    repeat: int = 1
    """How many times it runs again, at once, each time in a run of its own."""
    set: SetOption = ()


ONCE: Final = Repetition()


def fork(
    file: AgentFile,
    task: CopiedTask,
    /,
    *,
    run: RunOfPath = None,
    only: bool = False,
    repetition: Repetition = ONCE,
    shown: ShownRun = SHOWN,
) -> int:
    """Run again from the point where a task was delegated, in a new run.

    All steps before that point are kept and cost nothing; all steps after it run again. The command
    prints and exits like `run`, and exits with 2 if the run has not ended, or belongs to another
    agent.

    Args:
        only: Keep all steps that do not follow from the result of the task, like `retry`.
    """
    if not only and repetition != ONCE:
        raise CommandError("--stop, --repeat and --set repeat one task: add --only")
    return _run_copy(file, task, run, repetition, shown, only=only)


def retry(
    file: AgentFile,
    task: CopiedTask,
    /,
    *,
    run: RunOfPath = None,
    repetition: Repetition = ONCE,
    shown: ShownRun = SHOWN,
) -> int:
    """Run a task again, in a new run that keeps all other work of the old one.

    The task starts from the beginning. The tasks above it repeat the steps that followed its end,
    and tasks that depended on it, or were cancelled because of it, run again. All other work is
    kept and costs nothing, and the old run does not change. The command prints and exits like
    `run`, and exits with 2 if the task or its run has not ended.
    """
    return _run_copy(file, task, run, repetition, shown, only=True)


def _run_copy(
    file: str, task: str, run: str | None, repetition: Repetition, shown: ShownRun, *, only: bool
) -> int:
    shown.require_one_document()
    if repetition.repeat < 1:
        raise CommandError(f"--repeat is {repetition.repeat}; it must be at least 1")
    # The file may run any code, so it is loaded before the event loop starts.
    agent = load_agent(file, trust=shown.trust)
    found, tree, id_ = find_task(journals_of(shown.journal), task, run)
    session = found.fold().sessions[found.id]
    agent = agent_of_run(agent, found.agent)
    change = change_of(repetition.set, tree, id_, agent)
    keep = facts_without if only else facts_before
    # A usage error is raised before the journal is opened for writing.
    copy_run(keep, found.entries, agent, session, id_, run=found.id)

    async def begin(orchestrator: Orchestrator) -> Run[Any]:
        if not only:
            return await orchestrator.fork(agent, found.id, task=id_)
        forks = await repeat_task(
            orchestrator,
            agent,
            found.id,
            id_,
            times=repetition.repeat,
            stop=repetition.stop,
            change=change,
        )
        for number, it in enumerate(forks if len(forks) > 1 else (), 1):
            about = one_line(it.outcome.error or it.outcome.output)
            hint = f"{number}. {it.id} {it.outcome.ending}, {usd(it.usage)}: {about}"
            print_hint(Terminal(stderr=True, quiet=shown.quiet), hint)
        return forks[-1]

    return run_stoppable(lambda stop: show_run(agent, begin, stop, shown, opens=found.id))


def change_of(
    texts: Sequence[str], tree: Tree, task: TaskId, agent: Agent[Any]
) -> ChangeAgent | None:
    """Return the change of agents that `--set` asks for; None if it asks for none."""
    settings = [parse_setting(it) for it in texts]
    names = {tree[it].agent for it in tree.descendants(task, itself=True)}
    names |= {it.name for it in reachable_agents(agent)}
    for setting in settings:
        name, _, _ = setting.name.partition(".")
        if name not in names:
            known = ", ".join(sorted(names))
            raise CommandError(f"--set {setting}: there is no agent {name!r}; there are: {known}")
    return SettingsChange(tuple(texts)) if texts else None
