"""`orchestrator schedule`: start the jobs of a file by the clock, until a signal comes."""

import os
import sys
from datetime import datetime

from orchestrator.agents.secret_references import resolve_references
from orchestrator.cli.agent_file import load_schedule
from orchestrator.cli.errors import CommandError
from orchestrator.cli.job_queries import ScheduleJournalOption, schedule_journal
from orchestrator.cli.job_targets import targets_for
from orchestrator.cli.options import AcceptChangesOption, on_change_of
from orchestrator.cli.sandbox_line import SandboxOption, choose_sandbox
from orchestrator.cli.signals import Stop, run_stoppable
from orchestrator.cli.terminal.console import command
from orchestrator.cli.trust import TrustOption
from orchestrator.composition import open_orchestrator
from orchestrator.delegation.schedule import next_text
from orchestrator.ports.control import open_control
from orchestrator.ports.errors import JournalInUseError
from orchestrator.ports.settings import Machine
from orchestrator.products.schedule import open_schedule


def schedule(
    file: str,
    /,
    *,
    insecure_webhook: bool = False,
    journal: ScheduleJournalOption = None,
    sandbox: SandboxOption = None,
    trust: TrustOption = False,
    accept_changes: AcceptChangesOption = False,
) -> int:
    """Start the jobs of a file by the clock, and deliver their answers.

    Ctrl-C or SIGTERM ends it: the next start continues running jobs, and catches up missed starts
    once, as far as a job allows.

    Args:
        file: A Python file with jobs: schedule = [Job("0 8 * * MON", editor, "Write the brief.")];
            or a team.yaml with the key schedule.
        insecure_webhook: Let the URLs of webhooks be http, also beyond this machine.
    """
    # The file may run any code, so it is loaded before the event loop starts.
    team = load_schedule(file, trust=trust)
    jobs = team.jobs
    path = schedule_journal(journal)
    values = resolve_references(os.environ)
    environ = {**os.environ, **values}
    webhooks = targets_for(jobs, path.parent, environ, is_insecure=insecure_webhook)
    hint = command("jobs", "list", journal=journal)

    async def work(stop: Stop) -> int:
        choice = await choose_sandbox(sandbox, [job.agent for job in jobs])
        async with (
            open_orchestrator(
                path,
                machine=Machine(
                    sandbox=choice,
                    secrets=[*values, *webhooks.secrets],
                    environ={**environ, **webhooks.secrets},
                ),
                on_change=on_change_of(accept_changes=accept_changes),
            ) as orchestrator,
            webhooks.open() as targets,
            open_schedule(
                orchestrator, jobs, agents=team.agents.values(), targets=targets
            ) as scheduler,
            open_control(orchestrator, path),
        ):
            stop.set_orchestrator(orchestrator)
            now = datetime.now().astimezone().timestamp()
            known = {job.spec.id: job for job in scheduler.jobs()}
            for job in known.values():
                print(f"{job.spec.id}: {next_text(job, now)}", file=sys.stderr)
            for it in jobs:
                if it.id not in known:
                    print(f"{it.id}: never, {it.schedule} is over", file=sys.stderr)
            if webhooks.secret is not None and webhooks.secret.file is not None:
                where = webhooks.secret.file.absolute()
                print(f"webhooks are signed with the secret in {where}", file=sys.stderr)
            print(f"the jobs run as process {os.getpid()}; see: {hint}", file=sys.stderr)
            await stop.wait_requested()
            await stop.wait_drained()
        return 0

    try:
        return run_stoppable(work)
    except JournalInUseError as exc:
        # The journal's own advice, a folder, would begin each job once in every process.
        raise CommandError(f"{exc.writer} begins the jobs of {path} already; see: {hint}") from exc
