"""`orchestrator schedule`: begin the jobs of a file by the clock, until it is stopped."""

import os
import sys
from datetime import datetime

from orchestrator.cli.agent_file import load_schedule
from orchestrator.cli.job_queries import JobsJournalOption, jobs_journal, next_text
from orchestrator.cli.sandbox_line import SandboxOption, choose_sandbox
from orchestrator.cli.signals import Stop, run_stoppable
from orchestrator.cli.terminal.console import command
from orchestrator.control.server import open_control
from orchestrator.runtime import open_orchestrator
from orchestrator.schedule import open_schedule


def schedule(
    file: str,
    /,
    *,
    journal: JobsJournalOption = None,
    sandbox: SandboxOption = None,
) -> int:
    """Begin the jobs of a file by the clock, and deliver what they answer.

    Ctrl-C or SIGTERM ends it: runs under way go on with the next start, and what was missed
    meanwhile is caught up once, as far as a job allows.

    Args:
        file: A Python file with jobs: schedule = [Job("0 8 * * MON", editor, "Write the brief.")].
    """
    # The file may run any code, so it is loaded before the event loop starts.
    jobs = load_schedule(file)
    path = jobs_journal(journal)

    async def work(stop: Stop) -> int:
        choice = await choose_sandbox(sandbox, [job.agent for job in jobs])
        async with (
            open_orchestrator(path, sandbox=choice) as orchestrator,
            open_schedule(orchestrator, jobs) as scheduler,
            open_control(orchestrator, path, scheduler),
        ):
            stop.set_orchestrator(orchestrator)
            now = datetime.now().astimezone().timestamp()
            for job in scheduler.jobs():
                print(f"{job.spec.id}: {next_text(job, now)}", file=sys.stderr)
            hint = command("jobs", "list", journal=journal)
            print(
                f"the jobs run as process {os.getpid()}; see: {hint}", file=sys.stderr
            )
            await stop.wait_requested()
            await stop.wait_drained()
        return 0

    return run_stoppable(work)
