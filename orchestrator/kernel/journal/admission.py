"""Admits new work: decides on requested tasks and posts them, until the orchestrator stops.

Deciding and posting are one synchronous step, so no two requests pass the same limit. A large call
whose tasks no limit counts takes several of these steps.
"""

from collections.abc import Callable, Sequence
from typing import Final

import trio

from orchestrator.agents import RefusedBy
from orchestrator.delegation import (
    Assignment,
    Detach,
    Grant,
    Ledger,
    Mode,
    Refuse,
    TaskId,
    TaskRecord,
    TaskRequest,
    decide,
    in_dependency_order,
)
from orchestrator.delegation.events import Event, TaskRequested
from orchestrator.kernel.errors import ClosedError
from orchestrator.kernel.journal.wakeups import Wakeups

STOPPING: Final = "the orchestrator is stopping"
JOINED: Final = Mode.JOINED
START_AT_ONCE: Final = 50
"""How many tasks begin before all others get a turn of the event loop: some 10 ms."""


class Admission:
    """Admits tasks and sessions, until it is stopped for good."""

    def __init__(self, ledger: Ledger, post: Callable[..., Event], wakeups: Wakeups) -> None:
        self.is_stopping = False
        """Nothing new is begun: what runs may finish, and the next process goes on."""
        self._ledger = ledger
        self._post = post
        self._wakeups = wakeups

    def takes_steps(
        self, assignments: Sequence[Assignment], caller: TaskRecord, grants: Sequence[Grant]
    ) -> bool:
        """Return whether the tasks of one call may be admitted in several steps.

        Each step is decided and posted at once. No other request can change the decision on the
        later ones, because no limit counts the tasks; so all of them are admitted, or none.
        """
        slots = self._ledger.sessions[caller.session].slots
        budgets = [*[it.budget for it in caller.accounts], *[it.budget for it in grants]]
        return (
            slots.is_unlimited
            and not slots.paused
            and all(it.tasks is None for it in budgets)
            and not any([it.depends_on for it in assignments])  # noqa: C419 (twice as fast)
        )

    def admit(self, requests: Sequence[TaskRequest], *, goes_on: bool = False) -> Refuse | None:
        """Decide on the tasks that one call requests, and post all of them or none.

        A joined task that gets a slot is started by the same fact: its caller runs it. A call that
        goes on with its next step was admitted before: `stop` does not refuse it.
        """
        if self.is_stopping and not goes_on:
            return Refuse(
                f"{STOPPING}, and starts no new tasks: end with what you have",
                refused_by=RefusedBy.SHUTDOWN,
            )
        ledger = self._ledger
        verdict = decide(requests, ledger)
        if isinstance(verdict, Refuse):
            return verdict
        mode = Mode.DETACHED if isinstance(verdict, Detach) else JOINED
        parent = ledger.tasks[requests[0].parent]
        slots = ledger.sessions[parent.session].slots
        reason = verdict.reason
        if mode is JOINED and slots.is_unlimited and slots.has_room(parent, mode):
            ordered = in_dependency_order(requests)
            self._post(*[TaskRequested(it, mode, reason, not it.needs) for it in ordered])
            return None
        for request in in_dependency_order(requests):
            starts = mode is JOINED and not request.needs and slots.has_room(parent, mode)
            self._post(TaskRequested(request, mode, reason, starts))
        return None

    def would_refuse(self, request: TaskRequest) -> bool:
        """Return whether the rules or a budget do not allow a task now."""
        return isinstance(decide([request], self._ledger), Refuse)

    def stop(self) -> None:
        """Begin nothing new from now on."""
        self.is_stopping = True
        self._wakeups.wake_all()

    def require_running(self) -> None:
        """Refuse a run, a message or a session after `stop`."""
        if self.is_stopping:
            raise ClosedError(f"{STOPPING} and starts no new work; open it again to continue")

    async def wait_running(self, task: TaskId | None = None) -> None:
        """Return at once, or never after `stop`.

        Args:
            task: returns after `stop`, too, if it cannot resume in the next process: refused, it
                ends with what it has. A refusal would spoil the work of one that can.
        """
        await trio.lowlevel.checkpoint()
        if self.is_stopping and not (task is not None and self._ledger.settles_on_teardown(task)):
            await trio.sleep_forever()
