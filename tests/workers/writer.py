"""A writer that lends calls, in a process of its own: `writer.py ADDRESS CALLS [RUN]`.

It prints the id of its run when so many calls have begun at workers, and then its answer. With RUN
it takes the journal over as soon as it can, and resumes that run.
"""

import sys
from functools import partial

import trio

from orchestrator import JournalInUseError, Orchestrator, open_orchestrator
from tests.workers.fault_team import boss


async def main(address: str, calls: str, run: str = "") -> None:
    while True:
        try:
            async with open_orchestrator(address) as orchestrator:
                await (resume(orchestrator, run) if run else begin(orchestrator, int(calls)))
                return
        except JournalInUseError:
            if not run:
                raise
            await trio.sleep(0.1)


async def begin(orchestrator: Orchestrator, calls: int) -> None:
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def work() -> None:
            goal = "\n".join(f"lingerer {number} 6" for number in range(calls))
            print((await orchestrator.run(boss, goal)).outcome.output, flush=True)

        ledger = orchestrator._engine.book.ledger
        while calls > sum(
            bool(it.execution) for task in ledger.tasks.values() for it in task.placed.values()
        ):
            await orchestrator.wait_changed(after=ledger.last_seq)
        await orchestrator.wait_durable()
        print(orchestrator.runs[0], flush=True)


async def resume(orchestrator: Orchestrator, run: str) -> None:
    print((await orchestrator.resume(boss, run)).outcome.output, flush=True)


if __name__ == "__main__":
    trio.run(partial(main, *sys.argv[1:]))
