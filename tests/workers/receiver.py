"""A process that receives dispatches, and does with them what its standard input says.

It prints `got ID` for each delivery, and takes these lines: `finish ID` (prints `finished ID`).
It takes the next delivery only after the line `next`.
"""

import sys

import trio

from orchestrator.products.cluster.work import Delivery, DispatchId, WorkerId
from tests.workers.kit import Leaf


async def main(*words: str) -> None:
    url, name, worker, place, slots = words
    held: dict[DispatchId, Delivery] = {}
    async with (
        Leaf(name, url).open() as exchange,
        exchange.queue.receive(WorkerId(worker), place, int(slots)) as deliveries,
    ):
        print("ready", flush=True)
        while True:
            line = await trio.to_thread.run_sync(sys.stdin.readline)
            match line.split():
                case ["next"]:
                    delivery = await anext(deliveries)
                    held[delivery.dispatch.id] = delivery
                    print("got", delivery.dispatch.id, flush=True)
                case ["finish", it]:
                    await held.pop(DispatchId(it)).finish()
                    print("finished", it, flush=True)
                case _:
                    return


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
