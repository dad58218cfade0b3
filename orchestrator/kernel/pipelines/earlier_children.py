"""The children that a program had requested before a crash, and has not requested again.

A program that has not changed requests all of them before any new one: the journal has no request
that depends on a missing one. So a new request waits until all of them were requested again. If the
program cannot get there, it has changed.
"""

from collections.abc import Callable, Mapping
from typing import Final

import trio

from orchestrator.delegation import TaskId, TaskRecord

GRACE_SECONDS: Final = 5.0
"""For how many seconds a program with several trio tasks may request none of the earlier ones,
before a new request of it counts as a change."""
SHOWN: Final = 3
"""The number of tasks that a sentence names."""
SHOWN_CHARACTERS: Final = 60


class EarlierChildren:
    """The earlier children of a pipeline that it has not requested again."""

    def __init__(self, children: Mapping[str, TaskRecord], *, has_crashed: bool) -> None:
        self.has_crashed = has_crashed
        """They are from before a crash; in a fork or a retry the program may change."""
        self.has_changed = False
        """The outcome of the program has a note of its change."""
        self.unclaimed = dict(children)
        self.required = sum(not it.node.kept for it in children.values())
        """How many of the unclaimed the program must request: all but those that a fork has kept,
        since their requests may follow from a result that is another one in the fork."""
        self._claimed = trio.Event()

    def claim(self, base: str, about: object) -> TaskId | None:
        """Return the first child with this request and these instructions, if there is one.

        A child that a fork has kept has its answer, whatever its instructions are now.
        """
        return self._claim(base, lambda it: it.node.kept or _about(it) == about)

    def claim_reworded(self, base: str, *, in_order: bool) -> TaskId | None:
        """Return the first child with this request, whatever its instructions were.

        Several that had different instructions are told apart by their order alone.
        """
        found = {
            _about(record) for call, record in self.unclaimed.items() if is_numbered(call, base)
        }
        if len(found) > 1 and not in_order:
            return None
        return self._claim(base, lambda _: True)

    def _claim(self, base: str, fits: Callable[[TaskRecord], bool]) -> TaskId | None:
        for call, record in self.unclaimed.items():
            if is_numbered(call, base) and fits(record):
                del self.unclaimed[call]
                self.required -= not record.node.kept
                self._claimed.set()
                self._claimed = trio.Event()
                return record.id
        return None

    async def wait_claim(self) -> bool:
        """Wait until another one was requested again; return whether one was in time."""
        claimed = self._claimed
        with trio.move_on_after(GRACE_SECONDS):
            await claimed.wait()
        return claimed.is_set()

    def describe(self) -> str:
        """Return the unclaimed children for people."""
        all_ = [it for it in self.unclaimed.values() if not (self.required and it.node.kept)]
        words = [describe_task(it.path, it.request.goal) for it in all_[:SHOWN] if it.request]
        if len(all_) > SHOWN:
            words.append(f"{len(all_) - SHOWN:,} more")
        return ", ".join(words)


def find_earlier(
    parent: TaskRecord, tasks: Mapping[TaskId, TaskRecord], turn: int
) -> EarlierChildren:
    """Return the children that a task had requested in a turn before its program starts."""
    found: dict[str, TaskRecord] = {}
    for call, task in parent.children.by_call.items():
        request = tasks[task].request
        # A task that began anew has forgotten its earlier calls.
        if request is not None and request.call == call and request.origin.turn == turn:
            found[call] = tasks[task]
    return EarlierChildren(found, has_crashed=parent.was_interrupted)


def _about(child: TaskRecord) -> object:
    assert child.request is not None, "a child has a request"
    return child.request.about


def is_numbered(call: str, base: str) -> bool:
    """Return whether a call is one of the equal requests that a base stands for."""
    return call.rpartition(".")[0] == base


def describe_task(path: str, goal: str) -> str:
    """Return a task on one line, with the beginning of its goal."""
    short = " ".join(goal.split())
    if len(short) > SHOWN_CHARACTERS:
        short = f"{short[:SHOWN_CHARACTERS]}…"
    return f"{path} ({short})"
