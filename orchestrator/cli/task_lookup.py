"""Finds the task that a user names: by its id, the start of the id, or its path."""

from difflib import get_close_matches

from orchestrator.cli.errors import CommandError
from orchestrator.cli.journal_queries import FoundRun, read_run, run_of_task
from orchestrator.delegation import TaskId, Tree
from orchestrator.ports.journals import Journals


def find_task(journals: Journals, name: str, run: str | None) -> tuple[FoundRun, Tree, TaskId]:
    """Return a task, by its id, its path or its run, with its run and the tree of the run."""
    found = read_run(journals, _run_of(journals, name, run))
    tree = found.fold().sessions[found.id].tree
    return found, tree, task_in(tree, name)


def _run_of(journals: Journals, name: str, run: str | None) -> str | None:
    if run is not None or name.startswith("/"):
        return run
    found = run_of_task(journals, name) if name else None
    if found is None:
        raise CommandError(
            f"there is no task {name!r}; see: orchestrator tree, orchestrator export --format json"
        )
    return found


def task_in(tree: Tree, name: str) -> TaskId:
    """Return the task of a tree that a user names."""
    if (task := tree.at(name)) is not None:
        return task
    if name and tree.root.startswith(name):
        return tree.root
    found = [] if not name else [task for task in tree if task.startswith(name)]
    if len(found) > 1:
        raise CommandError(f"{len(found)} tasks start with {name!r}; give more of the id")
    if not found:
        raise CommandError(
            f"run {tree.root} has no task {name!r};{_guess(tree, name)} see: orchestrator tree"
            f" {tree.root}"
        )
    return TaskId(found[0])


def _guess(tree: Tree, name: str) -> str:
    if not name.startswith("/"):
        return ""
    close = get_close_matches(name, [tree[task].path for task in tree], n=1)
    return f" did you mean {close[0]}?" if close else ""
