"""A task as a row for the page: the whole row first, then only its changes.

`viewer/sources/console/run_rows.js` reads the rows. Lists are a third of the size of objects.
"""

from typing import Any, Final

from orchestrator.agents.turn_plan import SCRIPT, SCRIPT_CHARACTERS
from orchestrator.delegation import SessionRecord, TaskId, Tree
from orchestrator.delegation.board import ShownItem, shown_boards
from orchestrator.ports.journals import Records

GOAL_CHARACTERS: Final = 300
"""The most characters of a goal in a row; the transcript has all of it."""
ERROR_CHARACTERS: Final = 2_000
SHORT_CHARACTERS: Final = 200


def changing_part(tree: Tree, task: TaskId) -> list[Any]:
    """Return the part of a task that may change: its status, times, error, usage and waits."""
    node = tree[task]
    usage = node.usage
    return [
        node.status,
        node.started,
        node.ended,
        _cut(node.error, ERROR_CHARACTERS),
        [
            usage.calls,
            usage.input_tokens,
            usage.output_tokens,
            usage.micro_usd,
            usage.unpriced,
            usage.cached_tokens,
            usage.reasoning_tokens,
            usage.estimated,
            usage.cache_written_tokens,
            usage.saved_micro_usd or 0,
        ],
        node.abandoned,
        tree.provider_waits.get(task, ()),
    ]


def fixed_part(tree: Tree, records: Records, task: TaskId) -> list[Any]:
    """Return the part of a task that never changes, such as its parent, agent and goal."""
    node = tree.nodes()[task]
    request = records.tasks[task].request
    return [
        node.parent,
        node.agent,
        _cut(node.goal, SCRIPT_CHARACTERS if node.agent == SCRIPT else GOAL_CHARACTERS),
        _cut(node.shown_label, SHORT_CHARACTERS),
        node.path,
        node.mode,
        node.reason,
        node.requested,
        [] if request is None else list(request.needs),
        node.chosen,
    ]


def state_of(session: SessionRecord, records: Records) -> dict[str, Any]:
    """Return the state of a run: the actions that people can take, and its boards."""
    boards = shown_boards(session, records.tasks) if session.states else {}
    return {
        "paused": list(session.slots.paused),
        "interrupted": session.awaits_resume and not session.closed,
        "forked_from": session.forked_from,
        "boards": {owner: [_item(it) for it in items] for owner, items in boards.items()},
    }


def _item(it: ShownItem) -> list[Any]:
    text, result = _cut(it.text, SHORT_CHARACTERS), _cut(it.result, SHORT_CHARACTERS)
    return [it.item, it.state, text, it.by, result]


def all_rows(session: SessionRecord, records: Records) -> dict[str, Any]:
    """Return all rows of a run at rest, as one message."""
    tree = session.tree
    return {
        "reset": True,
        "rows": [[it, *changing_part(tree, it), *fixed_part(tree, records, it)] for it in tree],
        "at": 0,
        "working": False,
        "turns": tree.turns,
        "awaited": tree.awaited,
        "to_come": tree.to_come,
        "budgets": [],
        "state": state_of(session, records),
    }


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
