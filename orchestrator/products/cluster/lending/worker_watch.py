"""The writer's view of workers: which are alive, and which executions they hold.

Only liveness depends on it: a call that no worker will receive is sent again, and an execution that
no worker holds is given up.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NoReturn

import trio

from orchestrator.products.cluster import work
from orchestrator.products.cluster.lending.lender import Lender
from orchestrator.products.cluster.lending.lent import Lent, Loss, Running, Waiting
from orchestrator.products.cluster.lending.lent_turn import LentTurn
from orchestrator.products.cluster.worker.wire import Begin, Fenced, question_in

LOOK_SECONDS: Final = 1.0
"""How often the writer looks which workers are alive, while any call is lent."""
SHOWN_AFTER: Final = 2.0
"""How long a call waits for a worker before its task is shown as waiting for one."""
CHECK_SECONDS: Final = 30.0
"""How often the queue is asked whether it still has the dispatch of a call that waits."""


class WorkerWatch:
    """Looks at workers for one lender."""

    def __init__(self, lender: Lender, queue: work.WorkQueue, presence: work.Presence) -> None:
        self._lender = lender
        self._queue = queue
        self._presence = presence
        self._live: AbstractSet[work.WorkerId] = frozenset()

    async def look_forever(self) -> NoReturn:
        """Watch the live workers and their executions, while any call is lent."""
        while True:
            await self._lender.wait_lent()
            await trio.sleep(LOOK_SECONDS)
            await self._look()

    async def _look(self) -> None:
        lender = self._lender
        workers = {it.beat.worker: it for it in await self._presence.workers()}
        lender.workers = list(workers.values())
        live = {id_ for id_, it in workers.items() if it.alive}
        await self._send_stranded(live)
        missing: list[tuple[Lent, work.ExecutionId]] = []
        for lent in list(lender.lent.values()):
            if isinstance(lent.state, Waiting):
                self._look_for_worker(lent, lent.state)
            running = lent.running
            if running is not None and _is_lost(running, workers.get(running.worker)):
                missing.append((lent, running.execution))
            if isinstance(lent, LentTurn):
                # Its worker hears from time to time that we are there.
                lender.give(lent)
        if missing:
            await self._lose(missing)
        await self._read_recorded(workers.values())
        self._stop_unknown_runs(workers)
        self._forget(workers)

    async def _send_stranded(self, live: AbstractSet[work.WorkerId]) -> None:
        """Send again what no worker will receive: at once if one has died, or else at times."""
        await trio.lowlevel.checkpoint()
        lender, now = self._lender, trio.current_time()
        has_died = bool(self._live - live)
        self._live = live
        unsure = {
            lent.id: lent
            for lent in lender.lent.values()
            if isinstance(lent.state, Waiting)
            and lent.is_sent
            and not lent.state.is_refused
            and (has_died or now >= lent.state.checked + CHECK_SECONDS)
        }
        if not unsure:
            return
        dispatches = [it.dispatch(lender.tenure.journal) for it in unsure.values()]
        for dispatch in await self._queue.stranded(dispatches, live):
            lent = unsure[dispatch.id]
            if isinstance(lent.state, Waiting) and lent.attempt == dispatch.attempt:
                lender.send(lent)
        for lent in unsure.values():
            if isinstance(lent.state, Waiting):
                lent.state.checked = now

    def _look_for_worker(self, lent: Lent, waiting: Waiting) -> None:
        if waiting.is_refused:
            self._lender.send_refused(lent, waiting)
            if lent.state is not waiting:
                return  # it was sent, and waits anew
        waited = trio.current_time() - waiting.since
        if waited >= SHOWN_AFTER and not waiting.is_shown:
            waiting.is_shown = True
            self._lender.post(lent)

    async def _lose(self, missing: Sequence[tuple[Lent, work.ExecutionId]]) -> None:
        """Give runs up, unless they have said how they ended before their workers dropped them."""
        await self._lender.catch_up()
        for lent, execution in missing:
            if lent.execution == execution and lent.end is None:
                self._lender.lose(lent, Loss.GONE)

    async def _read_recorded(self, workers: Iterable[work.WorkerSeen]) -> None:
        """Read of the journal whether the executions count whose sessions are not in memory."""
        held = (execution for worker in workers for execution in worker.beat.executions)
        await self._lender.recorded.read({*held, *self._lender.parked})

    def _stop_unknown_runs(self, workers: Mapping[work.WorkerId, work.WorkerSeen]) -> None:
        """Stop the executions of this journal whose calls are over: an earlier writer lent them."""
        lender = self._lender
        journal = f"{lender.tenure.journal}/"
        known = {lent.execution for lent in lender.lent.values()} | lender.ends.executions()
        for worker in workers.values():
            for execution in worker.beat.executions:
                if (
                    execution.startswith(journal)
                    and execution not in known
                    and execution not in lender.finished
                    and execution not in lender.parked
                    and lender.recorded.counts(execution) is False
                    and not self._is_asked_for(execution)
                ):
                    lender.stop(execution, worker.beat.worker)

    def _is_asked_for(self, execution: work.ExecutionId) -> bool:
        """Return whether an execution may be about to begin: its call waits for a worker."""
        return any(
            lent.execution is None and f"/{lent.id}/{lent.attempt}/" in execution
            for lent in self._lender.lent.values()
        )

    def _forget(self, workers: Mapping[work.WorkerId, work.WorkerSeen]) -> None:
        lender = self._lender
        for execution, worker in list(lender.finished.items()):
            seen = workers.get(worker)
            if seen is None or (seen.alive and execution not in seen.beat.executions):
                lender.forget(execution)
        for execution, requests in list(lender.parked.items()):
            if lender.recorded.counts(execution) is False:
                del lender.parked[execution]
                for request in requests:
                    lender.reply(request, Fenced())
            elif requests[0].worker not in workers and isinstance(
                question_in(requests[0].body), Begin
            ):
                del lender.parked[execution]  # it never began; an end counts, also of the dead
        lender.refused = {it for it in lender.refused if it[0] in workers}


def _is_lost(running: Running, worker: work.WorkerSeen | None) -> bool:
    """Return whether no worker holds an execution any more, at this look and the one before."""
    was_missing = running.is_missing
    if worker is None or not worker.alive:
        running.is_missing = True
    elif running.execution in worker.beat.executions:
        running.is_missing = False
    else:
        if running.beats is None:
            running.beats = worker.beats
        # It may have begun since the last beat.
        running.is_missing = worker.beats >= running.beats + 2
    return running.is_missing and was_missing
