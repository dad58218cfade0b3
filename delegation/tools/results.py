"""The answers of `delegate_task` and `task`: JSON for models, which people can read, too."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from orchestrator.agents import Agent, AssistantMessage, Message, Transcript
from orchestrator.delegation import notices
from orchestrator.delegation.ledger.session_record import SessionRecord
from orchestrator.delegation.ledger.task_record import TaskRecord
from orchestrator.delegation.task import Reason, TaskId
from orchestrator.delegation.tree.safe_text import one_line

CHARACTERS_PER_TOKEN: Final = 4
TOOLS_CHARACTERS: Final = 5_000
"""About how many characters the descriptions of all tools have."""


def readable_characters(agent: Agent[Any], transcript: Transcript) -> int:
    """Return how many characters of results an agent can still read at once.

    Where its window is known, half of the rest of it: the other half is for its answer. Calls that
    were made together share that.
    """
    if agent.compaction is None:
        return notices.MAX_RESULT_CHARACTERS
    window = agent.compaction.window * CHARACTERS_PER_TOKEN * 4 // 5
    read = TOOLS_CHARACTERS + len(str(agent.instructions))
    read += transcript.total(_text_length)
    together = 1
    for message in reversed(transcript):
        if isinstance(message, AssistantMessage):
            together = max(1, len(message.calls))
            break
    return min(
        notices.MAX_RESULT_CHARACTERS - 1,
        max(notices.MIN_SHARE_IN_WINDOW, (window - read) // 2 // together),
    )


def _text_length(message: Message) -> int:
    return len(message.text)


def joined_answer(
    tasks: Sequence[TaskRecord], session: SessionRecord, results: Sequence[Mapping[str, Any]]
) -> str:
    """Return the answer of a call whose tasks have ended: their results, in order."""
    answer: dict[str, Any] = {"status": "completed", "results": results}
    reason = Reason(session.tree[tasks[0].id].reason)
    if reason not in {Reason.ASKED_TO_WAIT, Reason.HANDED_OFF}:
        answer["note"] = (
            f"This ran within the same response, not in the background: {reason.sentence}."
        )
    return as_json(answer)


def dispatched_answer(tasks: Sequence[TaskRecord], session: SessionRecord) -> str:
    """Return the receipt for detached tasks."""
    positions = session.slots.positions(tasks)
    return as_json(
        {
            "status": "dispatched",
            "tasks": [_receipt(task, session, positions) for task in tasks],
            "note": "They run in the background. You will be told when each ends, in a"
            " turn of its own: go on, or end this turn. Do not ask for them again; if you"
            ' cannot go on without them, use task(action="wait").',
        }
    )


def _receipt(
    task: TaskRecord, session: SessionRecord, positions: Mapping[TaskId, int]
) -> dict[str, Any]:
    receipt = {"task_id": task.id, "path": task.path} | wait_state(task, positions)
    label = session.tree[task.id].label
    return receipt | ({"label": label} if label else {})


def wait_state(task: TaskRecord, positions: Mapping[TaskId, int]) -> dict[str, Any]:
    """Return the reason why a task has not started."""
    if task.outcome is None and task.pending_dependencies:
        return {"waits_for": sorted(task.pending_dependencies)}
    return {"position": positions[task.id]} if task.id in positions else {}


def unmet_dependency(dependency: TaskRecord) -> str:
    """Return the error of a task that never starts, because a dependency did not succeed."""
    assert dependency.outcome is not None, "only an ended dependency is unmet"
    label = dependency.label
    name = f"{label!r} ({dependency.path})" if label else dependency.path
    why = f": {dependency.outcome.error}" if dependency.outcome.error else ""
    return f"it needs {name}, which ended as {dependency.outcome.ending}{why}"


def task_result(
    task: TaskRecord, session: SessionRecord, share: int, *, offset: int = 0
) -> dict[str, Any]:
    """Return the outcome of a task, with as much of its output as fits."""
    node = session.tree[task.id]
    total = node.total
    outcome = task.outcome
    assert outcome is not None, "only tasks that have ended have results"
    assert node.ended is not None, "its outcome and its end are one fact"
    answer = {
        "task_id": task.id,
        "path": node.path,
        "agent": node.agent,
        "label": node.label,
        "status": node.status,
        "output": notices.excerpt(outcome.output, share, task.id, offset=offset),
        "error": node.error,
        "schema_errors": outcome.schema_errors,
        "tokens": total.tokens,
        "cost_usd": None if total.unpriced else total.micro_usd / 1_000_000,
        # Not `round`, which takes ten times as long.
        "seconds": int((node.ended - node.requested) * 1000 + 0.5) / 1000,
    }
    if total.estimated:
        answer["estimated_calls"] = total.estimated
    if outcome.note:
        answer["note"] = outcome.note
    if outcome.recorded_evidence and (evidence := outcome.evidence) is not None:
        answer["evidence"] = evidence.lines()
    return answer


def progress(
    tasks: Sequence[TaskRecord], session: SessionRecord, now: float
) -> list[dict[str, Any]]:
    """Return the status of tasks that may still run."""
    positions = session.slots.positions(tasks)
    return [_progress(task, session, now, positions) for task in tasks]


def _progress(
    task: TaskRecord, session: SessionRecord, now: float, positions: Mapping[TaskId, int]
) -> dict[str, Any]:
    node = session.tree[task.id]
    ended = now if node.ended is None else node.ended
    messages = [
        {"text": one_line(steering.text), "seen_at_model_call": steering.seen_at}
        for steering in task.steering.values()
    ]
    return {
        "task_id": task.id,
        "path": task.path,
        "label": node.label,
        "status": node.status,
        "goal": one_line(node.goal),
        "mode": node.mode,
        "tokens": node.total.tokens,
        "seconds": round(ended - node.requested, 3),
        **wait_state(task, positions),
        **({"messages": messages} if messages else {}),
    }


def as_json(answer: object) -> str:
    return msgspec.json.encode(answer).decode()
