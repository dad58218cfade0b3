"""A tree as columns of small numbers, so that a page can carry tens of thousands of tasks.

JSON rows would be ten times as large. `viewer/sources/run/columns.js` reads the columns.
"""

import base64
import gzip
from typing import Any, Final

import msgspec

from orchestrator.agents import Usage
from orchestrator.agents.turn_plan import SCRIPT, SCRIPT_CHARACTERS
from orchestrator.delegation import TaskId
from orchestrator.ports.journals import RunHistory

FORMAT: Final = 1
"""Raise it when the meaning of a column changes."""
GOAL_CHARACTERS: Final = 300
"""The characters of a goal that the tree keeps; the transcript has the whole goal."""
ERROR_CHARACTERS: Final = 2_000
TRACEBACK_CHARACTERS: Final = 4_000
SHORT_CHARACTERS: Final = 200


class StringTable:
    """Numbers texts, so that each is stored once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str, most: int = SHORT_CHARACTERS) -> int:
        text = text if len(text) <= most else f"{text[: most - 1]}…"
        return self._numbers.setdefault(text, len(self._numbers))

    def all(self) -> list[str]:
        return [*self._numbers]


def columns_of(history: RunHistory, *, sources: bool = True) -> dict[str, Any]:
    """Return a run as columns, each parent before its children, with the sources of its scripts."""
    tree, start = history.tree, history.began
    numbers = {task: number for number, task in enumerate(tree)}
    strings = StringTable()
    columns: dict[str, list[Any]] = {name: [] for name in _NAMES}
    usage: dict[str, list[int]] = {name: [] for name in Usage.__struct_fields__}
    needs: dict[str, list[int]] = {}
    chosen: dict[str, str] = {}
    last_requested = 0
    for task, number in numbers.items():
        node = tree[task]
        parent = node.parent
        requested = _since(start, node.requested)
        row = (
            0 if parent is None else number - numbers[parent],
            strings(node.agent),
            strings(
                node.goal,
                SCRIPT_CHARACTERS if sources and node.agent == SCRIPT else GOAL_CHARACTERS,
            ),
            strings(node.shown_label),
            strings(node.mode),
            strings(node.reason),
            strings(node.status),
            strings(_error(history, task), ERROR_CHARACTERS + TRACEBACK_CHARACTERS),
            strings(history.models.get(task, "")),
            strings(history.questions.get(task, ""), ERROR_CHARACTERS),
            None if history.tools is None else history.tools.get(task, 0),
            requested - last_requested,
            _since_or_never(start, node.started, requested),
            _since_or_never(start, node.ended, requested),
        )
        last_requested = requested
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
        for name, amounts in usage.items():
            amounts.append(getattr(node.usage, name) or 0)
        if needed := tree.needs(task):
            needs[str(number)] = [numbers[need] for need in needed]
        if node.chosen:
            chosen[str(number)] = node.chosen
    return {
        "format": FORMAT,
        "start": start,
        "last": _since(start, history.last_at),
        "turns": [
            [_since(start, began), None if ended is None else _since(start, ended)]
            for began, ended in tree.turns
        ],
        "abandoned": [number for task, number in numbers.items() if tree[task].abandoned],
        "awaited": [[_since(start, since), numbers[task]] for since, task in tree.awaited],
        "waits": {
            str(numbers[task]): [[_since(start, at) for at in span] for span in spans]
            for task, spans in tree.provider_waits.items()
        },
        "strings": strings.all(),
        "ids": [*numbers],
        **columns,
        "usage": usage,
        "needs": needs,
        "chosen": chosen,
    }


_NAMES: Final = (
    "parent",
    "agent",
    "goal",
    "label",
    "mode",
    "reason",
    "status",
    "error",
    "model",
    "ask",
    "tools",
    "requested",
    "started",
    "ended",
)


def _error(history: RunHistory, task: TaskId) -> str:
    """Return the error of a task, with the end of its traceback if there is one."""
    error = history.tree[task].error
    trace = history.tracebacks.get(task)
    if not (error and trace):
        return error
    shown = trace if len(trace) < TRACEBACK_CHARACTERS else f"…{trace[-3_990:]}"
    return f"{error[:ERROR_CHARACTERS]}\n\n{shown}"


def _since(start: float, at: float) -> int:
    """Return the milliseconds between two times."""
    return round((at - start) * 1000)


def _since_or_never(start: float, at: float | None, requested: int) -> int:
    # If the clock was set back, the time must not become -1, which means never.
    return -1 if at is None else max(0, _since(start, at) - requested)


def pack(value: object) -> str:
    """Return a value as gzipped JSON in base64."""
    # Without the time, so that the same run gives the same file.
    data = gzip.compress(msgspec.json.encode(value), compresslevel=9, mtime=0)
    return base64.b64encode(data).decode()
