"""A run as one JSON document, and as an exit code: for programs that start us."""

from typing import Any, Final

import msgspec

from agents import Usage
from delegation import Ending, TaskId, Tree
from orchestrator.doors.one_shot import Run

EXIT_CODES: Final[dict[Ending, int]] = {
    Ending.SUCCEEDED: 0,
    Ending.FAILED: 1,
    Ending.REFUSED: 1,
    Ending.LOST: 1,
    Ending.OVER_BUDGET: 3,
    Ending.TIMED_OUT: 4,
    Ending.CANCELLED: 5,
}
"""2 is for what the user got wrong, and a signal has codes of its own."""


def as_json(run: Run[Any]) -> str:
    """Return all that came of a run: its outcome, its output, what it used, its tree."""
    outcome = run.outcome
    document = {
        "run": run.id,
        "agent": run.agent.name,
        "outcome": outcome.ending,
        "output": _output(run),
        "error": outcome.error,
        "kind": outcome.kind,
        "usage": _usage(run.usage),
        "tree": [_task(run.tree, task) for task in run.tree.graph],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def _output(run: Run[Any]) -> Any:
    text = run.outcome.output
    if run.agent.output is str or not run.outcome.succeeded:
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text  # a secret was in it


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "calls": usage.calls,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": None if usage.unpriced else usage.cost / 1_000_000,
    }


def _task(tree: Tree, task: TaskId) -> dict[str, Any]:
    node = tree[task]
    times: list[float | None] = [node["started"], node["ended"]]
    return {
        "id": task,
        "parent": node["parent"],
        "path": node["path"],
        "agent": node["agent"],
        "goal": node["goal"],
        "label": node["label"],
        "mode": node["mode"],
        "status": node["status"],
        "error": node["error"],
        "seconds": _seconds(*times),
        "usage": _usage(node["total"]),
    }


def _seconds(started: float | None, ended: float | None) -> float | None:
    return None if started is None or ended is None else round(ended - started, 3)
