"""A writer that lends a turn, in a process of its own: `turn_writer.py ADDRESS GOAL [RUN]`.

It prints the id of its run when a worker has the turn, and then its answer. With RUN it takes the
journal over as soon as it can, and resumes that run.
"""

import sys
from functools import partial

import trio

from orchestrator import JournalInUseError, Orchestrator, open_orchestrator
from tests.workers.turn_team import climber


async def main(address: str, goal: str, run: str = "") -> None:
    while True:
        try:
            async with open_orchestrator(address) as orchestrator:
                if run:
                    ended = await orchestrator.resume(climber, run)
                    print(ended.outcome.output or ended.outcome.error, flush=True)
                else:
                    await begin(orchestrator, goal)
                return
        except JournalInUseError:
            if not run:
                raise
            await trio.sleep(0.1)


async def begin(orchestrator: Orchestrator, goal: str) -> None:
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def work() -> None:
            print((await orchestrator.run(climber, goal)).outcome.output, flush=True)

        ledger = orchestrator._engine.book.ledger
        while not any(
            placed.execution for task in ledger.tasks.values() for placed in task.placed.values()
        ):
            await orchestrator.wait_changed(after=ledger.last_seq)
        await orchestrator.wait_durable()
        print(orchestrator.runs[0], flush=True)


if __name__ == "__main__":
    trio.run(partial(main, *sys.argv[1:]))
