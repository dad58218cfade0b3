"""Commands that begin a run with what an old one has: `fork` and `retry`."""

from typing import Final, Literal, TypeAlias

from orchestrator.cli.agent_file import load_agent
from orchestrator.cli.commands.run import require_one_document, show_run
from orchestrator.cli.options import ProgressOption, journals_of
from orchestrator.cli.sandbox_line import SandboxOption
from orchestrator.cli.signals import run_stoppable
from orchestrator.cli.task_lookup import find_task
from orchestrator.products.history.replay.fork import copy_run
from orchestrator.products.history.replay.kept_facts import facts_before, facts_without

Verb: TypeAlias = Literal["fork", "retry"]
_KEPT: Final = {"fork": facts_before, "retry": facts_without}


def run_copy(
    verb: Verb,
    file: str,
    task: str,
    *,
    run: str | None,
    json: bool,
    quiet: bool,
    progress: ProgressOption,
    journal: str | None,
    sandbox: SandboxOption,
) -> int:
    """Begin a new run at a task of an old one, show it, and return the exit code."""
    require_one_document(json=json, progress=progress)
    # The file may run any code, so it is loaded before the event loop starts.
    agent = load_agent(file)
    found, _, id_ = find_task(journals_of(journal), task, run)
    session = found.fold().sessions[found.id]
    # A usage error is raised before the journal is opened for writing.
    copy_run(_KEPT[verb], found.entries, agent, session, id_, run=found.id)
    return run_stoppable(
        lambda stop: show_run(
            agent,
            lambda orchestrator: getattr(orchestrator, verb)(agent, found.id, task=id_),
            stop,
            opens=found.id,
            quiet=quiet,
            json=json,
            journal=journal,
            progress=progress,
            sandbox=sandbox,
        )
    )
