"""What `delegate_task` answers: JSON that a model can act on, and a person can read."""

from collections.abc import Sequence
from typing import Any

import msgspec

from delegation.records import SessionRecord, TaskRecord
from delegation.task import Reason


def joined_answer(tasks: Sequence[TaskRecord], session: SessionRecord) -> str:
    """Return the results of tasks that have ended, in the order they were asked for."""
    answer: dict[str, Any] = {
        "status": "completed",
        "results": [_result(task, session) for task in tasks],
    }
    reason = Reason(session.tree[tasks[0].id]["reason"])
    if reason is not Reason.ASKED_TO_WAIT:
        answer["note"] = (
            f"This ran within the same response, not in the background: {reason.sentence}."
        )
    return msgspec.json.encode(answer).decode()


def dispatched_answer(tasks: Sequence[TaskRecord]) -> str:
    """Return the receipt for tasks that run on their own."""
    return msgspec.json.encode(
        {
            "status": "dispatched",
            "tasks": [{"task_id": task.id, "path": task.path} for task in tasks],
            "note": "They run in the background. You will be told when each ends, in a"
            " turn of its own: go on, or end this turn. Do not wait, and do not ask again.",
        }
    ).decode()


def _result(task: TaskRecord, session: SessionRecord) -> dict[str, Any]:
    node = session.tree[task.id]
    total = node["total"]
    outcome = task.outcome
    assert outcome is not None, "only tasks that have ended have results"
    return {
        "task_id": task.id,
        "path": task.path,
        "agent": task.agent,
        "label": node["label"],
        "status": node["status"],
        "output": outcome.output,
        "error": node["error"],
        "tokens": total.tokens,
        "cost_usd": None if total.unpriced else total.cost / 1_000_000,
        "seconds": round(node["ended"] - node["requested"], 3),
    }
