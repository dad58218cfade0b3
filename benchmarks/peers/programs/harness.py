"""The harness of the programs: measures workloads in one process, and prints them as JSON.

Each program makes the same agents with a scripted model: a parent that delegates in one call of its
model and answers after it, children that answer at once, and a chain of such parents.
"""

import asyncio
import gc
import json
import sys
import time
from importlib.metadata import version

CHILDREN = {"one": 1, "fan-out of 100": 100, "fan-out of 1,000": 1_000}
DEPTH = 20
TIMES = {"one": 30, "fan-out of 100": 4, "fan-out of 1,000": 1, "chain of 20": 6}


class Answers:
    """Counts the answers of models, so that a workload cannot leave one out."""

    def __init__(self):
        self.count = 0

    async def wait(self):
        """Give other tasks a turn, as a call of a provider does."""
        self.count += 1
        await asyncio.sleep(0)


answers = Answers()


async def _measure(work, times, expected):
    """Return the least CPU seconds of one run, after a run that fills the caches."""
    least = float("inf")
    for number in range(times + 1):
        gc.collect()
        answers.count = 0
        began = time.process_time()
        await work()
        used = time.process_time() - began
        assert answers.count == expected, f"{answers.count} answers instead of {expected}"
        if number or times == 1:
            least = min(least, used)
    return least


async def measure_all(fan_out, chain):
    """Return the least CPU seconds of each workload."""
    found = {}
    for name, children in CHILDREN.items():
        found[name] = await _measure(fan_out(children), TIMES[name], children + 2)
    found["chain of 20"] = await _measure(chain(DEPTH), TIMES["chain of 20"], 2 * DEPTH + 1)
    return found


def report(package, seconds):
    """Print the version of a package, and the CPU seconds of each workload."""
    json.dump({"version": version(package), "seconds": seconds}, sys.stdout)


def main(package, fan_out, chain):
    """Measure two makers of workloads: of a fan-out of so many, and of a chain of this depth."""
    report(package, asyncio.run(measure_all(fan_out, chain)))
