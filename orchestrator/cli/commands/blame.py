"""`orchestrator blame`: measure the effect of each suspect task of a run on its score."""

from typing import Annotated

import msgspec
from cyclopts import Parameter

from orchestrator.cli.agent_file import agent_of_run, load_agent
from orchestrator.cli.commands.copies import SetOption, change_of
from orchestrator.cli.errors import CommandError
from orchestrator.cli.evaluation_files import load_scorers
from orchestrator.cli.exit_codes import ENDING_CODES, FAILED, SUCCEEDED
from orchestrator.cli.journal_queries import read_run
from orchestrator.cli.options import AgentFile, JournalOption, JsonOption, RunArgument, journals_of
from orchestrator.cli.sandbox_line import SandboxOption, choose_sandbox
from orchestrator.cli.signals import Stop, run_stoppable
from orchestrator.cli.terminal.console import Terminal, command, print_hint
from orchestrator.cli.trust import TrustOption
from orchestrator.composition import open_orchestrator
from orchestrator.delegation import Ending
from orchestrator.delegation.tree.safe_text import printable_json
from orchestrator.ports.settings import Machine
from orchestrator.products.evaluation.blame import MOST_SUSPECTS, REPETITIONS, BlameReport
from orchestrator.products.evaluation.blame import blame as measure


def blame(
    run: RunArgument = None,
    /,
    *,
    file: AgentFile,
    scorer: str,
    task: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    answer: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    set: SetOption = (),  # noqa: A002 (the name of the option)
    times: int = REPETITIONS,
    most: int = MOST_SUSPECTS,
    usd: float | None = None,
    json: JsonOption = False,
    journal: JournalOption = None,
    sandbox: SandboxOption = None,
    trust: TrustOption = False,
) -> int:
    """Find the task that is to blame for the score of a run.

    Each suspect runs again several times, in forks that keep all work that does not follow from it.
    Its effect is the mean score of the forks minus the score of the run, with an interval of 95 %.
    Exits with 0 if a task is to blame, with 1 if not, and with 3 if the budget was spent first.

    Args:
        scorer: A function of a TaskResult, a judge or an evaluator: FILE:NAME.
        task: A suspect: its path, such as '/editor/researcher[2]', or its id; repeat it for
            several. By default tasks that failed, tasks on the critical path, and expensive tasks.
        answer: The right answer of a suspect, PATH=TEXT; such a suspect asks no model.
        times: The number of forks of each suspect.
        most: The most suspects, if none is named.
        usd: The most dollars for all forks and judges.
    """
    if times < 2:
        raise CommandError(f"--times is {times}; an interval needs at least 2")
    scorers, _ = load_scorers((scorer,))
    agent = load_agent(file, trust=trust)
    found = read_run(journals_of(journal), run)
    agent = agent_of_run(agent, found.agent)
    session = found.fold().sessions[found.id]
    change = change_of(set, session.tree, session.tree.root, agent)
    answers = dict(_answer(it) for it in answer)

    async def work(stop: Stop) -> int | None:
        choice = await choose_sandbox(sandbox, [agent], quiet=json)
        machine = Machine(sandbox=choice)
        report: BlameReport | None = None
        async with open_orchestrator(journal, session=found.id, machine=machine) as orchestrator:
            stop.set_orchestrator(orchestrator)
            with stop.work_scope, stop.ignore_closed():
                report = await measure(
                    orchestrator,
                    agent,
                    found.id,
                    scorers[0],
                    tasks=task,
                    times=times,
                    change=change,
                    answers=answers,
                    usd=usd,
                    most=most,
                )
        return None if report is None else _print(report, json=json, journal=journal)

    return run_stoppable(work)


def _answer(text: str) -> tuple[str, str]:
    path, sign, answer = text.partition("=")
    if not (path and sign):
        raise CommandError(f"--answer {text!r} is not PATH=TEXT")
    return path, answer


def _print(report: BlameReport, *, json: bool, journal: str | None) -> int:
    if json:
        print(printable_json(msgspec.json.encode(report).decode()))
    else:
        print(report)
        if report.guilty is not None:
            fork = report.guilty.runs[0]
            print_hint(
                Terminal(stderr=True), f"Its forks: {command('tree', fork, journal=journal)}"
            )
        if report.not_tried:
            names = ", ".join(report.not_tried)
            print_hint(Terminal(stderr=True), f"The budget left nothing for {names}.")
    if report.not_tried:
        return ENDING_CODES[Ending.OVER_BUDGET]
    return SUCCEEDED if report.guilty is not None else FAILED
