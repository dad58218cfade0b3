"""`orchestrator fork` and `retry`: start a new run with the facts of an old one."""

from typing import Annotated, Literal

from cyclopts import Parameter

from orchestrator.cli.agent_file import agent_of_run, load_agent
from orchestrator.cli.commands.run import SHOWN, ShownRun, show_run
from orchestrator.cli.options import AgentFile, RunOfPath, journals_of
from orchestrator.cli.signals import run_stoppable
from orchestrator.cli.task_lookup import find_task
from orchestrator.products.history.replay.fork import copy_run
from orchestrator.products.history.replay.kept_facts import facts_before, facts_without

CopiedTask = Annotated[
    str,
    Parameter(
        help="The id of a task, or its start; or its path, such as '/editor/researcher[2]'. The id"
        " of the run does the whole run again."
    ),
]


def fork(
    file: AgentFile, task: CopiedTask, /, *, run: RunOfPath = None, shown: ShownRun = SHOWN
) -> int:
    """Run again from the point where a task was delegated, in a new run.

    All steps before that point are kept and cost nothing; all steps after it run again. The command
    prints and exits like `run`, and exits with 2 if the run has not ended, or belongs to another
    agent.
    """
    return _run_copy("fork", file, task, run, shown)


def retry(
    file: AgentFile, task: CopiedTask, /, *, run: RunOfPath = None, shown: ShownRun = SHOWN
) -> int:
    """Run an unsuccessful task again, in a new run that keeps all other work of the old one.

    The task starts from the beginning. The tasks above it repeat the steps that followed its end,
    and tasks that were refused or cancelled because of it run again. All other work is kept and
    costs nothing, and the old run does not change. The command prints and exits like `run`, and
    exits with 2 if the task has succeeded, or its run has not ended.
    """
    return _run_copy("retry", file, task, run, shown)


def _run_copy(
    verb: Literal["fork", "retry"], file: str, task: str, run: str | None, shown: ShownRun
) -> int:
    shown.require_one_document()
    # The file may run any code, so it is loaded before the event loop starts.
    agent = load_agent(file, trust=shown.trust)
    found, _, id_ = find_task(journals_of(shown.journal), task, run)
    session = found.fold().sessions[found.id]
    agent = agent_of_run(agent, found.agent)
    keep = facts_before if verb == "fork" else facts_without
    # A usage error is raised before the journal is opened for writing.
    copy_run(keep, found.entries, agent, session, id_, run=found.id)
    return run_stoppable(
        lambda stop: show_run(
            agent,
            lambda orchestrator: getattr(orchestrator, verb)(agent, found.id, task=id_),
            stop,
            shown,
            opens=found.id,
        )
    )
