"""`python -m tests.chaos.simulation --rounds 5000 --seed 1`: histories of a simulated cluster."""

import argparse
import logging
import sys
from collections import Counter
from multiprocessing import get_context

from tests.chaos.simulation.rounds import play_round


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.simulation", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--jobs", type=int, default=1, help="rounds at the same time")
    parser.add_argument("--verbose", action="store_true", help="print every round")
    asked = parser.parse_args()
    broken: list[int] = []
    answers: Counter[int] = Counter()
    runs = 0
    seeds = range(asked.seed, asked.seed + asked.rounds)
    # The log of a server that meets faults is long.
    pool = get_context("spawn").Pool(asked.jobs, logging.disable, [logging.CRITICAL], 200)
    with pool:
        for played in pool.imap_unordered(play_round, seeds):
            if asked.verbose or played.problems:
                print(played.line, flush=True)
            if played.problems:
                broken.append(played.seed)
            answers += played.answers
            runs += played.runs
    told = ", ".join(f"{status}: {many}" for status, many in sorted(answers.items()))
    print(
        f"{len(seeds) - len(broken)} of {len(seeds)} histories of a simulated cluster held:"
        f" {runs} runs; answers {told}"
    )
    if broken:
        print(f"seeds: {', '.join(map(str, sorted(broken)))}")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
