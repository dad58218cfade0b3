"""`orchestrator dataset`: turn a run into a case of a dataset."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from orchestrator.cli.errors import CommandError
from orchestrator.cli.options import JournalOption, RunOfPath, journals_of
from orchestrator.cli.task_lookup import find_task
from orchestrator.delegation import one_line
from orchestrator.products.evaluation.cases import Case, add_case
from orchestrator.products.evaluation.task_result import TaskResult

dataset = App(name="dataset", help="Turn a run into a case of a dataset.")
CasesOption = Annotated[
    Path, Parameter(name="--to", help="The dataset: a YAML, JSON or JSONL file, new or not.")
]


@dataset.command
def add(
    task: Annotated[str, Parameter(help="The id of a run or a task, or its start; or a path.")],
    /,
    *,
    to: CasesOption = Path("cases.yaml"),
    name: str | None = None,
    expected: str | None = None,
    run: RunOfPath = None,
    journal: JournalOption = None,
) -> None:
    """Add a run, or one of its tasks, as a case: its goal, and the answer to expect.

    Args:
        name: The name of the case; by default the first words of the goal.
        expected: The expected answer; by default the answer of the run, if it succeeded.
    """
    found, tree, id_ = find_task(journals_of(journal), task, run)
    ledger = found.fold()
    result = TaskResult(id=id_, session=ledger.sessions[found.id], records=ledger.tasks)
    if expected is None and result.succeeded:
        expected = result.answer
    if not tree[id_].goal.strip():
        raise CommandError(f"{task} has no goal, so it cannot be a case")
    case = Case(
        name=name or one_line(tree[id_].goal)[:60], inputs=tree[id_].goal, expected_output=expected
    )
    add_case(to, case)
    print(f"added {case.name!r} to {to}")
